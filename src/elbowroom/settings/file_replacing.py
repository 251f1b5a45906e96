"""Replaces a file so that it is the old one or the new one at every moment, whatever is killed or fails."""

import contextlib
import errno
import os
from functools import partial
from pathlib import Path
from typing import Final

from elbowroom.errors import SettingsNotSaved
from elbowroom.settings.durable_files import put_in_place, sync_folder, write_new

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
