"""The files of a database: for one process only, readable by their owner only, what is wrong, and set aside."""

import errno
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock, Timeout

from elbowroom.errors import ElbowroomError, what_failed

log = logging.getLogger(__name__)
LOG: Final = "-wal"
"""What SQLite adds to the name of a database for its log, which a process that closes the database deletes."""
COMPANIONS: Final = ("", LOG, "-shm", "-journal")
"""What SQLite adds to the name of a database for the files that belong to it."""
DOUBT: Final = "-doubt"
"""What elbowroom adds to that name for a file that says why the database is to be checked."""
KEYED: Final = "-secret"
"""What elbowroom adds to that name for the file with its secret."""
SECRET_BYTES: Final = 32
Doubt = Literal["unclean", "suspected"]
"""A process did not close the database, or something in it could not be read."""
FileId = tuple[int, int]
"""The device and the inode of a file, which links and other names of it have in common."""


@dataclass(slots=True)
class HeldFile:
    """A database's file that this process holds open, with the system's lock on it, for so many users.

    It is closed after all connections to it: closing any descriptor of a file ends SQLite's own locks on it.
    """

    id: FileId | None
    descriptor: int
    users: int = 0

    def head(self, count: int) -> bytes:
        """Return the first bytes of the file."""
        return os.pread(self.descriptor, count, 0) if hasattr(os, "pread") else b""

    def release(self) -> None:
        """Give it back; the last user's ends the lock."""
        self.users -= 1
        if not self.users:
            HELD.pop(self.id, None)
            os.close(self.descriptor)


HELD: Final[dict[FileId | None, HeldFile]] = {}
"""The files that this process holds."""


class FileTaken(OSError):
    """Another process holds a database's file."""


def hold(path: Path) -> HeldFile | None:
    """Hold a database's file itself, by whatever name others know it; None where the system has no such locks.

    Raises FileTaken where another process has it, and other OSErrors where it cannot be opened.
    """
    if sys.platform == "win32":
        return None
    import fcntl

    if (mine := HELD.get(id_of(path))) is None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise FileTaken(f"another process has {path} open") from None
        except OSError as error:  # a file system without such locks
            log.debug("%s cannot be locked itself: %s", path, error)
        mine = HeldFile(id_of(descriptor), descriptor)
        HELD[mine.id] = mine
    mine.users += 1
    return mine


def id_of(file: Path | int) -> FileId | None:
    """Return which file is at a path, or is open; None where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def only_process(database: Path | None) -> Iterator[None]:
    """Hold the database's lock; the system frees it however the process ends. A database in memory needs none.

    It is on the file itself, so that links to it are no way around it, and on one beside it, which every system has.

    Where no lock can be had at all, as in a folder that nobody may write, the log says so and all goes on without.
    Raises ElbowroomError where another process holds it.
    """
    if database is None:
        yield
        return
    lock, held = _lock_beside(database), None
    try:
        prepare_file(database)
        lock.acquire(blocking=False)
        held = hold(database)
    except (Timeout, FileTaken):
        lock.release()
        raise ElbowroomError(_taken(database)) from None
    except OSError as error:
        log.warning(
            "%s cannot be locked (%s): make sure that no second elbowroom uses it.", database, what_failed(error)
        )
    try:
        yield
    finally:
        if held is not None:
            held.release()
        lock.release()


def is_in_use(database: Path) -> bool:
    """Tell whether a server holds the database's lock. For threads."""
    if database.exists() and _is_held(database):
        return True
    lock = _lock_beside(database)
    if not Path(lock.lock_file).exists():
        return False
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def _is_held(database: Path) -> bool:
    if id_of(database) in HELD:
        return True
    try:
        held = hold(database)
    except FileTaken:
        return True
    except OSError:
        return False
    if held is not None:
        held.release()
    return False


def prepare_file(path: Path) -> None:
    """Make the folder (0700) and an empty file (0600) where there are none; existing ones keep their rights.

    Raises OSError.
    """
    _make_folder(path)
    # A file that is there is not even opened: closing it again would undo SQLite's own locks on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def secret_beside(path: Path | None) -> bytes:
    """Return the secret that is kept beside a database, made where there is none; a new one where none can be kept."""
    secret = secrets.token_bytes(SECRET_BYTES)
    if path is None:
        return secret
    try:
        if kept := found_secret(path):
            return kept
        keep_secret(path, secret)
    except OSError as error:
        place = _place_of_secret(path)
        log.warning("%s cannot be kept (%s): after a restart clients' compactions are not known.", place, error)
    return secret


def found_secret(path: Path) -> bytes | None:
    """Return the secret that is kept beside a database, None for none; a part of a secret is none. Raises OSError."""
    place = _place_of_secret(path)
    return kept if place.exists() and len(kept := place.read_bytes()) == SECRET_BYTES else None


def keep_secret(path: Path, secret: bytes) -> None:
    """Keep a secret beside a database, for its owner only, in place of the one that is there. Raises OSError."""
    _make_folder(path)
    place = _place_of_secret(path)
    place.unlink(missing_ok=True)
    with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)


def may_be_written(path: Path) -> bool:
    """Tell whether this process has the right to write a file that is there, and its folder."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def has_log(path: Path) -> bool:
    """Tell whether a log is left beside a database: it is open, or was not closed."""
    try:
        return path.with_name(path.name + LOG).stat().st_size > 0
    except OSError:
        return False


def doubt_about(path: Path) -> Doubt | None:
    """Return why a database is to be checked; None where that is not noted."""
    try:
        noted = path.with_name(path.name + DOUBT).read_bytes()
    except OSError:
        return None
    return "suspected" if noted == b"suspected" else "unclean"


def note_doubt(path: Path, doubt: Doubt) -> None:
    """Note why a database is to be checked; where nothing can be written, that is not noted."""
    with suppress(OSError):
        path.with_name(path.name + DOUBT).write_text(doubt, "ascii")


def forget_doubt(path: Path) -> None:
    """Note that a database need not be checked any more."""
    with suppress(OSError):
        path.with_name(path.name + DOUBT).unlink(missing_ok=True)


def set_aside(path: Path, now: datetime) -> Path:
    """Rename a database and the files that belong to it; return its new name, which carries the date.

    Raises OSError, on Windows also while a program has the file open.
    """
    aside = _free_name(path, f"{path.name}.damaged-{now:%Y-%m-%d-%H%M%S}")
    for companion in reversed(COMPANIONS):
        if (old := path.with_name(path.name + companion)).exists():
            old.rename(aside.with_name(aside.name + companion))
    forget_doubt(path)
    return aside


def _place_of_secret(path: Path) -> Path:
    return path.with_name(path.name + KEYED)


def _lock_beside(database: Path) -> FileLock:
    return FileLock(database.with_name(f"{database.name}.lock"), mode=0o600, fallback_to_soft=False)


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:  # as a file
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error


def _free_name(path: Path, name: str) -> Path:
    candidate, number = path.with_name(name), 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{name}-{number}")
    return candidate


def _taken(database: Path) -> str:
    return (
        f"Another elbowroom is running with the data folder {database.parent} and has its database {database.name} "
        "open. Use that one or stop it, or give this one a folder of its own: add --data-dir FOLDER to the command, or "
        "set the environment variable ELBOWROOM_DATA_DIR, or store.url in the settings."
    )
