"""Chats of one owner in an engine that keeps one prompt: which has its turn, for how long, and who never waits."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from math import inf
from typing import Final

import pytest

from elbowroom.agents.admission import turns as taking
from elbowroom.agents.admission.turns import Turns

POOL: Final = ("lmstudio", "small")
READING: Final = 0.2
"""Seconds that a prompt takes to be read again, so that its chat is waited for as long."""


class Engine:
    """Notes which chat has asked, in order; a request takes a moment."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.asked: list[str] = []
        self.told: list[str] = []

    async def ask(
        self, chat: str, *, owner: str = "", results: bool = True, goes_on: bool = True, seconds: float = 0.01
    ) -> None:
        """Send one request of a chat, which goes on with results."""

        async def tell() -> None:
            self.told.append(chat)

        async with self.turns.taken(POOL, owner, chat, tell if results else None) as turn:
            self.asked.append(chat)
            await asyncio.sleep(seconds)
            turn.reading = READING if goes_on else 0.0

    async def work(self, chat: str, calls: int, pause: float) -> None:
        """Send requests of a chat, with a pause for its tools between them."""
        for call in range(calls):
            await self.ask(chat, goes_on=call < calls - 1)
            await asyncio.sleep(pause)


def switches(asked: list[str]) -> int:
    """Return how often another chat was asked than before."""
    return sum(one != other for one, other in pairwise(asked))


@pytest.mark.slow
async def test_chats_that_alternate_have_turns_of_several_requests() -> None:
    """With short tools each goes on a while before the other one has its turn, and both come to their end."""
    engine = Engine()
    await asyncio.gather(engine.work("a", 20, 0.01), engine.work("b", 20, 0.01))
    assert sorted(engine.asked) == ["a"] * 20 + ["b"] * 20
    assert switches(engine.asked) <= 6
    assert not engine.turns._lines


async def test_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat has its turn after two readings at the latest, however long the other one goes on, and is told of it."""
    monkeypatch.setattr(taking, "QUIET_SECONDS", 0.05)
    engine, loop = Engine(), asyncio.get_running_loop()
    await engine.ask("a")
    working = asyncio.create_task(engine.work("a", 1000, 0.01))
    await asyncio.sleep(0.05)
    began = loop.time()
    await engine.ask("b")
    assert loop.time() - began > READING
    assert engine.told == ["b"]
    assert engine.asked[:3] == ["a"] * 3
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working


@pytest.mark.parametrize(
    ("before", "asking"),
    [
        (lambda engine: engine.ask("a"), lambda engine: engine.ask("b", results=False)),
        (lambda engine: engine.ask("a"), lambda engine: engine.ask("b", owner="kim")),
        (lambda engine: engine.ask("a", goes_on=False), lambda engine: engine.ask("b")),
        (lambda engine: engine.ask("b"), lambda engine: engine.ask("b")),
    ],
    ids=["a question", "somebody else", "after the end", "its own"],
)
async def test_who_does_not_wait(
    before: Callable[[Engine], Awaitable[None]], asking: Callable[[Engine], Awaitable[None]]
) -> None:
    """What a person asks waits for no turn, nor do other owners, nor anybody for a chat that has ended."""
    engine, loop = Engine(), asyncio.get_running_loop()
    await before(engine)
    began = loop.time()
    await asking(engine)
    assert loop.time() - began < READING / 2


@pytest.mark.slow
async def test_a_chat_with_slow_tools_is_waited_for_once() -> None:
    """Whose tools have taken longer than the engine reads is not waited for, until they are quick again."""
    engine, loop = Engine(), asyncio.get_running_loop()
    waited = list[float]()
    for pause in (READING * 2, 0.0, 0.0):
        await engine.ask("a")
        began = loop.time()
        await engine.ask("b", goes_on=False)
        waited.append(loop.time() - began)
        await asyncio.sleep(pause)
    first, second, third = waited
    assert first >= READING
    assert second < READING / 2
    assert third >= READING


async def test_who_leaves_while_it_waits_keeps_nobody() -> None:
    """A client that leaves before its turn leaves nothing behind."""
    engine = Engine()
    await engine.ask("a")
    waiting = asyncio.create_task(engine.ask("b"))
    await asyncio.sleep(0.02)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await engine.ask("a", goes_on=False)
    assert engine.asked == ["a", "a"]
    assert not engine.turns._lines


async def test_requests_of_a_chat_are_counted() -> None:
    """A chat that has the engine again before its first request has ended has it until the last one ends."""
    turns = Turns()
    async with AsyncExitStack() as stack:
        first, other, again = AsyncExitStack(), AsyncExitStack(), stack
        for one, chat in ((first, "a"), (other, "b"), (again, "a")):
            await one.enter_async_context(turns.taken(POOL, "", chat, None))
        [line] = turns._lines.values()
        await first.aclose()
        assert line.is_anothers("b", inf)
        await other.aclose()
        assert line.is_anothers("b", inf)
    assert not line.is_anothers("b", inf)
    assert not turns._lines


async def test_who_waits_keeps_its_place() -> None:
    """A chat that has waited for another one's end is waited for in its turn."""
    engine = Engine()
    holding = asyncio.create_task(engine.ask("a", goes_on=False, seconds=0.05))
    await asyncio.sleep(0)
    [line] = engine.turns._lines.values()
    line.reading = 10.0
    waiting = asyncio.create_task(engine.ask("b", seconds=0.1))
    await holding
    await asyncio.sleep(0.01)
    await engine.ask("c", goes_on=False)
    await waiting
    assert engine.asked == ["a", "b", "c"]
    assert list(engine.turns._lines.values()) == [line]
