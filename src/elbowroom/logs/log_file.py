"""The log on disk: lines of JSON, a few files of a few megabytes, readable by their owner alone."""

import io
import logging
import os
import time
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from elbowroom.logs.formats import JsonFormatter

FOLDER: Final = "logs"
NAME: Final = "elbowroom.jsonl"
FILE_BYTES: Final = 5_000_000
OLDER_FILES: Final = 4
TRY_AGAIN_SECONDS: Final = 60.0
log = logging.getLogger(__name__)


class LogFile(RotatingFileHandler):
    """Writes to `path`, and to nothing while that fails: the log says so once, and it is tried again later.

    `pause` is how many seconds later.
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
        """Write a record, unless that has just failed."""
        if time.monotonic() < self._broken_until:
            return
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's own name
        """Leave the file alone for a while."""
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
    """Return where the log of this data folder is."""
    return data_folder / FOLDER / NAME
