"""Work is shared while it is wanted, and ended when it is not."""

import asyncio

import pytest

from elbowroom.providers.lmstudio.provider import SingleFlight


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
    flight, work = SingleFlight(), Work()
    waiters = [asyncio.create_task(flight.do("a", work)) for _ in range(10)]
    await asyncio.sleep(0)
    work.release.set()
    await asyncio.gather(*waiters)
    assert work.begun == 1


async def test_the_last_one_ends_it() -> None:
    """It goes on while one of two still waits, and is given up when that one leaves too."""
    flight, work = SingleFlight(), Work()
    first, second = (asyncio.create_task(flight.do("a", work)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert work.given_up == 0
    second.cancel()
    await asyncio.sleep(0.01)
    assert work.given_up == 1


async def test_a_newcomer_begins_anew_after_it_was_given_up() -> None:
    """Who comes at the moment when the last one leaves gets work of its own, not the dying one."""
    flight, work = SingleFlight(), Work()
    leaving = asyncio.create_task(flight.do("a", work))
    await asyncio.sleep(0.01)
    leaving.cancel()
    await asyncio.sleep(0)
    staying = asyncio.create_task(flight.do("a", work))
    await asyncio.sleep(0.01)
    work.release.set()
    await staying
    assert (work.begun, work.given_up) == (2, 1)


async def test_a_failure_reaches_everybody_and_is_not_remembered() -> None:
    """All waiters get the error; the next one tries again."""
    flight = SingleFlight()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    results = await asyncio.gather(flight.do("a", fail), flight.do("a", fail), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]
    with pytest.raises(ValueError, match="no"):
        await flight.do("a", fail)


async def test_closing_ends_everything() -> None:
    """Nothing is left running."""
    flight, work = SingleFlight(), Work()
    waiter = asyncio.create_task(flight.do("a", work))
    await asyncio.sleep(0.01)
    await flight.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert work.given_up == 1
