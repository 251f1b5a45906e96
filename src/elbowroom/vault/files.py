"""Reads whole files up to a limit, or lines of larger ones, and writes files atomically."""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from elbowroom.vault.folder import BINARY, NEVER_FOLLOW, Folder, exchange, rename_to_free
from elbowroom.vault.names import Moved, Parts, VaultError, path_text

MAX_NOTE_BYTES: Final = 1 << 20
"""The largest file that is read whole, searched and changed; larger ones are read by ranges of lines."""
MAX_FILE_BYTES: Final = 256 << 20
"""The largest file that is read at all."""
CHUNK: Final = 1 << 16
VERSION_LENGTH: Final = 12
NEW_MODE: Final = 0o666
TEMPORARY: Final = ".elbowroom-"


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file when it was read; `mode` are its permissions."""

    parts: Parts
    data: bytes
    mode: int

    @property
    def version(self) -> str:
        """Return the version of the content."""
        return version_of(self.data)

    def text(self) -> str:
        """Return the content as text; raises VaultError if it is no UTF-8 text."""
        return decoded(self.data, self.parts)


def version_of(data: bytes) -> str:
    """Return the version of a content: a checksum of its bytes."""
    return hashlib.sha256(data).hexdigest()[:VERSION_LENGTH]


def decoded(data: bytes, parts: Parts) -> str:
    """Return bytes as text, with a byte order mark; raises VaultError for bytes that are no UTF-8."""
    if b"\0" in data:
        raise VaultError(f"{path_text(parts)} is not text ({len(data)} bytes). Only text can be read here.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise VaultError(
            f"{path_text(parts)} is not UTF-8 text (byte {error.start}). Ask the user to save it as UTF-8."
        ) from None


def read_whole(folder: Folder, name: str) -> Content:
    """Read a file of at most `MAX_NOTE_BYTES`; raises VaultError for a larger one, Closed, and OSError."""
    descriptor = folder.open_file(name)
    try:
        status = os.fstat(descriptor)
        data = read_open(descriptor, status.st_size) if status.st_size <= MAX_NOTE_BYTES else b""
    finally:
        os.close(descriptor)
    if (size := max(status.st_size, len(data))) > MAX_NOTE_BYTES:
        raise VaultError(
            f"{path_text((*folder.parts, name))} is too large to be taken whole ({size:,} bytes). "
            "Read ranges of its lines instead."
        )
    return Content((*folder.parts, name), data, status.st_mode & 0o7777)


def read_open(descriptor: int, size: int) -> bytes:
    """Read an open file of about `size` bytes, at most one byte more than `MAX_NOTE_BYTES`."""
    data = os.read(descriptor, size + 1)
    # Another length: it came in parts, or has grown meanwhile.
    while len(data) != size and (more := os.read(descriptor, max(0, MAX_NOTE_BYTES + 1 - len(data)))):
        data += more
    return data


def file_version(folder: Folder, name: str) -> str:
    """Return the version of a file of up to `MAX_FILE_BYTES`; raises VaultError for a larger one, Closed, OSError."""
    descriptor, found = folder.open_file(name), hashlib.sha256()
    try:
        if (size := os.fstat(descriptor).st_size) > MAX_FILE_BYTES:
            raise VaultError(f"{path_text((*folder.parts, name))} is too large ({size:,} bytes).")
        while chunk := os.read(descriptor, CHUNK):
            found.update(chunk)
    finally:
        os.close(descriptor)
    return found.hexdigest()[:VERSION_LENGTH]


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines of a large file: those asked for, and whether there are more."""

    lines: tuple[bytes, ...]
    has_more: bool
    size: int


def read_lines(folder: Folder, name: str, first: int, count: int, longest: int) -> LineRange:
    """Read `count` lines from number `first` (counted from 1) of a file that is too large to be read whole.

    No more than `longest` bytes of a line are kept. Raises VaultError where it is larger than `MAX_FILE_BYTES`,
    Closed, and OSError.
    """
    descriptor = folder.open_file(name)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        if size > MAX_FILE_BYTES:
            raise VaultError(
                f"{path_text((*folder.parts, name))} is too large to be read ({size:,} bytes). "
                "Ask the user to split it."
            )
        lines: list[bytes] = []
        for number, line in enumerate(_lines(file.fileno(), longest, skip=first - 1), first):
            if number >= first + count:
                return LineRange(tuple(lines), has_more=True, size=size)
            lines.append(line)
    return LineRange(tuple(lines), has_more=False, size=size)


def _lines(descriptor: int, longest: int, skip: int) -> Iterator[bytes]:
    """Yield the lines after the first `skip`, without their ends, each cut at `longest` bytes."""
    line, has_line = b"", False
    while chunk := os.read(descriptor, CHUNK):
        if skip and (inside := chunk.count(b"\n")) < skip:
            skip -= inside
            continue
        while skip:
            chunk = chunk[chunk.index(b"\n") + 1 :]
            skip -= 1
        *whole, rest = chunk.split(b"\n")
        for end in whole:
            yield (line + end)[:longest].removesuffix(b"\r")
            line, has_line = b"", False
        line, has_line = (line + rest)[:longest], has_line or bool(rest)
    if has_line:
        yield line


def replace_file(folder: Folder, name: str, before: bytes, after: bytes, mode: int) -> None:
    """Replace the content of a file atomically, with the same permissions.

    Raises Moved if the file no longer has the content `before`, and OSError.
    """
    temporary = _write_temporary(folder, after, mode)
    try:
        # As late as can be: another program may have written while the new content was made.
        _check_unchanged(folder, name, before)
        if exchange(folder, temporary, name):
            _check_exchanged(folder, temporary, name, before, after)
            _remove(folder, temporary)
        else:
            os.replace(
                folder.place(temporary), folder.place(name), src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor
            )
    except BaseException:
        _remove(folder, temporary)
        raise
    sync_folder(folder)


def _check_unchanged(folder: Folder, name: str, before: bytes) -> None:
    if not _holds(folder, name, before):
        raise Moved(f"{path_text((*folder.parts, name))} was changed by another program. Read it again.")


def _check_exchanged(folder: Folder, temporary: str, name: str, before: bytes, after: bytes) -> None:
    """Raise Moved, and restore the file, if another program wrote it after the last check."""
    if _holds(folder, temporary, before):
        return
    exchange(folder, temporary, name)
    if not _holds(folder, temporary, after):  # and what was written after that is the newest
        os.replace(
            folder.place(temporary), folder.place(name), src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor
        )
    raise Moved(f"{path_text((*folder.parts, name))} was changed by another program. Read it again.")


def _holds(folder: Folder, name: str, data: bytes) -> bool:
    try:
        return read_whole(folder, name).data == data
    except (VaultError, FileNotFoundError):  # a link, too long, gone: not what was there
        return False


def new_file(folder: Folder, name: str, data: bytes, mode: int | None = None) -> None:
    """Create a file; raises VaultError if the name is taken, and OSError."""
    temporary = _write_temporary(folder, data, NEW_MODE & ~_umask(folder) if mode is None else mode)
    try:
        move_file(folder, temporary, folder, name)
    except BaseException:
        _remove(folder, temporary)
        raise


def move_file(source: Folder, name: str, target: Folder, new_name: str) -> None:
    """Move a file to a free name; raises VaultError if the name is taken, and OSError."""
    is_same = source.parts == target.parts and new_name.casefold() == name.casefold()
    if not is_same and (taken := target.name_on_disk(new_name)) is not None:
        raise VaultError(f"There is already {path_text((*target.parts, taken))}.")
    with suppress(FileNotFoundError):
        there = target.status(new_name)
        if not is_same or not os.path.samestat(there, source.status(name)):
            raise VaultError(f"There is already something at {path_text((*target.parts, new_name))}.")
    if is_same:
        os.rename(
            source.place(name), target.place(new_name), src_dir_fd=source.descriptor, dst_dir_fd=target.descriptor
        )
    else:
        _rename_to_free(source, name, target, new_name)
    sync_folder(target)
    if source.parts != target.parts:
        sync_folder(source)


def _rename_to_free(source: Folder, name: str, target: Folder, new_name: str) -> None:
    try:
        rename_to_free(source, name, target, new_name)
    except FileExistsError:
        raise VaultError(f"There is already something at {path_text((*target.parts, new_name))}.") from None


def _write_temporary(folder: Folder, data: bytes, mode: int) -> str:
    if folder.descriptor is None:
        folder.check_place()
    name = f"{TEMPORARY}{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY | NEVER_FOLLOW
    descriptor = os.open(folder.place(name), flags, 0o600, dir_fd=folder.descriptor)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
    except BaseException:
        _remove(folder, name)
        raise
    return name


def _umask(folder: Folder) -> int:
    """Return the permission bits that new files of this folder do not get: those that the folder lacks."""
    status = os.stat(folder.place("."), dir_fd=folder.descriptor)
    return ~status.st_mode & 0o777


def _remove(folder: Folder, name: str) -> None:
    with suppress(OSError):
        os.unlink(folder.place(name), dir_fd=folder.descriptor)


def sync_folder(folder: Folder) -> None:
    """Flush a folder's entries to the disk, where the system can do that."""
    if folder.descriptor is not None:
        with suppress(OSError):
            os.fsync(folder.descriptor)
