"""The steps that a change consists of, done and taken back in the files of a vault."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from elbowroom.vault.errors import Moved, NoSuchFolder, NoSuchNote, VaultError
from elbowroom.vault.files import file_version, move_file, new_file, read_whole, replace_file, version_of
from elbowroom.vault.folder import Folder, opened_folder
from elbowroom.vault.journal import Relocated, Step
from elbowroom.vault.names import Parts, bare_name
from elbowroom.vault.scope import Scope

TRASH: Final = ".trash"
"""Obsidian's own folder for what was deleted, in the vault."""


class Steps:
    """Does steps below an open root; raises VaultError and OSError. The paths in steps are those on disk."""

    def __init__(self, root: Folder, scope: Scope) -> None:
        self._root = root
        self._scope = scope

    def find(self, parts: Parts) -> Parts | None:
        """Return the path on disk of what is at a path, whatever its case, or None where there is nothing."""
        try:
            with opened_folder(self._root, parts[:-1], self._scope.leads_on) as folder:
                name = folder.name_on_disk(parts[-1])
                return None if name is None else (*folder.parts, name)
        except NoSuchFolder:
            return None

    def free_in_trash(self, name: str) -> str:
        """Return a path in the trash that nothing has."""
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

    def take_back(self, steps: Sequence[Step]) -> None:
        """Undo steps that were done in this order, or begun before the machine went down.

        Nothing is undone where a note has changed since: raises Moved.
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
        """Tell whether a step was done, or not even begun; raises Moved where it is neither."""
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
        """Open the folder of a path on disk and return it with the last name; `make` folders that are missing."""
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
