"""Writes the log file, lines of JSON in a few files of a few megabytes, and reads its last lines."""

import io
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from elbowroom.logs.formats import JsonFormatter
from elbowroom.logs.redaction import Redactor

FOLDER: Final = "logs"
NAME: Final = "elbowroom.jsonl"
FILE_BYTES: Final = 5_000_000
OLDER_FILES: Final = 4
TRY_AGAIN_SECONDS: Final = 60.0
log = logging.getLogger(__name__)
BLOCK_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 4 * 1024 * 1024
"""The most bytes that are read for the last lines."""


class LogFile(RotatingFileHandler):
    """Writes records to `path`, readable by its owner alone; after a failure it pauses for `pause` seconds.

    The first failure is logged for the other handlers.
    """

    def __init__(
        self,
        path: Path,
        *,
        file_bytes: int = FILE_BYTES,
        older_files: int = OLDER_FILES,
        pause: float = TRY_AGAIN_SECONDS,
    ) -> None:
        super().__init__(
            path, maxBytes=file_bytes, backupCount=older_files, encoding="utf-8", delay=True, errors="backslashreplace"
        )
        self.setFormatter(JsonFormatter())
        self._path = path
        self._pause = pause
        self._broken_until = 0.0
        self._was_told = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, except during a pause."""
        if time.monotonic() < self._broken_until:
            return
        try:
            line = self.format(record) + self.terminator
            if self._size() + len(line) >= self.maxBytes:
                self.doRollover()
            self.stream = self.stream or self._open()
            self.stream.write(line)
            self.stream.flush()
        except Exception:  # noqa: BLE001  # as logging does: a record that cannot be written stops nothing
            self.handleError(record)

    def _size(self) -> int:
        """Return the bytes of the file, which is opened where it is not."""
        self.stream = self.stream or self._open()
        return os.fstat(self.stream.fileno()).st_size

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's own name
        """Close the file and begin a pause."""
        self._broken_until = time.monotonic() + self._pause
        with suppress(OSError, ValueError):  # what could not be written cannot always be closed
            if self.stream is not None:
                self.stream.close()
        self.stream = None  # opened anew at the next attempt
        if not self._was_told:
            self._was_told = True
            log.warning("The log file %s cannot be written; elbowroom goes on without it.", self._path)

    def _open(self) -> io.TextIOWrapper:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        raw = io.BufferedWriter(io.FileIO(descriptor, "a"))
        return io.TextIOWrapper(raw, encoding=self.encoding, errors=self.errors)


def log_path(data_folder: Path) -> Path:
    """Return the log file of a data folder."""
    return data_folder / FOLDER / NAME


def last_lines(path: Path, count: int, redactor: Redactor) -> list[dict[str, Any]]:
    """Return at most `count` of the last lines, the newest last; blocking, for threads.

    Broken lines are left out. Secrets that became known after a line was written are removed from it.
    """
    found: list[dict[str, Any]] = []
    for raw in _backwards(path):
        if len(found) == count:
            break
        line = _parsed(raw)
        if line is not None:
            found.append(_cleaned(line, redactor))
    return found[::-1]


def _cleaned(value: Any, redactor: Redactor) -> Any:
    match value:
        case str():
            return redactor.clean(value)
        case dict():
            return {key: _cleaned(inner, redactor) for key, inner in value.items()}
        case list():
            return [_cleaned(inner, redactor) for inner in value]
        case _:
            return value


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and {"time", "level", "message"} <= line.keys() else None


def _backwards(path: Path) -> Iterator[bytes]:
    """Yield lines from the last to the first, of this file and of the one before it."""
    left = MOST_BYTES
    for file in (path, path.with_name(f"{path.name}.1")):
        for line in _lines_of(file, left):
            left -= len(line) + 1
            yield line


def _lines_of(path: Path, most: int) -> Iterator[bytes]:
    with suppress(OSError), open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        least = max(0, end - most)
        rest = b""
        while end > least:
            start = max(least, end - BLOCK_BYTES)
            file.seek(start)
            lines = (file.read(end - start) + rest).split(b"\n")
            rest, end = lines[0], start
            yield from (line for line in reversed(lines[1:]) if line)
        if rest and least == 0:
            yield rest
