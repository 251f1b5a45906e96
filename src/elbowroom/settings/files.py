"""Replaces files atomically: a crash leaves either the old content or the new one."""

import contextlib
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from elbowroom.errors import SettingsNotSaved

NO_RIGHTS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PRIVATE: Final = 0o600


def replace_file(path: Path, content: bytes, before: bytes | None) -> None:
    """Replace the content of a file, and keep the previous content beside it in a file that ends with `.bak`.

    The file keeps its mode; of a symbolic link the target is replaced. A new file is readable by its owner alone.

    Raises SettingsNotSaved, which names the file and what to do; the file is unchanged then.
    """
    target, backup = Path(os.path.realpath(path)), backup_of(path)
    make_ready = partial(take_over, like=target)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if before is not None:
            put_in_place(backup, before, make_ready)
        put_in_place(target, content, make_ready)
    except OSError as error:
        raise not_saved(target, error) from error
    with contextlib.suppress(OSError):  # the file is replaced in any case
        sync_folder(target.parent)


def backup_of(path: Path) -> Path:
    """Return the file into which `replace_file` puts the previous content."""
    target = Path(os.path.realpath(path))
    return target.with_name(f"{target.name}.bak")


def write_private(path: Path, content: bytes) -> None:
    """Write a new file, and its folder, readable by their owner alone. Raises SettingsNotSaved."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_new(path, content)
    except OSError as error:
        raise not_saved(path, error) from error


def not_saved(path: Path, error: OSError) -> SettingsNotSaved:
    """Return the error that names the file, why it could not be written, and what to do."""
    return SettingsNotSaved(f"{path} cannot be written: {error.strerror or error}. {_what_to_do(path, error)}")


def _what_to_do(path: Path, error: OSError) -> str:
    if error.errno in NO_RIGHTS:
        return f"Let the user that runs elbowroom write in the folder {path.parent}. Nothing was changed."
    if error.errno in NO_ROOM:
        return f"Make room on the disk of {path.parent}. Nothing was changed."
    if error.errno == errno.EBUSY:
        return f"If it is mounted into a container, mount its folder instead: {path.parent}. Nothing was changed."
    return f"Check the folder {path.parent}. Nothing was changed."


def take_over(fresh: Path, like: Path) -> None:
    """Give a file the mode and, where the system allows it, the owner of another file, if that exists."""
    try:
        status = like.stat()
    except FileNotFoundError:
        return
    fresh.chmod(status.st_mode & 0o777)
    give_to_owner_of(like, fresh)


def give_to_owner_of(other: Path, path: Path) -> None:
    """Give a file or a folder to the owner of another one, where the system allows it."""
    if hasattr(os, "chown"):
        status = other.stat()
        with contextlib.suppress(PermissionError):
            os.chown(path, status.st_uid, status.st_gid)


def write_new(path: Path, content: bytes) -> None:
    """Create a file that its owner alone can read. Raises OSError, also where the file exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def put_in_place(path: Path, content: bytes, make_ready: Callable[[Path], None]) -> None:
    """Replace a file atomically, or create it.

    `make_ready` sets the mode of the new file before it takes the name. Raises OSError.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # a killed attempt may have left one
    try:
        write_new(fresh, content)
        make_ready(fresh)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, where the system can do that. Raises OSError."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
