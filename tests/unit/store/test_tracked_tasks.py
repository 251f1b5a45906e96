"""Work that has to be finished is, whoever stops waiting for it."""

import asyncio

import pytest

from elbowroom.store.base import TrackedTasks


async def test_work_goes_on_when_the_waiter_is_cancelled() -> None:
    """Cancelling whoever waits leaves the work alone, and `finished` waits for its end."""
    tasks, may_end, done = TrackedTasks(), asyncio.Event(), []

    async def work() -> None:
        await may_end.wait()
        done.append(True)

    waiting = asyncio.create_task(tasks.run(work()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not done
    assert not await tasks.finished(within=0.01)
    may_end.set()
    assert await tasks.finished()
    assert done


async def test_results_and_errors_reach_the_waiter() -> None:
    """`run` returns what the work returns and raises what it raises."""
    tasks = TrackedTasks()

    async def work(value: int) -> int:
        return 10 // value

    assert await tasks.run(work(2)) == 5
    with pytest.raises(ZeroDivisionError):
        await tasks.run(work(0))


async def test_an_error_that_nobody_waits_for_is_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    """Work that fails after its waiter has gone is not reported by asyncio as lost."""
    tasks = TrackedTasks()

    async def fail() -> None:
        raise ValueError

    _ = tasks.start(fail())
    assert await tasks.finished()
    assert not caplog.records


async def test_finished_waits_for_work_that_work_begins() -> None:
    """What is started on the way is waited for as well."""
    tasks, order = TrackedTasks(), []

    async def second() -> None:
        await asyncio.sleep(0)
        order.append("second")

    async def first() -> None:
        order.append("first")
        _ = tasks.start(second())

    _ = tasks.start(first())
    assert await tasks.finished()
    assert order == ["first", "second"]
