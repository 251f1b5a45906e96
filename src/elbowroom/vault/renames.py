"""Renaming that never loses what another program has put in the place meanwhile, where the system can do that."""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

from elbowroom.vault.folder import Folder

REFUSED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What systems and file systems say that do not know these ways of renaming."""
NO_REPLACE, EXCHANGE = (4, 2) if sys.platform == "darwin" else (1, 2)
CALL: Final = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform, "")

Rename = Callable[[int, bytes, int, bytes, int], int]


def exchange(folder: Folder, first: str, second: str) -> bool:
    """Let two names change places in one step; returns False where that cannot be done. Raises OSError."""
    return _renamed(folder, first, folder, second, EXCHANGE)


def rename_to_free(source: Folder, name: str, target: Folder, new_name: str) -> None:
    """Rename a file; raises FileExistsError where the name is taken, and OSError.

    Where the system has no such call, what comes to have the name in that very moment is replaced.
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
    """Return the system's call, or None where it has none."""
    if not CALL:
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), CALL, None)
    if call is None:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    call.restype = ctypes.c_int
    found: Rename = call
    return found
