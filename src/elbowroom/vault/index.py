"""The index of notes in memory, which spares a search reading the files; kept current by modification time and size."""

import os
import re
import stat
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from elbowroom.vault.files import MAX_NOTE_BYTES, read_open
from elbowroom.vault.folder import Folder
from elbowroom.vault.frontmatter import Value, read_frontmatter, texts
from elbowroom.vault.names import Parts, VaultError, is_note, is_open
from elbowroom.vault.note import Note

MOST_BYTES: Final = 128 << 20
"""The most memory that the texts of notes may take; notes beyond it are read again for each search."""
MOST_FACTS: Final = 1000
"""How many tags and keys of a note are kept in memory; of one with more they are found out again each time."""
FINE_CLOCK: Final = 100_000_000
COARSE_CLOCK: Final = 2_000_000_000
"""Nanoseconds within which a note may change twice and have the same time of change: usually, and where a file system
counts whole seconds.
"""
DEEPEST: Final = 64
TAG: Final = re.compile(r"(?:^|(?<=[\s(\[{]))#([^\s#,;.:!?'\"()\[\]{}<>|`~@$%^&*+=\\]+)")
CODE: Final = re.compile(r"`[^`\n]*`")
Signature = tuple[int, int, int, int]
"""Time of change of the content and of the entry, both in nanoseconds, size, number of the file."""


@dataclass(slots=True)
class IndexedNote:
    """A note at the state of `signature`; `folded` is its text for comparing, None if it is not kept in memory."""

    parts: Parts
    signature: Signature
    name: str
    folded: str | None
    is_text: bool = True
    """False for what is too large to be searched, or no text."""
    _facts: tuple[frozenset[str], dict[str, Value]] | None = field(default=None, repr=False)

    def facts(self) -> tuple[frozenset[str], dict[str, Value]]:
        """Return the tags, without `#`, and the frontmatter, both folded; computed once."""
        if self._facts is not None:
            return self._facts
        note = Note(self.folded or "")
        frontmatter = read_frontmatter(note)
        facts = frozenset(_tags(note, frontmatter)), frontmatter
        values = sum(len(value) if isinstance(value, list) else 1 for value in frontmatter.values())
        if len(facts[0]) + values <= MOST_FACTS:
            self._facts = facts
        return facts

    @property
    def changed(self) -> int:
        """Return the modification time in nanoseconds."""
        return self.signature[0]


class Index:
    """All notes of a vault that are not hidden, including those closed to single agents."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self.notes: dict[Parts, IndexedNote] = {}
        self._folders: dict[Parts, dict[str, IndexedNote]] = {}
        self._bytes = self._began = 0
        self._lock = threading.Lock()

    def refresh(self, root: Folder) -> None:
        """Read the notes that changed since the last call; unreadable ones are left out."""
        with self._lock:
            before, self._folders, self._began = self._folders, {}, time.time_ns()
            try:
                is_changed = self._look_into(root, before)
            except BaseException:
                self._folders = before
                raise
            if is_changed or self._folders.keys() != before.keys():
                self.notes = {note.parts: note for folder in self._folders.values() for note in folder.values()}
                self._bytes = sum(sys.getsizeof(note.folded) for note in self.notes.values())

    def _look_into(self, folder: Folder, before: dict[Parts, dict[str, IndexedNote]]) -> bool:
        """Read the notes that changed in a folder and below; return whether there were any."""
        known, found, below = before.get(folder.parts, {}), dict[str, IndexedNote](), list[str]()
        is_changed = False
        for entry in folder.entries():
            name = entry.name
            if (note := known.get(name)) is not None and _signature(entry) == note.signature:
                found[name] = note
            elif not is_open(name):
                continue
            elif not is_note(name):
                if entry.is_dir(follow_symlinks=False):
                    below.append(name)
            elif entry.is_file(follow_symlinks=False) and (fresh := self._read(folder, name)) is not None:
                found[name] = fresh
                is_changed = True
        self._folders[folder.parts] = found
        for name in below if len(folder.parts) < DEEPEST else ():
            with suppress(OSError, VaultError), folder.open_folder(name) as inner:
                is_changed |= self._look_into(inner, before)
        return is_changed or len(found) != len(known)

    def _read(self, folder: Folder, name: str) -> IndexedNote | None:
        """Return a note as it is now, None if it is no plain file with one name or cannot be read."""
        folded = None
        try:
            descriptor, status = folder.open_seen_file(name)
            try:
                is_text = status.st_size <= MAX_NOTE_BYTES
                if is_text and self._bytes < self._most_bytes:
                    folded = searchable(read_open(descriptor, status.st_size))
                    is_text = folded is not None
                    self._bytes += sys.getsizeof(folded)
            finally:
                os.close(descriptor)
        except (VaultError, OSError):
            return None
        signature = _signature_of(status, self._began)
        return IndexedNote((*folder.parts, name), signature, folded_text(name[:-3]), folded, is_text)


def _signature(entry: os.DirEntry[str]) -> Signature | None:
    """Return values that change when the note changes, None if it is no plain file with one name."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _signature_of(status: os.stat_result, read_at: int) -> Signature:
    """Return the signature of a note that was read after a time in nanoseconds.

    Of a note so young that its next change may keep the modification time, it is a signature that no file has.
    """
    changed = status.st_mtime_ns
    grain = FINE_CLOCK if changed % 1_000_000_000 else COARSE_CLOCK
    size = status.st_size if changed + grain < read_at else -1
    return changed, status.st_ctime_ns, size, status.st_ino


def searchable(data: bytes) -> str | None:
    """Return a note's bytes as text for comparing, None if they are no text."""
    return None if b"\0" in data else folded_text(data.decode("utf-8", errors="replace"))


def folded_text(text: str) -> str:
    """Return a text in the form for searching: case-folded, with accents in one form."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def _tags(note: Note, frontmatter: dict[str, Value]) -> Iterator[str]:
    for key in frontmatter:
        if key.casefold() in ("tags", "tag"):
            yield from (folded_text(tag.removeprefix("#")) for tag in texts(frontmatter[key]))
    for number, line in enumerate(note.bare):
        if "#" in line and note.is_prose(number):
            for match in TAG.finditer(CODE.sub(" ", line) if "`" in line else line):
                if not match[1].isdigit():
                    yield folded_text(match[1]).strip("/")
