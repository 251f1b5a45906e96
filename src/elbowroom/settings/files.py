"""Replaces a file so that it is the old one or the new one at every moment, whatever is killed or fails."""

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


def replace_file(path: Path, content: bytes, before: bytes | None) -> None:
    """Put content in the place of a file, and what it held before into one beside it that ends with `.bak`.

    The file keeps its mode, and a link stays a link: what it leads to is replaced. A new one is for its owner alone.

    Raises SettingsNotSaved with the file and what to do about it; it is as before then.
    """
    target, backup = Path(os.path.realpath(path)), backup_of(path)
    take_over = partial(_take_over, like=target)
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if before is not None:
            put_in_place(backup, before, take_over)
        put_in_place(target, content, take_over)
    except OSError as error:
        raise not_saved(target, error) from error
    with contextlib.suppress(OSError):  # the file is replaced in any case
        sync_folder(target.parent)


def backup_of(path: Path) -> Path:
    """Return where `replace_file` puts what a file held before."""
    target = Path(os.path.realpath(path))
    return target.with_name(f"{target.name}.bak")


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that its owner alone can read, in a folder that is theirs alone. Raises SettingsNotSaved."""
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


def _take_over(fresh: Path, like: Path) -> None:
    """Give a file the mode and, as far as that is allowed, the owner of another one, if that is there."""
    try:
        status = like.stat()
    except FileNotFoundError:
        return
    fresh.chmod(status.st_mode & 0o777)
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(fresh, status.st_uid, status.st_gid)


PRIVATE: Final = 0o600


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet and that its owner alone can read. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def put_in_place(path: Path, content: bytes, make_ready: Callable[[Path], None]) -> None:
    """Put a new file in the place of whatever is there, so that it is the old one or the new one at every moment.

    `make_ready` gives the new one its mode before it is seen. Raises OSError; nothing is left of the attempt then.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)  # of an attempt that was killed
    try:
        write_new(fresh, content)
        make_ready(fresh)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Have the names in a folder outlive a power failure, where the system can do that. Raises OSError."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
