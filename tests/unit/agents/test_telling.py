"""Work that a person is told about while it goes on."""

import asyncio
from collections.abc import Iterator

import pytest

from elbowroom.agents.answer import Notice
from elbowroom.agents.turn import compactor as telling
from elbowroom.agents.turn.compactor import told_meanwhile

OPENING = Notice("compacting", "Begun", is_done=False)


class Left(Exception):
    """The person has gone."""


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "SECONDS_BETWEEN", 0.001)


def newest(*texts: str) -> Iterator[Notice]:
    """Return notices with these texts, the last one again and again."""
    for text in texts:
        yield Notice("compacting", text, is_done=False)
    while True:
        yield Notice("compacting", texts[-1], is_done=False)


async def test_opening_comes_before_the_work() -> None:
    """The person is told that it begins before anything is done, and the work's result is returned."""
    order: list[str] = []

    async def tell(notice: Notice) -> None:
        order.append(notice.text)

    async def work() -> int:
        order.append("work")
        return 7

    assert await told_meanwhile(work(), OPENING, lambda: OPENING, tell) == 7
    assert order == ["Begun", "work"]


async def test_what_says_nothing_new_is_not_told() -> None:
    """Each text is told once, however long it stands."""
    told: list[str] = []
    enough = asyncio.Event()
    notices = newest("Begun", "Begun", "Half", "Half", "Half", "Nearly")

    async def tell(notice: Notice) -> None:
        told.append(notice.text)
        if notice.text == "Nearly":
            enough.set()

    async def work() -> None:
        await enough.wait()

    await told_meanwhile(work(), OPENING, lambda: next(notices), tell)
    assert told == ["Begun", "Half", "Nearly"]


@pytest.mark.parametrize("blocked_at", ["Begun", "Half"])
async def test_slow_reader_does_not_hold_up_the_work(blocked_at: str) -> None:
    """The work ends while a notice waits to be read; the result comes after it, so that the order holds."""
    has_worked = asyncio.Event()
    read: list[str] = []

    async def tell(notice: Notice) -> None:
        if notice.text == blocked_at:
            await has_worked.wait()
        read.append(notice.text)

    async def work() -> None:
        while blocked_at == "Half" and not read:  # noqa: ASYNC110  # what is waited for knows no events
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        has_worked.set()

    async with asyncio.timeout(20):
        await told_meanwhile(work(), OPENING, lambda: Notice("compacting", "Half", is_done=False), tell)
    assert blocked_at in read


@pytest.mark.parametrize("fails_at", ["Begun", "Half"])
async def test_reader_who_has_left_ends_the_work(fails_at: str) -> None:
    """A failure to tell is raised as it is, and the work is cancelled and over by then."""
    ended: list[str] = []

    async def tell(notice: Notice) -> None:
        if notice.text == fails_at:
            await asyncio.sleep(0.002)
            raise Left

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    with pytest.raises(Left):
        await told_meanwhile(work(), OPENING, lambda: Notice("compacting", "Half", is_done=False), tell)
    assert ended == ["work"]


async def test_cancelling_ends_the_work() -> None:
    """Whoever is cancelled while he waits for the work leaves none of it behind."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def tell(notice: Notice) -> None:
        pass

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(told_meanwhile(work(), OPENING, lambda: OPENING, tell))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_failure_of_the_work_is_raised() -> None:
    """What goes wrong in the work reaches who waits for it."""

    async def tell(notice: Notice) -> None:
        pass

    async def work() -> None:
        raise ValueError("out of memory")

    with pytest.raises(ValueError, match="out of memory"):
        await told_meanwhile(work(), OPENING, lambda: OPENING, tell)
