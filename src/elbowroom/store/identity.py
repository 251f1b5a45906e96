"""Which file a database is: by device and inode while it is open, and by a mark beside it after a crash.

Names lie: a file that was deleted is written on without a word, and a log that is left beside a copy from a back-up has
its changes put into a file that they do not belong to, which loses what both of them have.
"""

import json
import logging
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elbowroom.store.base import StoreUnavailable
from elbowroom.store.lock import COMPANIONS, LOG, FileTaken, HeldFile, has_log, hold, id_of

log = logging.getLogger(__name__)
MARK: Final = "-mark"
"""What elbowroom adds to a database's name for the file that says which database its log belongs to."""
ID: Final = slice(68, 72)
"""Where SQLite keeps the `application_id` in the first page of a file, which elbowroom draws anew at each opening."""
COUNTER: Final = slice(24, 28)
"""Where SQLite keeps a number that rises with the changes that have come from the log into the file."""
SALTS: Final = slice(16, 24)
"""Where a log has the numbers that SQLite draws whenever it begins it anew."""
HEAD_BYTES: Final = 100
NUMBERS: Final = 2**32
REPLACED: Final = "its file was deleted, moved or replaced while elbowroom was running"
HELD_ELSEWHERE: Final = "another elbowroom has its file open"
FOREIGN: Final = (
    "{path} is not the file that {log} beside it belongs to: another one, as from a back-up, was put in its place, or "
    "it was deleted, and the log of the old one was left. Together they would lose what each of them has. To use the "
    "file as it is now, move {log} and {name}-shm away; to keep what the log has, put the old file back. Elbowroom "
    "goes on by itself then"
)
FOREIGN_PLAINLY: Final = (
    "its file is not the one that the log beside it belongs to; elbowroom's own log says what to do"
)


class StoreReplaced(StoreUnavailable):
    """Another file, or none, is where the database was that is open."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: {REPLACED}", REPLACED)


class ForeignLog(StoreUnavailable):
    """A log is beside a file that it does not belong to; nothing was changed."""

    def __init__(self, path: Path) -> None:
        super().__init__(FOREIGN.format(path=path, log=f"{path.name}{LOG}", name=path.name), FOREIGN_PLAINLY)


@dataclass(frozen=True, slots=True)
class Mark:
    """What is noted beside a database: the ids that its file may have, and how far it was when its log was begun.

    The log is known by its `salts`, which are empty where none was begun.
    """

    ids: tuple[str, ...]
    salts: str = ""
    counter: int = 0


class OwnFile:
    """The file of a database that this process has opened; the threads of the database alone use it.

    Where the system has no locks on files, nothing is known of it, and it counts as the same for ever.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock on the file. Raises StoreUnavailable where another process has it, and ForeignLog."""
        self._path = path
        self._held: HeldFile | None
        self._mark: Mark | None = None
        try:
            self._held = hold(path)
        except FileTaken as error:
            raise StoreUnavailable(str(error), HELD_ELSEWHERE) from error
        try:
            self._check_log()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back; for after the last connection is closed."""
        if self._held is not None:
            self._held.release()
            self._held = None
        if self._mark is not None and not has_log(self._path):
            with suppress(OSError):
                self._path.with_name(self._path.name + MARK).unlink(missing_ok=True)

    @property
    def is_there(self) -> bool:
        """Tell whether it still is where it was."""
        return self._held is None or id_of(self._path) == self._held.id

    def mark_soon(self) -> int | None:
        """Return the id that its first page is to have from now on; None where none can be told apart."""
        if self._held is None:
            return None
        drawn = secrets.randbelow(NUMBERS // 2 - 1) + 1
        self._note(Mark((self._head[ID].hex(), f"{drawn:08x}")))
        return drawn

    def marked(self, drawn: int) -> None:
        """Note that it has this id, or soon will: until its log is in it, the one from before counts too."""
        self._note(Mark(tuple({self._head[ID].hex(), f"{drawn:08x}"})))

    def note_log(self) -> None:
        """Note how far the file is where its log was begun anew."""
        if self._mark is not None and (salts := _salts_beside(self._path)) and salts != self._mark.salts:
            self._note(Mark(self._mark.ids, salts, _counter_in(self._head)))

    def leave(self) -> None:
        """Delete what is left beside the place where it was, which belongs to no file any more. Raises OSError."""
        for companion in (*filter(None, COMPANIONS), MARK):
            self._path.with_name(self._path.name + companion).unlink(missing_ok=True)
        self._mark = None

    @property
    def _head(self) -> bytes:
        return self._held.head(HEAD_BYTES) if self._held is not None else b""

    def _check_log(self) -> None:
        """Raise ForeignLog where a log is left beside it that belongs to another file."""
        if self._held is None or not has_log(self._path):
            return
        head, mark = self._head, _mark_beside(self._path)
        if not head:
            raise ForeignLog(self._path)
        if mark is None:
            return
        behind = (mark.counter - _counter_in(head)) % NUMBERS
        is_older = _salts_beside(self._path) == mark.salts and 0 < behind < NUMBERS // 2
        if head[ID].hex() not in mark.ids or is_older:
            raise ForeignLog(self._path)

    def _note(self, mark: Mark) -> None:
        """Note it on the disk; where nothing can be written, there is no mark and nothing is refused for it."""
        place = self._path.with_name(self._path.name + MARK)
        new = place.with_name(f"{place.name}.new")
        text = json.dumps({"ids": list(mark.ids), "salts": mark.salts, "counter": mark.counter})
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(place)
        except OSError as error:
            log.debug("%s cannot be written: %s", place, error)
            with suppress(OSError):  # one that is out of date would refuse a sound file
                place.unlink(missing_ok=True)
        self._mark = mark


def _mark_beside(path: Path) -> Mark | None:
    try:
        noted = json.loads(path.with_name(path.name + MARK).read_bytes())
        return Mark(tuple(noted["ids"]), noted["salts"], noted["counter"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _counter_in(head: bytes) -> int:
    return int.from_bytes(head[COUNTER], "big")


def _salts_beside(path: Path) -> str:
    try:
        with path.with_name(path.name + LOG).open("rb") as file:
            return file.read(HEAD_BYTES)[SALTS].hex()
    except OSError:
        return ""
