"""Carrying out pure work: its effects are answered in order, and a thread changes nothing but where it is done."""

import asyncio
import threading

import pytest

from elbowroom.agents.prompt import carried_out
from elbowroom.context.effects import AskPruner, Count, Effect, Progress, PrunerFailed, RungFailed, Work

THREADS = pytest.mark.parametrize("in_thread", [False, True], ids=["inline", "in a thread"])


def work(seen: list[object]) -> Work[int]:
    """Count, tell of a failure, ask in vain, and return what was counted."""
    seen.append(threading.get_ident())
    size: int = yield Count([{"role": "user", "content": "Hello."}])
    seen.append((yield RungFailed("too large")))
    try:
        yield AskPruner([], 100, Progress())
    except PrunerFailed as error:
        seen.append(str(error))
    return size


async def answered(effect: Effect) -> object:
    """Answer on the event loop."""
    await asyncio.sleep(0)
    if isinstance(effect, AskPruner):
        raise PrunerFailed("silent")
    return 7 if isinstance(effect, Count) else None


@THREADS
async def test_effects_are_answered_and_failures_thrown_in(*, in_thread: bool) -> None:
    """The work gets each answer, and the pruning agent's failure where it has asked; its value comes back."""
    seen: list[object] = []
    assert await carried_out(work(seen), answered, in_thread=in_thread) == 7
    assert seen[1:] == [None, "silent"]
    assert (seen[0] != threading.get_ident()) is in_thread


@THREADS
async def test_errors_of_the_work_come_out(*, in_thread: bool) -> None:
    """A failure that the work does not catch is the caller's, also one that a thread could not carry."""

    def failing() -> Work[int]:
        yield AskPruner([], 100, Progress())
        return 0

    with pytest.raises(PrunerFailed, match="silent"):
        await carried_out(failing(), answered, in_thread=in_thread)


async def test_the_event_loop_goes_on_meanwhile() -> None:
    """Work that waits for the event loop itself ends, since it is done in a thread."""
    gate = threading.Event()

    def waiting() -> Work[bool]:
        yield RungFailed("")
        return gate.wait(10)

    asyncio.get_running_loop().call_later(0.01, gate.set)
    assert await carried_out(waiting(), answered, in_thread=True)
