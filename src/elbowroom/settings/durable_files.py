"""Writes files that are whole whatever is killed, and on disk when the writing returns."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

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
