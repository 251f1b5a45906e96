"""One server for each database: it belongs to the process that holds the lock beside its file."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from elbowroom.errors import ElbowroomError
from elbowroom.store.database_file import make_folder

log = logging.getLogger(__name__)


@contextmanager
def only_process(database: Path | None) -> Iterator[None]:
    """Hold the database's lock; the system frees it however the process ends. What is in memory needs none.

    Where no lock can be had at all, as in a folder that nobody may write, the log says so and all goes on without.
    Raises ElbowroomError where another process holds it.
    """
    if database is None:
        yield
        return
    lock = FileLock(database.with_name(f"{database.name}.lock"), mode=0o600, fallback_to_soft=False)
    try:
        make_folder(database)
        lock.acquire(blocking=False)
    except Timeout:
        raise ElbowroomError(_taken(database)) from None
    except OSError as error:
        log.warning("%s cannot be locked (%s): make sure that no second elbowroom uses it.", database, error)
    try:
        yield
    finally:
        lock.release()


def _taken(database: Path) -> str:
    return (
        f"Another elbowroom is running with the data folder {database.parent} and has its database {database.name} "
        "open. Use that one or stop it, or give this one a folder of its own: set the environment variable "
        "ELBOWROOM_DATA_DIR, or store.url in the settings."
    )
