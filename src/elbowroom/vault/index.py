"""The notes in memory, so that a search need not read them: kept up to date by time of change and size."""

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

MOST_CHARACTERS: Final = 256 << 20
"""The most text that is kept in memory; notes beyond it are known by their names only, and searches say so."""
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

    def __init__(self) -> None:
        self.notes: dict[Parts, IndexedNote] = {}
        self.unsearched = 0
        """How many notes are too large, no text, or beyond what is kept in memory."""
        self._lock = threading.Lock()

    def refresh(self, root: Folder) -> None:
        """Read what has changed since the last time; what cannot be read is left out."""
        with self._lock:
            found: dict[Parts, IndexedNote] = {}
            kept = 0
            for folder, name, signature in _walk(root):
                parts = (*folder.parts, name)
                known = self.notes.get(parts)
                if known is None or known.signature != signature:
                    known = _indexed(folder, name, signature, has_room=kept < MOST_CHARACTERS)
                if known is not None:
                    kept += len(known.folded or "")
                    found[parts] = known
            self.notes = found
            self.unsearched = sum(note.folded is None for note in found.values())


def folded_text(text: str) -> str:
    """Return a text in the form in which it is searched: without case, accents written one way."""
    return text.lower() if text.isascii() else unicodedata.normalize("NFC", text).casefold()


def _walk(root: Folder) -> Iterator[tuple[Folder, str, Signature]]:
    """Yield every note below the root with its folder, open as long as it is looked at."""
    folders: list[str] = []
    for entry in root.entries():
        name = entry.name
        if not is_open(name):
            continue
        if is_note(name):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                    yield root, name, (status.st_mtime_ns, status.st_size, status.st_ino)
        elif entry.is_dir(follow_symlinks=False):
            folders.append(name)
    if len(root.parts) >= DEEPEST:
        return
    for name in folders:
        with suppress(OSError, VaultError), root.open_folder(name) as below:
            yield from _walk(below)


def _indexed(folder: Folder, name: str, signature: Signature, *, has_room: bool) -> IndexedNote | None:
    parts = (*folder.parts, name)
    folded = None
    if signature[1] <= MAX_NOTE_BYTES and has_room:
        try:
            data = read_whole(folder, name).data
        except (VaultError, OSError):
            return None
        if b"\0" not in data:
            folded = folded_text(data.decode("utf-8", errors="replace"))
    return IndexedNote(parts, signature, folded_text(name[:-3]), folded)


def _tags(note: Note, frontmatter: dict[str, Value]) -> Iterator[str]:
    for key in frontmatter:
        if key.casefold() in ("tags", "tag"):
            yield from (folded_text(tag.removeprefix("#")) for tag in texts(frontmatter[key]))
    for number, line in enumerate(note.bare):
        if "#" in line and note.is_prose(number):
            for match in TAG.finditer(CODE.sub(" ", line) if "`" in line else line):
                if not match[1].isdigit():
                    yield folded_text(match[1]).strip("/")
