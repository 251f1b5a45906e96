"""What a database server has not taken, in a file in the data folder, until it is written: a kill takes none of it.

Each server has a file of its own and holds a lock beside it. What a server that was killed has left there, the next one
writes that has the same folder.
"""

import io
import logging
import os
import pickle
from collections.abc import Collection, Hashable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from filelock import FileLock

log = logging.getLogger(__name__)
NAME: Final = "unwritten-"
LOCK: Final = ".lock"
OWN: Final = "elbowroom."
LENGTH_BYTES: Final = 8


class Unwritten(NamedTuple):
    """Something that waits to be written: its kind, what tells it from others of this kind, and the thing itself."""

    kind: str
    mark: Hashable
    item: object


class LeftFile:
    """The file of a server that has ended; nobody else has it until it is deleted or released."""

    def __init__(self, path: Path, lock: "FileLock") -> None:
        self.server = path.name.removeprefix(NAME)
        self._path = path
        self._lock = lock

    def items(self) -> list[tuple[str, Any]]:
        """Return what is in it in order, with its kind; a part at the end that was cut off is none.

        Where another version has written what this one cannot read, the rest is kept under another name.
        """
        found: list[tuple[str, Any]] = []
        content = self._path.read_bytes()
        begin = LENGTH_BYTES
        while (end := begin + int.from_bytes(content[begin - LENGTH_BYTES : begin], "big")) <= len(content) >= begin:
            try:
                found.append(_OwnTypes(io.BytesIO(content[begin:end])).load())
            except Exception as error:  # noqa: BLE001  # whatever a file of another version holds
                aside = self._path.with_name(f"unreadable-{self._path.name}")
                aside.write_bytes(content)
                log.error("What a server had not written cannot be read (%s); it is kept as %s.", error, aside)  # noqa: TRY400
                break
            begin = end + LENGTH_BYTES
        return found

    def delete(self) -> None:
        """Delete it."""
        _delete(self._path, self._lock)

    def release(self) -> None:
        """Leave it to the next one."""
        self._lock.release()


class UnwrittenFile:
    """The file of one server, made when it is first needed. Its methods block, and raise OSError."""

    def __init__(self, folder: Path, server: str) -> None:
        self.server = server
        self._path = folder / f"{NAME}{server}"
        self._lock = _lock_beside(self._path)
        self._kept: set[tuple[str, Hashable]] = set()

    def keep(self, unwritten: Collection[Unwritten]) -> None:
        """Add what is not in the file yet; the system has it when this returns."""
        new = [each for each in unwritten if (each.kind, each.mark) not in self._kept]
        if not new:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock.acquire(blocking=False)
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            for each in new:
                content = pickle.dumps((each.kind, each.item))
                file.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
        self._kept.update((each.kind, each.mark) for each in new)

    def clear(self) -> None:
        """Delete the file: all that is in it has been written."""
        if self._kept:
            self._kept.clear()
            _delete(self._path, self._lock)

    def left(self) -> list[LeftFile]:
        """Return the files that servers which have ended have left in the same folder, the oldest first."""
        found = [path for path in self._path.parent.glob(f"{NAME}*") if path.suffix != LOCK and path != self._path]
        left = []
        for path in sorted(found, key=lambda path: path.stat().st_mtime):
            lock = _lock_beside(path)
            with suppress(TimeoutError):
                lock.acquire(blocking=False)
                left.append(LeftFile(path, lock))
        return left

    def release(self) -> bool:
        """Leave the file to the next server; tell whether it holds anything."""
        self._lock.release()
        return bool(self._kept)


class _OwnTypes(pickle.Unpickler):
    """Reads dataclasses of this package alone: a file that somebody else has put there runs nothing."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith(OWN) else None
        if not hasattr(found, "__dataclass_fields__"):
            raise pickle.UnpicklingError(f"{module}.{name} is nothing that is kept")
        return found


def _lock_beside(path: Path) -> "FileLock":
    from filelock import FileLock

    return FileLock(path.with_name(f"{path.name}{LOCK}"), mode=0o600, fallback_to_soft=False, thread_local=False)


def _delete(path: Path, lock: "FileLock") -> None:
    path.unlink(missing_ok=True)
    with suppress(OSError):
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()
