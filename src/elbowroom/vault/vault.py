"""The vault as an agent sees it: finds notes and folders by the paths that models write."""

import difflib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from elbowroom.vault.files import Content, read_whole
from elbowroom.vault.folder import HAS_DESCRIPTORS, Folder, opened_folder
from elbowroom.vault.index import DEEPEST, Index
from elbowroom.vault.names import (
    NoSuchFolder,
    NoSuchNote,
    Parts,
    Scope,
    VaultError,
    bare_name,
    fold,
    is_note,
    is_open,
    note_parts,
    path_text,
    split_path,
)

NEAR_NAMES = 5


@dataclass(frozen=True, slots=True)
class Listing:
    """The direct content of a folder, sorted by name, with the number of notes below each folder."""

    parts: Parts
    folders: tuple[tuple[str, int], ...]
    notes: tuple[tuple[str, int], ...]
    """Each with its size in bytes."""
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Vault:
    """A vault as one agent may see it. Its methods do blocking work and raise VaultError; they are for threads.

    `by_descriptor` is False on systems without descriptors of folders.
    """

    root: str
    scope: Scope
    index: Index = field(default_factory=Index)
    by_descriptor: bool = HAS_DESCRIPTORS

    @contextmanager
    def opened(self) -> Iterator[Folder]:
        """Open the vault's root; an OSError in the block becomes a VaultError."""
        with Folder.open_root(self.root, by_descriptor=self.by_descriptor) as root:
            try:
                yield root
            except OSError as error:
                name = os.path.basename(os.fsdecode(error.filename)) if error.filename else "the vault"
                raise VaultError(f"{name}: {error.strerror or error}. Tell the user.") from error

    @contextmanager
    def folder(self, parts: Parts) -> Iterator[Folder]:
        """Open a folder that may be seen; raises NoSuchFolder with similar names."""
        with self.opened() as root, ExitStack() as stack:
            try:
                folder = stack.enter_context(opened_folder(root, parts, self.scope.leads_on))
            except NoSuchFolder:
                raise self._no_folder(parts) from None
            yield folder

    @contextmanager
    def file(self, written: str, *, anywhere: bool = False) -> Iterator[tuple[Folder, str]]:
        """Open the folder of a note or another file and return it with the name on disk.

        With `anywhere`, a unique bare name is enough, as in links. Raises NoSuchNote with similar names.
        """
        with self.opened() as root, ExitStack() as stack:
            for parts in self._meant(written, anywhere=anywhere):
                with suppress(NoSuchFolder):
                    folder = stack.enter_context(opened_folder(root, parts[:-1], self.scope.leads_on))
                    name = folder.name_on_disk(parts[-1])
                    if name is not None and self.scope.allows((*folder.parts, name)):
                        break
            else:
                raise self._no_note(written)
            yield folder, name

    def read(self, written: str, *, anywhere: bool = False) -> Content:
        """Return the content of a file."""
        with self.file(written, anywhere=anywhere) as (folder, name):
            return read_whole(folder, name)

    def listing(self, written: str) -> Listing:
        """Return the direct content of a folder."""
        self.refresh()
        below = self._notes_below()
        with self.folder(split_path(written)) as folder:
            folders, notes, others = [], [], []
            for entry in folder.entries():
                parts = (*folder.parts, entry.name)
                if not is_open(entry.name) or entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if self.scope.leads_on(parts):
                        folders.append((entry.name, below.get(parts, 0)))
                elif self.scope.allows(parts) and stat.S_ISREG((status := folder.status(entry.name)).st_mode):
                    if is_note(entry.name):
                        notes.append((entry.name, status.st_size))
                    else:
                        others.append(entry.name)
            return Listing(folder.parts, _ordered(folders), _ordered(notes), tuple(sorted(others, key=str.casefold)))

    def refresh(self) -> None:
        """Update the index from the disk."""
        with self.opened() as root:
            self.index.refresh(root)

    def notes(self) -> list[Parts]:
        """Return the paths of all notes that may be seen, as the index knows them."""
        return [parts for parts in self.index.notes if self.scope.allows(parts)]

    def files(self) -> list[Parts]:
        """Return the paths of all files that are not hidden, including those closed to this agent."""
        with self.opened() as root:
            return list(_files_below(root))

    def read_at(self, parts: Parts) -> Content:
        """Return the content of the file at a path on disk, with any characters in its name; raises NoSuchNote."""
        if self.scope.allows(parts):
            with suppress(NoSuchFolder, FileNotFoundError), self.opened() as root, ExitStack() as stack:
                folder = stack.enter_context(opened_folder(root, parts[:-1], self.scope.leads_on))
                return read_whole(folder, parts[-1])
        raise NoSuchNote(f"There is no note {path_text(parts)!r}.")

    def _notes_below(self) -> dict[Parts, int]:
        counts: dict[Parts, int] = {}
        for parts in self.notes():
            for depth in range(1, len(parts)):
                counts[parts[:depth]] = counts.get(parts[:depth], 0) + 1
        return counts

    def _meant(self, written: str, *, anywhere: bool) -> Iterator[Parts]:
        """Yield the paths that a written path may mean, the likeliest first."""
        parts = split_path(written)
        as_note = note_parts(written)
        yield as_note  # first, since many folders have a note of the same name beside them
        if as_note != parts:
            yield parts
        if anywhere and len(parts) == 1:
            self.refresh()
            named = sorted(found for found in self.notes() if fold(found[-1]) == fold(as_note[0]))
            if len(named) == 1:
                yield named[0]
            elif named:
                several = ", ".join(path_text(found) for found in named[:NEAR_NAMES])
                raise NoSuchNote(f"There are {len(named)} notes {written!r}: {several}. Write the whole path.")

    def _no_note(self, written: str) -> NoSuchNote:
        self.refresh()
        wanted = fold(bare_name(written.rsplit("/", 1)[-1]))
        by_name: dict[str, list[str]] = {}
        for parts in self.notes():
            by_name.setdefault(fold(bare_name(parts[-1])), []).append(path_text(parts))
        names = [name for name in by_name if wanted and wanted in name][:NEAR_NAMES]
        names += difflib.get_close_matches(wanted, by_name, n=NEAR_NAMES, cutoff=0.6)
        near = [path for name in dict.fromkeys(names) for path in by_name[name]][:NEAR_NAMES]
        hint = f"Near names: {', '.join(near)}." if near else "Search or list to find it."
        return NoSuchNote(f"There is no note {written!r}. {hint}")

    def _no_folder(self, parts: Parts) -> NoSuchFolder:
        self.refresh()
        folders = {path_text(note[:depth]) for note in self.notes() for depth in range(1, len(note))}
        near = difflib.get_close_matches(path_text(parts), sorted(folders), n=NEAR_NAMES, cutoff=0.6)
        hint = f"Near names: {', '.join(near)}." if near else 'List "" to see the folders of the vault.'
        return NoSuchFolder(f"There is no folder {path_text(parts)!r}. {hint}")


def _files_below(folder: Folder) -> Iterator[Parts]:
    below = list[str]()
    for entry in folder.entries():
        if not is_open(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            below.append(entry.name)
        elif entry.is_file(follow_symlinks=False):
            yield (*folder.parts, entry.name)
    for name in below if len(folder.parts) < DEEPEST else ():
        with suppress(OSError, VaultError), folder.open_folder(name) as inner:
            yield from _files_below(inner)


def _ordered(rows: list[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(rows, key=lambda row: (row[0].casefold(), row[0])))
