"""The tokens of one model's context that all requests share: who holds how many of them, and who waits for some.

Nothing here awaits: every call leaves the pool consistent, so that a request can be cancelled between any two.
"""

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from itertools import count
from math import ceil
from operator import attrgetter
from statistics import median
from typing import ClassVar, Final, Literal, Protocol

from elbowroom.providers.base import ReadingProgress
from elbowroom.store import ALL_TOKENS, WindowTokens

RECENT: Final = 16
USUAL_HOLD: Final = 10.0  # seconds; what a request is taken to need while none has ended
LONGEST_RETRY: Final = 300
DEFAULT_RATE: Final = 200.0
DEFAULT_WRITING: Final = 20.0
LEAST_ANSWER: Final = 16  # a shorter answer tells how long a request takes to end
"""Tokens per second, assumed while nothing is known: those of a small model on a slow laptop's graphics.

On better hardware a request waits some seconds too long, once: the first answer corrects the rate. A processor alone
may be slower: then a prompt that takes longer than expected corrects it.
"""
FASTEST: Final = 2000.0  # a window of 8192 tokens is held for four seconds at least
LEAST_PROMPT: Final = 256  # a shorter prompt tells how long a request takes to begin
SAMPLES: Final = 32
QUANTILE: Final = 10  # one prompt in ten may be slower; of ten or fewer the slowest counts
LONGEST: Final = 300.0  # seconds
STILL_TO_COME: Final = 1.25  # of the time that has passed


PoolKey = tuple[str, str]
"""A provider's id and a model's."""


class Priority(IntEnum):
    """Who goes first. A request on behalf of another that waits, such as a pruning request, ranks as that one."""

    CHAT = 0
    TASK = 1
    BACKGROUND = 2


class Timer(Protocol):
    """A callback that is due at some time."""

    def cancel(self) -> None:
        """Cancel the callback."""


class Clock(Protocol):
    """The part of an event loop that tells the time, in seconds, and calls back at a given time."""

    def time(self) -> float:
        """Return the time now."""

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        """Call back at that time."""


class Ticket:
    """A request's share of a pool; `tokens` are those that it holds, 0 while it waits and after its end.

    `prompt` is the size of its prompt. `admitted` is done as soon as it holds tokens.
    """

    def __init__(self, pool: "Pool", priority: Priority, tokens: int, prompt: int) -> None:
        self.priority = priority
        self.prompt = prompt
        self.wanted = max(0, tokens)
        self.tokens = 0
        self.place = (priority, next(pool.arrivals))
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.started: float | None = None
        self.read_in: float | None = None
        """Seconds from when the request went to the model to the first token of its answer."""
        self.state: Literal["waiting", "held", "lingering", "free"] = "waiting"
        self.timer: Timer | None = None
        self._pool = pool
        self.reads = prompt
        """The tokens of the prompt that the model has to read: all of them, unless it is known to have read some."""
        self.reading: ReadingProgress | None = None
        """How far the model says that it has read."""
        self._is_prefilling = True
        self._is_preempted = False
        self._on_preempt: Callable[[], object] | None = None
        self.lease: WindowTokens = ALL_TOKENS
        self.settled: Callable[[], int] | None = None
        """Counts the tokens that are really needed, where the request holds more in order not to count each time."""

    @property
    def reading_seconds(self) -> float:
        """Return how long the model is expected to read the prompt."""
        return self._pool.rate.seconds_for(self.reads)

    @property
    def reading_left(self) -> float | None:
        """Return in how many seconds the answer should begin, 0 where it is due; None while nobody knows."""
        if self.started is None or not self.is_prefilling:
            return None
        passed = self._pool.clock.time() - self.started
        if self.reading is not None and (speed := self.reading.speed):
            return max(0.0, self.reading.left / speed - (passed - self.reading.seconds))
        return max(0.0, self.reads / self._pool.rate.usual - passed) if self._pool.rate.is_known else None

    @property
    def is_prefilling(self) -> bool:
        """Tell whether the model may be reading the prompt: it was sent and is not being answered."""
        return self._is_prefilling and self.started is not None

    def prepares(self) -> None:
        """Take note that the model does not read yet: something else is done for the request before."""
        self.started = None

    def begins(self) -> None:
        """Take note that the request goes to the model now."""
        self.started = self._pool.clock.time()

    def first_token(self) -> None:
        """Take note that the answer begins; only the first time counts."""
        if self._is_prefilling and self.started is not None:
            self.read_in = self._pool.clock.time() - self.started
            self._pool.rate.learn(self.reads, self.read_in)
        self._is_prefilling = False

    def wrote(self, tokens: int, read: int | None = None) -> None:
        """Take note that the answer has ended, with so many tokens; the model has `read` so many, where it tells."""
        if self.started is None or self.read_in is None:
            return
        self._pool.writing.learn(tokens, self._pool.clock.time() - self.started - self.read_in)
        if read is not None and read != self.reads:
            self._pool.rate.mend(self.reads, read, self.read_in)

    def grow(self, to_tokens: int, *, insists: bool = True) -> bool:
        """Hold this many tokens in all. Return False, and change nothing, where there is no room for them.

        A ticket that grows goes before all that wait. A ticket alone in the pool may always grow, to the whole pool at
        most. With `insists` other tickets give back the tokens that they do not need, and background work in the way
        is asked to end, so that a later try may succeed.
        """
        return self._pool.grow(self, to_tokens, insists=insists)

    def settle(self) -> None:
        """Hold no more than is needed, and no less than it was admitted with."""
        if self.settled is not None and self.state == "held" and self.tokens > self.wanted:
            self.tokens = min(self.tokens, max(self.wanted, self.settled()))

    @property
    def on_preempt(self) -> Callable[[], object] | None:
        """The callback, called once, by which background work is cancelled to make room; it raises nothing."""
        return self._on_preempt

    @on_preempt.setter
    def on_preempt(self, callback: Callable[[], object] | None) -> None:
        self._on_preempt = callback
        if self._is_preempted and self.state == "held" and callback is not None:
            callback()

    def preempt(self) -> None:
        """Ask the holder to leave, now or as soon as it has set `on_preempt`."""
        if self._is_preempted:
            return
        self._is_preempted = True
        if self._on_preempt is not None:
            self._on_preempt()


class Pool:
    """Tokens of one loaded model. `rate` is how fast it reads, `writing` how it writes, `capacity` its window.

    `slots` is how many requests its engine works on at once, None where that is not known. More are never sent: they
    would wait where nobody knows who goes first, and llama.cpp forgets some of those that wait while others are
    cancelled or a slot is saved.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.capacity = 0
        self.slots: int | None = None
        self.rate = PrefillRate()
        self.writing = WritingRate()
        self.arrivals = count()
        self._holders: dict[Ticket, None] = {}
        self._waiting: list[Ticket] = []
        self._recent: deque[float] = deque(maxlen=RECENT)

    @property
    def held(self) -> int:
        """Return how many tokens are not free."""
        return sum(ticket.tokens for ticket in self._holders)

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    @property
    def claimed(self) -> int:
        """Return how many tokens are held or waited for, but for those of background work, which makes way."""
        return sum(max(ticket.tokens, ticket.wanted) for ticket in self._claiming)

    @property
    def claims(self) -> int:
        """Return how many requests hold tokens or wait for some, but for background work."""
        return len(self._claiming)

    @property
    def _claiming(self) -> list[Ticket]:
        return [one for one in (*self._holders, *self._waiting) if one.priority is not Priority.BACKGROUND]

    @property
    def is_busy_with_chats(self) -> bool:
        """Tell whether a chat holds tokens, be it for a prompt that is read on after it was cancelled."""
        return any(ticket.priority is Priority.CHAT for ticket in self._holders)

    def ask(self, capacity: int, priority: Priority, tokens: int, prompt: int, *, slots: int | None = None) -> Ticket:
        """Return a ticket that holds its tokens already, or waits for them.

        `capacity` and `slots` count for all from now on.
        """
        if self.capacity not in (0, capacity):
            self.forget()
        self.capacity, self.slots = capacity, slots
        ticket = Ticket(self, priority, tokens, prompt)
        insort(self._waiting, ticket, key=attrgetter("place"))
        self._admit()
        return ticket

    def ahead(self, ticket: Ticket) -> list[Priority]:
        """Return the ranks of those before one that waits: those in flight, and those that are admitted earlier."""
        in_flight = [holder for holder in self._holders if holder.state == "held"]
        earlier = [other for other in self._waiting if other.place < ticket.place]
        return [other.priority for other in (*in_flight, *earlier)]

    def make_room(self) -> None:
        """Ask all background work to leave."""
        for ticket in list(self._holders):
            if ticket.priority is Priority.BACKGROUND and ticket.state == "held":
                ticket.preempt()

    def grow(self, ticket: Ticket, to_tokens: int, *, insists: bool = True) -> bool:
        """Let a ticket hold more, as `Ticket.grow` promises."""
        if ticket.state != "held":
            return False
        if to_tokens <= ticket.tokens:
            return True
        has_room = self._has_room(to_tokens, beside=ticket, insists=insists)
        has_room = has_room and ticket.lease.covers(to_tokens)
        if has_room:
            ticket.tokens = max(ticket.tokens, min(to_tokens, self.capacity))
        elif insists and ticket.priority is not Priority.BACKGROUND:
            self.make_room()
        self._admit(sparing=ticket)  # others may have given back more than this one takes
        return has_room

    def _has_room(
        self, tokens: int, *, beside: Ticket | None = None, sparing: Ticket | None = None, insists: bool = True
    ) -> bool:
        """Tell whether so many tokens fit beside those of other holders, or nobody else holds any.

        With `insists` the others settle one by one until there is room, all but the one that is `sparing`.
        """
        others = [holder for holder in self._holders if holder is not beside]
        for holder in (None, *others) if insists else (None,):
            if holder is not None and holder is not sparing:
                holder.settle()
            held = sum(other.tokens for other in others)
            if not held or held + tokens <= self.capacity:
                return True
        return False

    def free(self, ticket: Ticket) -> None:
        """Take back everything from a ticket in any state; nothing happens at a second time."""
        if ticket.state == "waiting":
            self._waiting.remove(ticket)
        elif ticket.state != "free":
            del self._holders[ticket]
            if ticket.started is not None:
                self._recent.append(self.clock.time() - ticket.started)
        ticket.state, ticket.tokens, ticket.settled = "free", 0, None
        ticket.lease.release()
        if ticket.timer is not None:
            ticket.timer.cancel()
        self._admit()

    def abandon(self, ticket: Ticket) -> float:
        """Take back everything once the engine has read a cancelled prompt to its end.

        Return how many seconds that takes.
        """
        seconds = 0.0
        now = self.clock.time()
        if ticket.state == "held" and ticket.is_prefilling and ticket.started is not None:
            seconds = self.rate.give_up(ticket.prompt, now - ticket.started)  # the engine may have none of it
        if seconds <= 0:
            self.free(ticket)
            return 0.0
        ticket.state = "lingering"
        ticket.timer = self.clock.call_at(now + seconds, lambda: self.free(ticket))
        self._admit()
        return seconds

    def forget(self) -> None:
        """Take back the tokens of cancelled requests, and forget how fast the model was."""
        self.rate = PrefillRate()
        for ticket in [ticket for ticket in self._holders if ticket.state == "lingering"]:
            self.free(ticket)

    def retry_after(self) -> int:
        """Return in about how many seconds the next request ends, as recent ones went; at least 1."""
        usual = median(self._recent) if self._recent else USUAL_HOLD
        return max(1, min(LONGEST_RETRY, ceil(usual / max(1, len(self._holders)))))

    @property
    def _has_slot(self) -> bool:
        """Tell whether its engine works on one more request; it soon leaves a cancelled one, or has the next wait."""
        return self.slots is None or sum(holder.state == "held" for holder in self._holders) < self.slots

    def _admit(self, *, sparing: Ticket | None = None) -> None:
        """Admit waiting requests in their order, up to the first for which there is no slot or no room.

        The holder that is `sparing`, which has just grown, need not settle.
        """
        while self._waiting:
            ticket = self._waiting[0]
            tokens = min(ticket.wanted, self.capacity)
            if self._holders and not (self._has_slot and self._has_room(tokens, sparing=sparing)):
                return
            self._waiting.pop(0)
            self._holders[ticket] = None
            ticket.state, ticket.tokens = "held", tokens
            ticket.admitted.set_result(None)


class MeasuredRate:
    """How fast one model on one machine works, by the newest samples of at least `least` tokens."""

    least: ClassVar[int]

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=SAMPLES)

    @property
    def is_known(self) -> bool:
        """Tell whether any sample has told it."""
        return bool(self._samples)

    @property
    def _rates(self) -> list[float]:
        return [min(tokens / seconds, FASTEST) for tokens, seconds in self._samples]

    @property
    def usual(self) -> float:
        """Return how fast it is on the whole, in tokens per second; there has to be a sample."""
        tokens, seconds = map(sum, zip(*self._samples, strict=True))
        return tokens / seconds

    def learn(self, tokens: int, seconds: float) -> None:
        """Take note that so many tokens took so many seconds."""
        if tokens >= self.least and seconds > 0:
            self._samples.append((tokens, seconds))

    def mend(self, believed: int, tokens: int, seconds: float) -> None:
        """Take note that it was so many tokens which took so many seconds, and not as many as was believed."""
        with suppress(ValueError):
            self._samples.remove((believed, seconds))
        self.learn(tokens, seconds)


class WritingRate(MeasuredRate):
    """How fast one model on one machine writes."""

    least = LEAST_ANSWER

    @property
    def tokens_per_second(self) -> float:
        """Return the usual rate, in tokens per second."""
        return median(self._rates) if self._samples else DEFAULT_WRITING


class PrefillRate(MeasuredRate):
    """How fast one model on one machine reads prompts."""

    least = LEAST_PROMPT

    @property
    def tokens_per_second(self) -> float:
        """Return a rate, in tokens per second, that hardly any prompt falls below."""
        rates = sorted(self._rates)
        return rates[(len(rates) - 1) // QUANTILE] if rates else DEFAULT_RATE

    def seconds_for(self, prompt: int) -> float:
        """Return how long a prompt of so many tokens is expected to take, at most five minutes."""
        return min(LONGEST, prompt / self.tokens_per_second)

    def give_up(self, prompt: int, seconds: float) -> float:
        """Return how long the model goes on reading a prompt that was cancelled after so many seconds.

        A prompt that should have been read by then shows that the model is slower than expected: it is taken to need
        a quarter longer still. No prompt is taken to need more than five minutes.
        """
        expected = prompt / self.tokens_per_second
        if seconds > expected:
            self.learn(prompt, seconds)
        return max(0.0, min(LONGEST, max(expected, seconds * STILL_TO_COME)) - seconds)
