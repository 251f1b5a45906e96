"""What was changed in a vault, with what was there before, so that it can be undone. Files in the data folder."""

import json
import os
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from elbowroom.settings.durable_files import sync_folder, write_new
from elbowroom.vault.errors import VaultError

MOST_ENTRIES: Final = 200
MOST_BYTES: Final = 256 << 20
"""The room that the changes of one vault may take on disk; the newest one is kept whatever it takes."""


@dataclass(frozen=True, slots=True)
class Written:
    """A note was written at a path; `before` is None where there was none. `after` is the version it got."""

    path: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Relocated:
    """A note was moved; its content has this version."""

    path: str
    to: str
    version: str


Step = Written | Relocated


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of an agent, in words and in steps, which were made in this order."""

    id: str
    agent: str
    what: str
    when: float
    steps: tuple[Step, ...]


class Journal:
    """The last changes of one vault. `lock` is held by whoever changes it."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self.lock = threading.RLock()

    def begin(self, agent: str, what: str, steps: Sequence[Step]) -> Entry:
        """Note down what is about to be done. Raises VaultError where that cannot be written: then nothing is done."""
        entry = Entry(f"{time.time_ns():020d}-{secrets.token_hex(4)}", agent, what, time.time(), tuple(steps))
        try:
            self._write(entry)
        except OSError as error:
            raise VaultError(
                f"Nothing was changed: what would be needed to undo it cannot be kept in {self._folder} "
                f"({error.strerror or error}). Tell the user."
            ) from error
        self._remove_old()
        return entry

    def forget(self, entry: Entry) -> None:
        """Remove an entry: it was undone, or what it was about did not happen."""
        self._remove(f"{entry.id}.json")

    def last(self, agent: str) -> Entry | None:
        """Return the newest change of an agent."""
        for name in reversed(self._names()):
            entry = self._read(name)
            if entry is not None and entry.agent == agent:
                return entry
        return None

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._folder) if name.endswith(".json"))
        except OSError:
            return []

    def _read(self, name: str) -> Entry | None:
        try:
            data = json.loads((self._folder / name).read_text(encoding="ascii"))
            return Entry(**{**data, "steps": tuple(_step(row) for row in data["steps"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, entry: Entry) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, temporary = self._folder / f"{entry.id}.json", self._folder / f"{entry.id}.new"
        # ASCII, since what a note held may be no UTF-8: its odd bytes are escaped.
        data = json.dumps(asdict(entry), ensure_ascii=True).encode("ascii")
        write_new(temporary, data)
        temporary.replace(path)
        sync_folder(self._folder)  # so that what is needed to undo is there before what is to be undone

    def _remove_old(self) -> None:
        size = 0
        for number, name in enumerate(reversed(self._names())):
            with suppress(OSError):
                size += (self._folder / name).stat().st_size
            if number and (number >= MOST_ENTRIES or size > self._most_bytes):
                self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()


def _step(row: dict[str, Any]) -> Step:
    return Relocated(**row) if "to" in row else Written(**row)
