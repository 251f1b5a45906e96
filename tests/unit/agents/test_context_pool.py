"""Whatever is asked of a pool, and in whatever order: it is never overfilled, and nobody is overtaken."""

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock

from elbowroom.agents.admission.pool import Pool, Priority, Ticket

WINDOW = 100

Act = Callable[["Watched"], None]

places = st.integers(0, 50)
sizes = st.integers(0, WINDOW + 20)
acts: st.SearchStrategy[Act] = st.one_of(
    st.builds(
        lambda priority, tokens, prompt: lambda pool: pool.ask(priority, tokens, prompt),
        st.sampled_from(Priority),
        sizes,
        st.integers(0, 5000),
    ),
    st.builds(lambda place: lambda pool: pool.end(place, pool.pool.free), places),
    st.builds(lambda place: lambda pool: pool.end(place, pool.pool.abandon), places),
    st.builds(lambda place: lambda pool: pool.first_token(place), places),
    st.builds(lambda place, size: lambda pool: pool.grow(place, size), places, sizes),
    st.builds(lambda place, size: lambda pool: pool.needs(place, size), places, sizes),
    st.builds(lambda seconds: lambda pool: pool.wait(seconds), st.floats(0, 60)),
    st.just(lambda pool: pool.pool.forget()),
)


class Watched:
    """A pool, and all tickets that were ever asked for."""

    def __init__(self, slots: int | None) -> None:
        self.slots = slots
        self.clock = ManualClock()
        self.pool = Pool(self.clock)
        self.tickets: list[Ticket] = []

    def of(self, *states: str) -> list[Ticket]:
        """Return the tickets in these states."""
        return [ticket for ticket in self.tickets if ticket.state in states]

    def ask(self, priority: Priority, tokens: int, prompt: int) -> None:
        """Let a request arrive."""
        self.tickets.append(self.pool.ask(WINDOW, priority, tokens, prompt, slots=self.slots))

    def end(self, place: int, how: Callable[[Ticket], object]) -> None:
        """Let one that waits or is in flight end."""
        if live := self.of("waiting", "held"):
            how(live[place % len(live)])

    def first_token(self, place: int) -> None:
        """Let an answer begin."""
        if live := self.of("held"):
            live[place % len(live)].first_token()

    def grow(self, place: int, size: int) -> None:
        """Let an answer want more: it has what it wanted exactly where it is told so, or the whole pool."""
        if live := self.of("held"):
            ticket = live[place % len(live)]
            before = ticket.tokens
            has_grown = ticket.grow(size)
            assert has_grown == (ticket.tokens >= min(size, WINDOW))
            assert ticket.tokens == (max(before, min(size, WINDOW)) if has_grown else before)

    def needs(self, place: int, size: int) -> None:
        """Let one need less than it may hold; it gives the rest back where others ask."""
        if live := self.of("held"):
            live[place % len(live)].settled = lambda: size

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.pass_by(seconds)

    def do(self, act: Act) -> None:
        """Do this, and check what is promised after every act."""
        waited = set(self.of("waiting"))
        act(self)
        for ticket in self.of("held"):
            if ticket.started is None:
                ticket.begins()
        still = self.of("waiting")
        held = sum(ticket.tokens for ticket in self.tickets)
        has_slot = self.slots is None or len(self.of("held")) < self.slots
        assert self.pool.held == held <= WINDOW
        assert self.slots is None or len(self.of("held")) <= self.slots
        assert self.pool.waiting == len(still)
        assert all(ticket.tokens == 0 for ticket in self.of("waiting", "free"))
        for ticket in waited & set(self.of("held")):
            assert all(ticket.place < other.place for other in still), "one who came first was overtaken"
        if still:
            first = min(still, key=lambda ticket: ticket.place)
            assert held > 0, "a pool with nothing in it admits anybody"
            has_room = held + min(first.wanted, WINDOW) <= WINDOW
            assert not (has_slot and has_room), "there was room for the first one who waits"


@settings(deadline=None)
@given(st.lists(acts, max_size=60), st.sampled_from([None, 1, 2, 3]))
def test_a_pool_keeps_its_promises_after_every_act(todo: list[Act], slots: int | None) -> None:
    """No token is held twice or lost, the first in the queue is admitted as soon as it fits, all is free at last."""

    async def check() -> None:
        watched = Watched(slots)
        for act in todo:
            watched.do(act)
        while live := watched.of("held", "waiting"):
            watched.do(lambda pool, one=live[0]: pool.pool.free(one))  # type: ignore[misc]
        watched.do(lambda pool: pool.wait(600))
        assert watched.pool.held == watched.pool.waiting == 0
        assert watched.clock.appointments == 0

    asyncio.run(check())


async def test_one_that_has_just_grown_keeps_it() -> None:
    """Who waits has others give back what they do not need, but not in the moment in which it was granted."""
    pool = Pool(ManualClock())
    holder = pool.ask(WINDOW, Priority.CHAT, 50, 0)
    waiting = pool.ask(WINDOW, Priority.CHAT, 51, 0)
    holder.settled = lambda: 0
    assert holder.grow(51)
    assert holder.tokens == 51
    assert waiting.state == "waiting"
