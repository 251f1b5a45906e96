"""Checks of the data folder: it can be written, its database is sound, and one server has it."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from elbowroom.doctor.finding import Finding
from elbowroom.doctor.patient_thread import in_thread
from elbowroom.doctor.subject import Subject
from elbowroom.settings.paths import data_dir
from elbowroom.store import database_path, is_in_use
from elbowroom.store.inspection import Inspection, inspect_file

CHECK: Final = "data folder"
LEAST_FREE_BYTES: Final = 200_000_000
CHOOSE: Final = "or choose another one with the environment variable ELBOWROOM_DATA_DIR"
DAY_SECONDS: Final = 86_400.0


async def check_data(subject: Subject) -> list[Finding]:
    """Return what is wrong with the data folder and the database in it."""
    settings, environ = subject.loaded.settings.store, subject.environ
    database = database_path(settings, environ)
    folders = {data_dir(environ), *([database.parent] if database else [])}
    findings = await in_thread(lambda: [found for folder in sorted(folders) for found in of_folder(folder)])
    if database is None:
        what = "Conversations are kept in memory only and end with the server, as store.url says."
        return [*findings, Finding("ok", CHECK, what)]
    inspection = await in_thread(lambda: inspect_file(database))
    findings += of_database(database, inspection)
    how = "there is no database in it yet" if inspection.state == "absent" else "its database is sound"
    return findings or [Finding("ok", CHECK, f"{database.parent} can be written, and {how}.")]


def of_folder(folder: Path) -> list[Finding]:
    """Return what is wrong with a folder, which need not be there yet: elbowroom makes it."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not there.is_dir():
        return [Finding("fail", CHECK, f"{there} is a file, no folder.", str(folder), f"Move it away, {CHOOSE}.")]
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        what = f"Nothing can be written to {there}: {error.strerror or error}. What is said is lost at the next start."
        return [Finding("fail", CHECK, what, str(folder), f"Give yourself the right to write there, {CHOOSE}.")]
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE_BYTES:
        what = f"Only {free // 1_000_000} MB are free on the disk of {there}."
        return [Finding("warn", CHECK, what, str(folder), f"Make room on it, {CHOOSE}.")]
    return []


def of_database(path: Path, found: Inspection) -> list[Finding]:
    """Return what is wrong with the database's file."""
    where = str(path)
    match found.state:
        case "damaged":
            remedy = (
                "elbowroom sets it aside at its next start and begins a new one. To rescue what can be read, stop "
                f'elbowroom and run: sqlite3 "{path}" ".recover" | sqlite3 recovered.db'
            )
            return [Finding("fail", CHECK, f"The database is damaged: {found.detail}.", where, remedy)]
        case "newer":
            what = "The database was written by a newer elbowroom; this one goes on without it."
            return [Finding("fail", CHECK, what, where, f"Update elbowroom, {CHOOSE}.")]
        case "unreadable":
            what = f"The database cannot be read: {found.detail}."
            return [Finding("fail", CHECK, what, where, "Give yourself the right to read and write the file.")]
        case "unchecked":
            what = f"The database is large, and was not read to its end: {found.detail}."
            return [Finding("ok", CHECK, what, where)]
        case "absent" | "sound":
            return _of_age(path) if found.state == "sound" else []


def _of_age(path: Path) -> list[Finding]:
    ahead = path.stat().st_mtime - time.time()
    if ahead < DAY_SECONDS:
        return []
    what = f"The database was last written {ahead / DAY_SECONDS:.0f} days in the future: the clock has been set back."
    remedy = "Set the clock right; conversations are sorted and deleted by it."
    return [Finding("warn", "clock", what, str(path), remedy)]


async def lock_is_held(subject: Subject) -> bool:
    """Tell whether a running elbowroom has the data folder."""
    database = database_path(subject.loaded.settings.store, subject.environ)
    return database is not None and await in_thread(lambda: is_in_use(database))
