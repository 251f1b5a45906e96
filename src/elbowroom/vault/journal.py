"""The journal of changes to a vault, files in the data folder with the previous contents; does and undoes changes."""

import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from elbowroom.settings.files import sync_folder, write_new
from elbowroom.vault.files import file_version, move_file, new_file, read_whole, replace_file, version_of
from elbowroom.vault.folder import Folder, opened_folder
from elbowroom.vault.names import Moved, NoSuchFolder, NoSuchNote, Parts, Scope, VaultError, bare_name

MOST_ENTRIES: Final = 200
MOST_BYTES: Final = 256 << 20
"""The room that the changes of one vault may take on disk; the newest one is kept whatever it takes."""
TRASH: Final = ".trash"
"""Obsidian's own folder for what was deleted, in the vault."""


@dataclass(frozen=True, slots=True)
class Written:
    """A note was written; `before` is its previous content, None for a new note, `after` its new version."""

    path: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Relocated:
    """A note was moved; its content has this version."""

    path: str
    to: str
    version: str


Step = Written | Relocated


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of an agent: a sentence, and its steps in the order in which they were made."""

    id: str
    agent: str
    what: str
    when: float
    steps: tuple[Step, ...]


class Journal:
    """The last changes of one vault. Hold `lock` while changing the vault."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self.lock = threading.RLock()

    def begin(self, agent: str, what: str, steps: Sequence[Step]) -> Entry:
        """Write an entry before its steps are made. Raises VaultError if it cannot be written."""
        entry = Entry(f"{time.time_ns():020d}-{secrets.token_hex(4)}", agent, what, time.time(), tuple(steps))
        try:
            self._write(entry)
        except OSError as error:
            raise VaultError(
                f"Nothing was changed: what would be needed to undo it cannot be kept in {self._folder} "
                f"({error.strerror or error}). Tell the user."
            ) from error
        self._remove_old()
        return entry

    def forget(self, entry: Entry) -> None:
        """Remove an entry that was undone or never made."""
        self._remove(f"{entry.id}.json")

    def last(self, agent: str) -> Entry | None:
        """Return the newest change of an agent."""
        return next((entry for entry in self.newest() if entry.agent == agent), None)

    def find(self, entry_id: str) -> Entry | None:
        """Return the change with this id."""
        name = f"{entry_id}.json"
        return self._read(name) if name in self._names() else None

    def newest(self) -> Iterator[Entry]:
        """Yield the changes of all agents that are not undone, the newest first."""
        for name in reversed(self._names()):
            if (entry := self._read(name)) is not None:
                yield entry

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._folder) if name.endswith(".json"))
        except OSError:
            return []

    def _read(self, name: str) -> Entry | None:
        try:
            data = json.loads((self._folder / name).read_text(encoding="ascii"))
            return Entry(**{**data, "steps": tuple(_step(row) for row in data["steps"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, entry: Entry) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, temporary = self._folder / f"{entry.id}.json", self._folder / f"{entry.id}.new"
        # ASCII, since what a note held may be no UTF-8: its odd bytes are escaped.
        data = json.dumps(asdict(entry), ensure_ascii=True).encode("ascii")
        write_new(temporary, data)
        temporary.replace(path)
        sync_folder(self._folder)  # so that what is needed to undo is there before what is to be undone

    def _remove_old(self) -> None:
        size = 0
        for number, name in enumerate(reversed(self._names())):
            with suppress(OSError):
                size += (self._folder / name).stat().st_size
            if number and (number >= MOST_ENTRIES or size > self._most_bytes):
                self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()


def _step(row: dict[str, Any]) -> Step:
    return Relocated(**row) if "to" in row else Written(**row)


class Steps:
    """Does and undoes steps below an open root; raises VaultError and OSError. Paths in steps are those on disk."""

    def __init__(self, root: Folder, scope: Scope) -> None:
        self._root = root
        self._scope = scope

    def find(self, parts: Parts) -> Parts | None:
        """Return the path on disk of a path in any case, None if nothing is there."""
        try:
            with opened_folder(self._root, parts[:-1], self._scope.leads_on) as folder:
                name = folder.name_on_disk(parts[-1])
                return None if name is None else (*folder.parts, name)
        except NoSuchFolder:
            return None

    def free_in_trash(self, name: str) -> str:
        """Return a free path in the trash."""
        with self._trash() as trash:
            taken = {found.casefold() for found in trash.names()}
        candidate, number = name, 1
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{bare_name(name)} {number}{name[len(bare_name(name)) :]}"
        return f"{TRASH}/{candidate}"

    def do(self, step: Step, content: bytes) -> None:
        """Do one step; `content` is what a write writes."""
        if isinstance(step, Relocated):
            self._move(step.path, step.to)
            return
        with self._folder_of(step.path, make=step.before is None) as (folder, name):
            if step.before is None:
                new_file(folder, name, content)
            else:
                before = _bytes(step.before)
                replace_file(folder, name, before, content, read_whole(folder, name).mode)

    def undo(self, steps: Sequence[Step]) -> None:
        """Undo steps that were done in this order, or begun before a crash.

        Raises Moved, and undoes nothing, if a note has changed since.
        """
        done: list[Step] = []
        moved: dict[str, str] = {}
        for step in reversed(steps):
            if self._is_done(step, moved.get(step.path, step.path)):
                done.append(step)
                if isinstance(step, Relocated):
                    moved[step.path] = step.to
        for step in done:
            if isinstance(step, Relocated):
                self._move(step.to, step.path)
            elif step.before is None:
                self._move(step.path, self.free_in_trash(step.path.rsplit("/", 1)[-1]))
            else:
                self._put_back(step.path, _bytes(step.before), step.after)

    def _is_done(self, step: Step, path: str) -> bool:
        """Return True if a step was done, False if it was not begun; raises Moved if the note is in another state."""
        if isinstance(step, Relocated):
            now, wanted, before = self._version(step.to), step.version, None
        else:
            now, wanted = self._version(path), step.after
            before = None if step.before is None else version_of(_bytes(step.before))
        if now not in (wanted, before):
            raise Moved(f"{path} has changed since. Nothing was undone.")
        if now is None and isinstance(step, Relocated) and self._version(path) is None:
            raise Moved(f"{step.to} is gone. Nothing was undone.")
        return now == wanted

    def _put_back(self, path: str, before: bytes, version: str) -> None:
        with self._folder_of(path) as (folder, name):
            now = read_whole(folder, name)
            if now.version != version:
                raise Moved(f"{path} was changed by another program meanwhile. Undo again to see what can be undone.")
            replace_file(folder, name, now.data, before, now.mode)

    def _version(self, path: str) -> str | None:
        try:
            with self._folder_of(path) as (folder, name):
                return file_version(folder, name)
        except (VaultError, FileNotFoundError):
            return None

    def _move(self, path: str, to: str) -> None:
        with self._folder_of(path) as (source, name), self._folder_of(to, make=True) as (target, new_name):
            move_file(source, name, target, new_name)

    @contextmanager
    def _folder_of(self, path: str, *, make: bool = False) -> Iterator[tuple[Folder, str]]:
        """Open the folder of a path on disk and return it with the last name; `make` creates missing folders."""
        *above, name = path.split("/")
        if above == [TRASH]:
            with self._trash() as trash:
                yield trash, name
            return
        if not self._scope.allows((*above, name)):
            raise NoSuchNote(f"There is no note {path}.")
        if make:
            self._make(tuple(above))
        with opened_folder(self._root, tuple(above), self._scope.leads_on) as folder:
            yield folder, name

    def _make(self, parts: Parts) -> None:
        for depth, name in enumerate(parts):
            with opened_folder(self._root, parts[:depth], self._scope.leads_on) as folder:
                if folder.name_on_disk(name) is None:
                    folder.make_folder(name)

    @contextmanager
    def _trash(self) -> Iterator[Folder]:
        self._root.make_folder(TRASH)
        with self._root.open_folder(TRASH) as trash:
            yield trash


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")
