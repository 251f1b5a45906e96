"""The last lines of the log file, read from its end."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from elbowroom.logs.redaction import Redactor

BLOCK_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 4 * 1024 * 1024
"""How far back is read at most, over all files."""


def last_lines(path: Path, count: int, redactor: Redactor) -> list[dict[str, Any]]:
    """Return the last lines, the newest last, at most `count`; lines that are none are left out. For threads.

    What was written before a secret was known is cleaned of it now. Where there is no log, there are no lines.
    """
    found: list[dict[str, Any]] = []
    for raw in _backwards(path):
        if len(found) == count:
            break
        line = _parsed(redactor.clean(raw.decode("utf-8", "replace")))
        if line is not None:
            found.append(line)
    return found[::-1]


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and {"time", "level", "message"} <= line.keys() else None


def _backwards(path: Path) -> Iterator[bytes]:
    """Yield lines from the last to the first, through the file before this one as well."""
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
