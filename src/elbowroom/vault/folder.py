"""Folders held open by descriptor, so that replacing a folder by a link meanwhile does not lead out of the vault.

Each name is opened below the folder before it, never through a link. Where the system has no descriptors of folders
(Windows), paths are used, links and junctions are refused by their attributes, and what was opened is checked.
"""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, Self

from elbowroom.vault.names import Closed, NoSuchFolder, Parts, VaultError, fold, is_open, path_text

HAS_DESCRIPTORS: Final = (
    os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and os.scandir in os.supports_fd
) and hasattr(os, "O_NOFOLLOW")
NEVER_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
BINARY: Final = getattr(os, "O_BINARY", 0)
FILE_FLAGS: Final = os.O_RDONLY | BINARY | NEVER_FOLLOW
FOLDER_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
SURROGATE_TAG: Final = 0x20000000
"""The bit that marks a reparse point which stands for another place; clouds' placeholders do not have it."""
REFUSED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What systems and file systems say that do not know these ways of renaming."""
NO_REPLACE, EXCHANGE = (4, 2) if sys.platform == "darwin" else (1, 2)
CALL: Final = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform, "")
Rename = Callable[[int, bytes, int, bytes, int], int]


class Folder:
    """An open folder of the vault; `parts` are the names of its path on disk, from the root.

    Its methods take names of entries in it, and raise OSError unless they say otherwise.
    """

    def __init__(self, path: str, parts: Parts, descriptor: int | None) -> None:
        self.parts = parts
        self.descriptor = descriptor
        self._path = path

    @classmethod
    def open_root(cls, path: str, *, by_descriptor: bool = HAS_DESCRIPTORS) -> Self:
        """Open the vault itself, also through a link, which is the user's own choice.

        Raises VaultError if there is no such folder.
        """
        try:
            real = os.path.realpath(path, strict=True)
            if not os.path.isdir(real):
                raise NotADirectoryError(path)
            return cls(real, (), os.open(real, FOLDER_FLAGS | NEVER_FOLLOW) if by_descriptor else None)
        except OSError as error:
            raise VaultError(
                f"The vault {path} cannot be opened: {error.strerror or error}. "
                "Tell the user to check vault.path in the settings."
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def place(self, name: str) -> str:
        """Return the name to hand to the system together with `descriptor`."""
        return name if self.descriptor is not None else os.path.join(self._path, name)

    def names(self) -> list[str]:
        """Return the names of all entries of the folder."""
        return os.listdir(self._path if self.descriptor is None else self.descriptor)

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of the folder."""
        # The iterator is closed by exhaustion; a descriptor is duplicated by the call.
        with os.scandir(self._path if self.descriptor is None else self.descriptor) as entries:
            yield from entries

    def name_on_disk(self, name: str) -> str | None:
        """Return a name as it is on disk: the same name, else the only one that differs just in case or accents.

        Other names of the file system for it, such as Windows' short names, do not count.
        """
        names = [found for found in self.names() if is_open(found)]
        if name in names:
            return name
        alike = [found for found in names if fold(found) == fold(name)]
        return alike[0] if len(alike) == 1 else None

    def status(self, name: str) -> os.stat_result:
        """Return the status of an entry; that of a link, not of its target."""
        return os.stat(self.place(name), dir_fd=self.descriptor, follow_symlinks=False)

    def open_folder(self, name: str) -> "Folder":
        """Open a subfolder; raises Closed if it is a link or no folder."""
        parts, path = (*self.parts, name), os.path.join(self._path, name)
        if _leads_elsewhere(self.status(name)):
            raise Closed(f"{path_text(parts)} is a link. Links are not followed.")
        if self.descriptor is None:
            folder = Folder(path, parts, None)
            folder.check_place()
            return folder
        try:
            return Folder(path, parts, os.open(name, FOLDER_FLAGS | NEVER_FOLLOW, dir_fd=self.descriptor))
        except OSError as error:
            raise Closed(f"{path_text(parts)} cannot be opened as a folder: {error.strerror}.") from error

    def check_place(self) -> None:
        """Raise Closed if the folder's path leads to another folder meanwhile."""
        if os.path.realpath(self._path) != self._path or not os.path.isdir(self._path):
            raise Closed(f"{path_text(self.parts)} is not a folder of the vault.")

    def open_file(self, name: str) -> int:
        """Open a file for reading and return its descriptor; raises Closed unless it is a plain file with one name.

        A device or pipe is not opened; one that takes the file's place at that very moment does not block.
        """
        _check_plain(self.status(name), (*self.parts, name))
        return self.open_seen_file(name)[0]

    def open_seen_file(self, name: str) -> tuple[int, os.stat_result]:
        """Open a file that was a plain one when its folder was listed, like `open_file`; return its status too."""
        try:
            opened = os.open(self.place(name), FILE_FLAGS, dir_fd=self.descriptor)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise Closed(f"{path_text((*self.parts, name))} cannot be opened: {error.strerror}.") from error
        try:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                _check_plain(status, (*self.parts, name))
            if self.descriptor is None:
                self._check_opened(opened, name)
        except BaseException:
            os.close(opened)
            raise
        return opened, status

    def _check_opened(self, opened: int, name: str) -> None:
        self.check_place()
        if not os.path.samestat(os.fstat(opened), self.status(name)):
            raise Closed(f"{path_text((*self.parts, name))} was replaced while it was opened. Try again.")

    def make_folder(self, name: str) -> None:
        """Create a subfolder, unless the name is taken."""
        try:
            os.mkdir(self.place(name), dir_fd=self.descriptor)
        except FileExistsError:
            return


@contextmanager
def opened_folder(root: Folder, parts: Parts, may_enter: Callable[[Parts], bool]) -> Iterator[Folder]:
    """Open the folder at a path as it is on disk, step by step; `root` stays open.

    Raises NoSuchFolder, also if the folder may not be entered, Closed, and OSError.
    """
    folder, owned = root, False
    try:
        for name in parts:
            found = folder.name_on_disk(name)
            if found is None or not may_enter((*folder.parts, found)):
                raise NoSuchFolder(f"There is no folder {path_text((*folder.parts, name))}.")
            below = folder.open_folder(found)
            if owned:
                folder.close()
            folder, owned = below, True
        yield folder
    finally:
        if owned:
            folder.close()


def _check_plain(status: os.stat_result, parts: Parts) -> None:
    if _leads_elsewhere(status):
        raise Closed(f"{path_text(parts)} is a link. Links are not followed.")
    if stat.S_ISDIR(status.st_mode):
        raise Closed(f"{path_text(parts)} is a folder, not a note. List it instead.")
    if not stat.S_ISREG(status.st_mode):
        raise Closed(f"{path_text(parts)} is not a file.")
    if status.st_nlink > 1:
        raise Closed(f"{path_text(parts)} is closed: it has a second name (a hard link), perhaps outside the vault.")


def _leads_elsewhere(status: os.stat_result) -> bool:
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_reparse_tag", 0) & SURROGATE_TAG)


def exchange(folder: Folder, first: str, second: str) -> bool:
    """Exchange two names atomically; returns False where the system cannot do that. Raises OSError."""
    return _renamed(folder, first, folder, second, EXCHANGE)


def rename_to_free(source: Folder, name: str, target: Folder, new_name: str) -> None:
    """Rename a file; raises FileExistsError where the name is taken, and OSError.

    Where the system has no atomic call for it, a file that takes the name at that very moment is replaced.
    """
    if not _renamed(source, name, target, new_name, NO_REPLACE):
        os.rename(
            source.place(name), target.place(new_name), src_dir_fd=source.descriptor, dst_dir_fd=target.descriptor
        )


def _renamed(source: Folder, name: str, target: Folder, new_name: str, flag: int) -> bool:
    call = _system_call()
    if call is None or source.descriptor is None or target.descriptor is None:
        return False
    if call(source.descriptor, os.fsencode(name), target.descriptor, os.fsencode(new_name), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in REFUSED:
        return False
    raise OSError(number, os.strerror(number), new_name)


@cache
def _system_call() -> Rename | None:
    """Return a function of the system's C library, None if there is none."""
    if not CALL:
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), CALL, None)
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    found: Rename = call
    return found
