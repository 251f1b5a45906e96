"""What all parts of the store share: errors, limits, the servers that use it, a watched clock, JSON, tracked tasks."""

import asyncio
import hashlib
import importlib
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, Final, Self, TypeVar

from elbowroom.caches import importing
from elbowroom.context.outputs import utf8
from elbowroom.context.reuse import ReadPrompt
from elbowroom.settings.model import StoreSettings

log = logging.getLogger(__name__)
UNKNOWN: Final = "the log of the server says why"
SCHEMA_VERSION: Final = 14
"""Rises with every change of the tables; a file with a higher one was written by a newer elbowroom."""
VERSION_TABLE: Final = "schema_version"
UNFINISHED: Final = "a copy into it has not come to its end; run the same `elbowroom store copy` again"
"""What to tell of tables whose version is negative."""
KEY_BYTES: Final = 16
SECONDS_A_DAY: Final = 86_400.0
BYTES_A_GIGABYTE: Final = 10**9
BYTES_IN_MEMORY: Final = 256 * 2**20
"""How much there is of everything in a database in memory, and of outputs of tools that are not written."""
HOUR: Final = 3600.0
JUMP_SECONDS: Final = HOUR
"""From here on a clock has jumped, and not only been put right."""
DRIFT_SECONDS: Final = 1.0
"""A clock that is put right by less than this counts as untouched."""
ANSWERED_SECONDS: Final = 5.0
"""How long a server that is asked may take, as a rule."""
Operation = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers what another server asks: both are JSON objects."""
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


class StoreBusy(StoreUnavailable):
    """Somebody else has held what a change needs for too long; the store works all the same."""


SOLE: Final = "alone: "
HELD_LEASE: Final[ContextVar[int | None]] = ContextVar("held_lease", default=None)
"""The number of the lease by which this task does something alone; what it writes names it."""


@dataclass(frozen=True, slots=True)
class WindowShare:
    """Tokens of the window of a model, which all servers share that use it; `rank` 0 goes first.

    What one server does alone is the only token of a pool of its own: who was taken for dead has lost it for good.
    """

    pool: str
    capacity: int
    tokens: int
    rank: int

    @classmethod
    def sole(cls, name: str) -> Self:
        """Return the right to do alone what has this name."""
        return cls(f"{SOLE}{name}", capacity=1, tokens=1, rank=0)

    @property
    def is_sole(self) -> bool:
        """Tell whether it is the right to do something alone."""
        return self.pool.startswith(SOLE)


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as the database has to have it; `number` is None where it has none yet."""

    number: int | None
    share: WindowShare
    is_granted: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept, and for how long.

    What nobody used for `retention_days` is deleted, with 0 never; `max_gb` is the size of everything. Of a database
    `in_memory` the oldest is deleted soon, also where something else refers to it.

    They are applied again after `again_seconds` at the earliest, a further use of the same thing is written down after
    `touch_seconds`, and a conversation stays `safe_seconds` after its last use whatever the limits; `late_seconds` is
    how late at most a use of a tool's output is written down, for which it stays longer.
    """

    retention_days: int = 0
    max_gb: float = float("inf")
    in_memory: bool = False
    again_seconds: float = 600.0
    touch_seconds: float = HOUR
    safe_seconds: float = HOUR
    late_seconds: float = HOUR

    @classmethod
    def of(cls, settings: StoreSettings) -> "Limits":
        """Return the limits that the settings name."""
        return cls(settings.retention_days, settings.max_gb)

    @property
    def most_bytes(self) -> float:
        """Return how many bytes may be kept."""
        return self.max_gb * BYTES_A_GIGABYTE

    def oldest(self, now: float) -> float:
        """Return the time since which something has to have been used to stay."""
        return now - self.retention_days * SECONDS_A_DAY if self.retention_days else float("-inf")


LIMITS_IN_MEMORY: Final = Limits(
    max_gb=BYTES_IN_MEMORY / BYTES_A_GIGABYTE,
    in_memory=True,
    again_seconds=10.0,
    touch_seconds=1.0,
    safe_seconds=60.0,
    late_seconds=0.0,
)


passed: Callable[[], float] = time.monotonic
"""Returns the seconds of a clock that nobody can set, and which goes on while the machine sleeps, if it can."""
if sys.platform == "linux":
    passed = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
elif sys.platform == "darwin":
    passed = partial(time.clock_gettime, time.CLOCK_MONOTONIC)


class WindowTokens:
    """Tokens of a model's window that a request holds beside the other servers; where there are none, it has all."""

    def covers(self, tokens: int) -> bool:
        """Tell whether so many tokens are held; more are asked for in the background, some before they are needed."""
        return True

    def release(self) -> None:
        """Give everything back; a second time does nothing."""


ALL_TOKENS: Final = WindowTokens()


class Servers:
    """The servers that share a store, as this one sees them; `id` is which of them it is, empty for the only one.

    Nothing here raises. A server that is alone is asked the same as one of several, and answers at once.
    """

    id: str = ""
    may_remember: ClassVar[bool] = True
    """Whether what this server knows of the store is all that is in it, since nobody else writes there."""

    @property
    def counts_for(self) -> float:
        """Return for how many seconds more the others count this server as there; 0 where it has not said so."""
        return 0.0

    def start(self, sql: Any) -> None:
        """Begin to listen to the others, now that the database `sql` is open; once."""

    def offer(
        self,
        operations: Mapping[str, Operation],
        *,
        drain: Callable[[], Awaitable[None]] | None = None,
        lapse: Callable[[], object] | None = None,
        waking: Callable[[float], object] | None = None,
        busy: Callable[[], object] | None = None,
    ) -> None:
        """Answer what others ask of this server by these operations.

        `drain` is called whenever one of them wakes it, and at least once a second, and `lapse` when others may have
        taken it for dead for a while; `waking` with the seconds for which the whole process had stood still then.
        While it is `busy`, it looks more often for what it is asked.
        """

    async def in_step(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do what nobody needs but for the others: read what they have written, or let them read what this one has."""

    async def answering(self, conversation: str) -> list[str]:
        """Return the other servers that answer a conversation now."""
        return []

    async def answered(self, conversations: Sequence[str]) -> set[str]:
        """Return those of the conversations that other servers answer now."""
        return set()

    async def writer(self, turn: str) -> str | None:
        """Return the other server that writes a turn now; None for none."""
        return None

    async def others(self) -> list[str]:
        """Return the other servers that are there."""
        return []

    async def ask_all(
        self, servers: Sequence[str], operation: str, given: Mapping[str, Any], seconds: float = ANSWERED_SECONDS
    ) -> list[Mapping[str, Any]]:
        """Ask several servers at once, and return what those answer that do."""
        return []

    async def ask_any(
        self, servers: Sequence[str], operation: str, given: Mapping[str, Any], seconds: float = ANSWERED_SECONDS
    ) -> Mapping[str, Any]:
        """Ask several servers at once, and return the first answer that tells anything; nothing where none does."""
        return {}

    async def hold(
        self, pool: str, capacity: int, tokens: int, rank: int, look: Callable[[float], Awaitable[None]]
    ) -> WindowTokens:
        """Hold tokens of the window of a model as soon as there is room for them beside all other servers.

        First come first served over all servers, but a lower `rank` goes before. `look` is awaited every second with
        the seconds waited, and may raise. Where the database does not tell, each server goes by its own requests.
        """
        return ALL_TOKENS

    def note_read(self, conversation: str, prompt: ReadPrompt) -> None:
        """Let the others know which model has read the last prompt of a conversation."""

    async def last_read(self, conversation: str) -> ReadPrompt | None:
        """Return the last prompt of a conversation that any server had read; None where that is not known."""
        return None

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """Hold the right to do something beside all other servers; give whether another one had it first.

        Where the database fails, nobody is waited for.
        """
        yield False

    async def aclose(self) -> None:
        """Say that this server ends."""


ALONE: Final = Servers()


def retrieved(ended: asyncio.Future[Any]) -> None:
    """Retrieve an error, so that asyncio does not report it as lost where nobody waits for it any more."""
    if not ended.cancelled():
        ended.exception()


class TrackedTasks:
    """Tasks that nobody cancels; `finished` waits for all of them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin the work. Its error reaches only callers that await the task."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(retrieved)
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


@cache
def sql_module() -> Any:
    """Load `elbowroom.store.sql` and with it SQLAlchemy, which takes a thread a third of a second; return it."""
    with importing():
        return importlib.import_module("elbowroom.store.sql")


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


class WatchedClock:
    """The time of day in Unix seconds, watched by a clock that nobody can set; called now and then, it notes jumps."""

    def __init__(self, time_of_day: Callable[[], float] = time.time, running: Callable[[], float] = passed) -> None:
        self._time_of_day = time_of_day
        self._running = running
        now = running()
        self._steady_since = now
        self._has_jumped = False
        self._ahead = [(now, time_of_day() - now)]
        """Since when the time of day was so far ahead of the other clock: as it is, and as it was in the last hour."""

    def __call__(self) -> float:
        """Return the time of day."""
        now, running = self._time_of_day(), self._running()
        ahead, (_, before) = now - running, self._ahead[-1]
        if abs(ahead - before) >= JUMP_SECONDS:
            self._has_jumped, self._steady_since = True, running
        if abs(ahead - before) >= DRIFT_SECONDS:
            self._ahead.append((running, ahead))
        while len(self._ahead) > 1 and self._ahead[1][0] <= running - HOUR:
            del self._ahead[0]
        return now

    @property
    def has_jumped_today(self) -> bool:
        """Tell whether the clock jumped within the last day of running."""
        self()
        return self._has_jumped and not self.is_steady

    @property
    def is_steady(self) -> bool:
        """Tell whether the process has run for a day since it started, and since the clock jumped."""
        self()
        return self._running() - self._steady_since >= SECONDS_A_DAY

    def before(self, seconds: float) -> float:
        """Return a time of day before all that was used within so many seconds of running, of an hour at most."""
        self()
        return min(ahead for _, ahead in self._ahead) + self._running() - seconds


class Share:
    """How much of all there is has been deleted at once: from a tenth on the log says why."""

    def __init__(self, plural: str, total: int, limits: Limits) -> None:
        self._plural = plural
        self._total = total
        self._limits = limits
        self._gone = 0
        self._is_told = False

    def goes(self, count: int = 1) -> None:
        """Count what is about to be deleted."""
        self._gone += count
        if not self._is_told and self._gone * 10 > self._total > 0 and not self._limits.in_memory:
            self._is_told = True
            log.info(
                "More than a tenth of %d %s is deleted now: nobody came back to them for store.retention_days = %d, "
                "or they were used longest ago and all takes more than store.max_gb = %g.",
                self._total,
                self._plural,
                self._limits.retention_days,
                self._limits.max_gb,
            )
