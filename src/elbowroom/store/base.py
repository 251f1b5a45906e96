"""What all parts of the store share: errors, limits, keys of owners, JSON, and tasks that nobody cancels."""

import asyncio
import hashlib
import json
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from elbowroom.context.outputs import utf8
from elbowroom.settings.model import StoreSettings

UNKNOWN: Final = "the log of the server says why"
SCHEMA_VERSION: Final = 6
"""Rises with every change of the tables; a file with a higher one was written by a newer elbowroom."""
VERSION_TABLE: Final = "schema_version"
KEY_BYTES: Final = 16
SECONDS_A_DAY: Final = 86_400.0
BYTES_A_GIGABYTE: Final = 10**9
GIGABYTES_IN_MEMORY: Final = 256 * 2**20 / BYTES_A_GIGABYTE
Result = TypeVar("Result")


class StoreUnavailable(Exception):
    """The store cannot be read or written now; the message says why. Chats go on without it.

    `plainly` says why to a person in a chat, without paths and in the words of no database.
    """

    def __init__(self, message: str, plainly: str = UNKNOWN) -> None:
        super().__init__(message)
        self.plainly = plainly


class StoreDamaged(StoreUnavailable):
    """The file exists but is no sound database any more."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "its file is damaged")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept, and for how long.

    What nobody used for `retention_days` is deleted, with 0 never; `max_gb` is the size of everything. Of a database
    `in_memory` the oldest is deleted soon, also where something else refers to it.
    """

    retention_days: int = 0
    max_gb: float = float("inf")
    in_memory: bool = False

    @classmethod
    def of(cls, settings: StoreSettings) -> "Limits":
        """Return the limits that the settings name."""
        return cls(settings.retention_days, settings.max_gb)

    @property
    def most_bytes(self) -> float:
        """Return how many bytes may be kept."""
        return self.max_gb * BYTES_A_GIGABYTE

    @property
    def again_seconds(self) -> float:
        """Return after how many seconds the limits are applied again at the earliest."""
        return 10.0 if self.in_memory else 600.0

    @property
    def touch_seconds(self) -> float:
        """Return after how many seconds a further use of the same thing is written down again."""
        return 1.0 if self.in_memory else 3600.0

    @property
    def safe_seconds(self) -> float:
        """Return for how many seconds after its last use a conversation stays whatever the limits."""
        return 60.0 if self.in_memory else 3600.0

    @property
    def late_seconds(self) -> float:
        """Return how late at most a use of a tool's output is written down, for which it stays longer."""
        return 0.0 if self.in_memory else self.touch_seconds

    def oldest(self, now: float) -> float:
        """Return the time since which something has to have been used to stay."""
        return now - self.retention_days * SECONDS_A_DAY if self.retention_days else float("-inf")


LIMITS_IN_MEMORY: Final = Limits(max_gb=GIGABYTES_IN_MEMORY, in_memory=True)


class TrackedTasks:
    """Tasks that nobody cancels; `finished` waits for all of them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin the work. Its error reaches only callers that await the task."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work and return its result; the work goes on when the caller is cancelled."""
        return await asyncio.shield(self.start(work))

    async def finished(self, within: float | None = None) -> bool:
        """Wait until nothing is under way, for so many seconds at most; tell whether that is so."""
        while self._running:
            _, pending = await asyncio.wait(self._running, timeout=within)
            if pending:
                return False
        return True

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it as lost


def owner_key(owner: str) -> str:
    """Return a hash of an owner: an owner may be any text, also one that no database takes."""
    return hashlib.blake2b(utf8(owner), digest_size=KEY_BYTES).hexdigest()


def encoded(value: Any) -> str:
    """Return messages or a text as JSON in plain ASCII, in which lone surrogates, NUL and NaN survive any database.

    Raises TypeError, ValueError or RecursionError for values that JSON cannot hold.
    """
    return json.dumps(value, separators=(",", ":"), default=_plain)


def decoded_text(text: str) -> str:
    """Return a text that was written as JSON; a text that another program has written is taken as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _plain(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a message holds a {type(value).__name__}, which is not JSON")
