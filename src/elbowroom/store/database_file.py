"""The database's file on disk: made so that only its owner reads it, and set aside when it is damaged."""

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

COMPANIONS: Final = ("", "-wal", "-shm", "-journal")
"""What SQLite adds to the name of a database for the files that belong to it."""


def make_folder(path: Path) -> None:
    """Make the folder of a file (0700) where there is none; one that is there keeps its rights. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def prepare_file(path: Path) -> None:
    """Make the folder and an empty file (0600) where there are none; what is there keeps its rights.

    Raises OSError.
    """
    make_folder(path)
    # A file that is there is not even opened: closing it again would undo SQLite's own locks on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def set_aside(path: Path, now: datetime) -> Path:
    """Rename a database and all that belongs to it; returns its new name, which carries the date.

    Raises OSError, on Windows also while somebody has the file open.
    """
    aside = _free_name(path, f"{path.name}.damaged-{now:%Y-%m-%d-%H%M%S}")
    for companion in reversed(COMPANIONS):
        if (old := path.with_name(path.name + companion)).exists():
            old.rename(aside.with_name(aside.name + companion))
    return aside


def _free_name(path: Path, name: str) -> Path:
    candidate, number = path.with_name(name), 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{name}-{number}")
    return candidate
