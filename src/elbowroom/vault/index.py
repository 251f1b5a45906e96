"""The notes in memory, so that a search need not read them: kept up to date by time of change and size."""

import os
import re
import stat
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from elbowroom.vault.errors import VaultError
from elbowroom.vault.files import MAX_NOTE_BYTES, read_whole
from elbowroom.vault.folder import Folder
from elbowroom.vault.frontmatter import Value, read_frontmatter, texts
from elbowroom.vault.names import Parts, is_note, is_open
from elbowroom.vault.note import Note

MOST_CHARACTERS: Final = 96 << 20
"""The most text that is kept in memory; notes beyond it are read again for each search."""
DEEPEST: Final = 64
TAG: Final = re.compile(r"(?:^|(?<=[\s(\[{]))#([^\s#,;.:!?'\"()\[\]{}<>|`~@$%^&*+=\\]+)")
CODE: Final = re.compile(r"`[^`\n]*`")
Signature = tuple[int, int, int]


@dataclass(slots=True)
class IndexedNote:
    """A note as it was at `signature`; `folded` is its text for comparing, None where it is not kept."""

    parts: Parts
    signature: Signature
    name: str
    folded: str | None
    is_text: bool = True
    """False for what is too large to be searched, or no text."""
    _facts: tuple[frozenset[str], dict[str, Value]] | None = field(default=None, repr=False)

    def facts(self) -> tuple[frozenset[str], dict[str, Value]]:
        """Return the tags, without `#`, and the frontmatter, both folded; found out once."""
        if self._facts is None:
            note = Note(self.folded or "")
            frontmatter = read_frontmatter(note)
            self._facts = frozenset(_tags(note, frontmatter)), frontmatter
        return self._facts

    @property
    def changed(self) -> int:
        """Return when the note was changed, in nanoseconds."""
        return self.signature[0]


class Index:
    """All notes of a vault that are not hidden, whoever may see them."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_characters = most_characters
        self.notes: dict[Parts, IndexedNote] = {}
        self._folders: dict[Parts, dict[str, IndexedNote]] = {}
        self._characters = 0
        self._lock = threading.Lock()

    def refresh(self, root: Folder) -> None:
        """Read what has changed since the last time; what cannot be read is left out."""
        with self._lock:
            before, self._folders = self._folders, {}
            try:
                is_changed = self._look_into(root, before)
            except BaseException:
                self._folders = before
                raise
            if is_changed or self._folders.keys() != before.keys():
                self.notes = {note.parts: note for folder in self._folders.values() for note in folder.values()}
                self._characters = sum(len(note.folded or "") for note in self.notes.values())

    def _look_into(self, folder: Folder, before: dict[Parts, dict[str, IndexedNote]]) -> bool:
        """Read what has changed in a folder and below; tell whether anything has."""
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
            elif (fresh := self._read(folder, entry)) is not None:
                found[name] = fresh
                is_changed = True
        self._folders[folder.parts] = found
        for name in below if len(folder.parts) < DEEPEST else ():
            with suppress(OSError, VaultError), folder.open_folder(name) as inner:
                is_changed |= self._look_into(inner, before)
        return is_changed or len(found) != len(known)

    def _read(self, folder: Folder, entry: os.DirEntry[str]) -> IndexedNote | None:
        signature, name = _signature(entry), entry.name
        if signature is None:
            return None
        folded, is_text = None, signature[1] <= MAX_NOTE_BYTES
        if is_text and self._characters < self._most_characters:
            try:
                data = read_whole(folder, name).data
            except (VaultError, OSError):
                return None
            folded = searchable(data)
            is_text = folded is not None
            self._characters += len(folded or "")
        return IndexedNote((*folder.parts, name), signature, folded_text(name[:-3]), folded, is_text)


def _signature(entry: os.DirEntry[str]) -> Signature | None:
    """Return what changes when a note does, or None for what is no plain file of its own."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def searchable(data: bytes) -> str | None:
    """Return a note's bytes as text for comparing, or None where they are no text."""
    return None if b"\0" in data else folded_text(data.decode("utf-8", errors="replace"))


def folded_text(text: str) -> str:
    """Return a text in the form in which it is searched: without case, accents written one way."""
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
