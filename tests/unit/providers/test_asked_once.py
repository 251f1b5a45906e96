"""A question to an upstream is shared while somebody waits for its answer, and ended when nobody does."""

import asyncio

import pytest

from elbowroom.providers.upstream import AskedOnce


class Work:
    """Work that goes on until it is released; counts how often it was begun and given up."""

    def __init__(self) -> None:
        self.begun = 0
        self.given_up = 0
        self.release = asyncio.Event()

    async def __call__(self) -> None:
        self.begun += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise


async def test_it_is_done_once_for_all() -> None:
    """Ten who want the same wait for one piece of work."""
    work = Work()
    flight = AskedOnce(work)
    waiters = [asyncio.create_task(flight.answer()) for _ in range(10)]
    await asyncio.sleep(0)
    work.release.set()
    await asyncio.gather(*waiters)
    assert work.begun == 1


async def test_the_last_one_ends_it() -> None:
    """It goes on while one of two still waits, and is given up when that one leaves too."""
    work = Work()
    flight = AskedOnce(work)
    first, second = (asyncio.create_task(flight.answer()) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert work.given_up == 0
    second.cancel()
    await asyncio.sleep(0.01)
    assert work.given_up == 1


async def test_a_newcomer_begins_anew_after_it_was_given_up() -> None:
    """Who comes at the moment when the last one leaves gets work of its own, not the dying one."""
    work = Work()
    flight = AskedOnce(work)
    leaving = asyncio.create_task(flight.answer())
    await asyncio.sleep(0.01)
    leaving.cancel()
    await asyncio.sleep(0)
    staying = asyncio.create_task(flight.answer())
    await asyncio.sleep(0.01)
    work.release.set()
    await staying
    assert (work.begun, work.given_up) == (2, 1)


async def test_a_failure_reaches_everybody_and_is_not_remembered() -> None:
    """All waiters get the error; the next one tries again."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    flight = AskedOnce(fail)
    results = await asyncio.gather(flight.answer(), flight.answer(), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]
    with pytest.raises(ValueError, match="no"):
        await flight.answer()


async def test_closing_ends_everything() -> None:
    """Nothing is left running."""
    work = Work()
    flight = AskedOnce(work)
    waiter = asyncio.create_task(flight.answer())
    await asyncio.sleep(0.01)
    await flight.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert work.given_up == 1
