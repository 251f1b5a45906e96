"""An engine reads a prompt to its end though nobody waits for it any more: its tokens stay held so long."""

import asyncio
from collections.abc import Callable

import pytest
from admitted_requests import MODEL, WINDOW, Request, new_admission, requests
from manual_clock import ManualClock, settle

from elbowroom.agents.admission import Admission
from elbowroom.agents.admission.pool import DEFAULT_RATE, LONGEST
from elbowroom.errors import UpstreamError, UpstreamRejected, UpstreamTimeout, UpstreamUnreachable
from elbowroom.providers.base import ReadingProgress


async def measure(admission: Admission, clock: ManualClock, *rates: float) -> None:
    """Let the model read a prompt at each of these rates, in tokens a second."""
    for rate in rates:
        (request,) = await requests(admission, WINDOW)
        await clock.elapse(WINDOW / rate)
        request.admitted.first_token()
        await request.finish()


async def test_a_cancelled_prompt_is_held_until_it_has_been_read() -> None:
    """At the rate measured before, less the time that it was read already."""
    admission, clock = new_admission()
    await measure(admission, clock, 100, 100)
    (request,) = await requests(admission, 800)
    await clock.elapse(3)
    await request.cancel()
    (second,) = await requests(admission, 600)
    await clock.elapse(4.9)
    assert not second.is_admitted
    assert second.told == [0], "no other request is before it"
    await clock.elapse(0.2)
    assert second.is_admitted
    assert admission.held(MODEL) == 600


async def test_a_model_that_is_not_known_yet_has_a_rate_too() -> None:
    """It is that of a slow machine."""
    admission, clock = new_admission()
    (request,) = await requests(admission, 1000)
    await request.cancel()
    await clock.elapse(1000 / DEFAULT_RATE - 0.1)
    assert admission.held(MODEL) == 1000
    await clock.elapse(0.2)
    assert admission.held(MODEL) == 0


async def test_an_answer_that_has_begun_holds_nothing_after_it() -> None:
    """Decoding stops with the connection."""
    admission, _ = new_admission()
    (request,) = await requests(admission, 800)
    request.admitted.first_token()
    await request.cancel()
    assert admission.held(MODEL) == 0


async def test_a_finished_answer_holds_nothing() -> None:
    """Even an empty one, which had no first token."""
    admission, clock = new_admission()
    (request,) = await requests(admission, 800)
    await request.finish()
    assert admission.held(MODEL) == 0
    assert clock.appointments == 0


@pytest.mark.parametrize("error", [UpstreamRejected("no", status=400), UpstreamUnreachable("no"), UpstreamError("no")])
async def test_a_refused_request_holds_nothing(error: Exception) -> None:
    """What the upstream has turned down it does not read."""
    admission, _ = new_admission()
    (request,) = await requests(admission, 800)
    await request.fail(error)
    assert admission.held(MODEL) == 0


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), UpstreamTimeout("nothing came")])
async def test_a_request_that_was_given_up_is_held(error: Exception) -> None:
    """An error of the client's side is like a cancellation, and so is an upstream that has fallen silent."""
    admission, _ = new_admission()
    (request,) = await requests(admission, 800)
    await request.fail(error)
    assert admission.held(MODEL) == 800


async def test_an_answer_does_not_grow_over_a_prompt_that_is_still_read() -> None:
    """It is not alone yet."""
    admission, _ = new_admission()
    first, second = await requests(admission, 500, 500)
    await first.cancel()
    assert not second.admitted.grow(600)


async def test_a_model_that_was_unloaded_reads_nothing() -> None:
    """What is held for cancelled prompts is free at once, and the rate of the next one is unknown."""
    admission, clock = new_admission()
    await measure(admission, clock, 100_000)
    running, cancelled = await requests(admission, 300, 600)
    await cancelled.cancel()
    waiting, last = await requests(admission, 700, 1000)
    admission.forget(MODEL)
    await settle()
    assert waiting.is_admitted
    assert admission.held(MODEL) == 1000, "those in flight keep theirs until they have failed"
    for request in (running, waiting):
        await request.finish()
    await settle()
    await last.cancel()
    await clock.elapse(1000 / DEFAULT_RATE - 0.1)
    assert admission.held(MODEL) == 1000
    await clock.elapse(0.2)
    assert clock.appointments == 0


async def test_forgetting_a_model_that_nobody_has_used_is_all_right() -> None:
    """There is nothing to forget."""
    admission, _ = new_admission()
    admission.forget(MODEL)
    assert admission.held(MODEL) == 0


@pytest.mark.parametrize("end", [Admission.close, lambda admission: admission.forget(MODEL)])
async def test_nothing_is_left_to_happen_for_a_model_that_is_forgotten(end: Callable[[Admission], None]) -> None:
    """Neither where it was unloaded nor where the server stops."""
    admission, clock = new_admission()
    (request,) = await requests(admission, WINDOW)
    await request.cancel()
    assert clock.appointments == 1
    end(admission)
    assert clock.appointments == 0
    assert admission.held(MODEL) == 0


async def test_no_prompt_is_held_for_ever() -> None:
    """However slow the model seems to be."""
    admission, clock = new_admission()
    await measure(admission, clock, 0.5)
    (request,) = await requests(admission, WINDOW)
    await request.cancel()
    await clock.elapse(LONGEST + 1)
    assert admission.held(MODEL) == 0


async def test_one_that_waited_is_read_from_when_it_was_sent() -> None:
    """The time in the queue is not time in which the model has read."""
    admission, clock = new_admission()
    await measure(admission, clock, 100)
    running, waiting = await requests(admission, WINDOW, WINDOW)
    running.admitted.first_token()
    await clock.elapse(60)
    await running.finish()
    await settle()
    await waiting.cancel()
    await clock.elapse(9.9)
    assert admission.held(MODEL) == WINDOW
    await clock.elapse(0.2)
    assert admission.held(MODEL) == 0


async def test_two_cancelled_prompts_end_each_at_its_time() -> None:
    """A new request is admitted as soon as one of them leaves room enough."""
    admission, clock = new_admission()
    await measure(admission, clock, 100)
    gone = await requests(admission, 300, 600)
    await asyncio.gather(*(request.cancel() for request in gone))
    next_one = Request(admission, 400)
    await clock.elapse(2.9)
    assert not next_one.is_admitted
    await clock.elapse(0.2)
    assert next_one.is_admitted
    assert admission.held(MODEL) == 1000


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("speed", [80.0, 300.0, 1500.0, 6000.0])
async def test_after_three_turns_the_time_that_reading_takes_is_known(speed: float, *, tells: bool) -> None:
    """To a fifth, whether the engine tells what it had in its cache or not; it begins each answer after 0.2 s."""
    admission, clock = new_admission()
    history = 0
    for new in (3000, 900, 2100, 1400):
        history += new
        request = Request(admission, 20_000, prompt=history, window=20_000)
        await settle()
        ticket = request.admitted
        ticket.reads = history if tells else new
        left, seconds = ticket.reading_left, new / speed + 0.2
        if new == 1400:
            ticket.reads = new
            assert ticket.reading_left == pytest.approx(seconds, rel=0.2)
            await clock.elapse(seconds / 2)
            assert ticket.reading_left == pytest.approx(seconds / 2, rel=0.4)
        else:
            assert (left is None) == (history == new)
            await clock.elapse(seconds)
        ticket.first_token()
        await clock.elapse(2)
        ticket.wrote(40, new if tells else None)
        await request.finish()


async def test_an_engine_that_tells_how_far_it_has_read_is_believed() -> None:
    """Its own progress counts from the moment when it told it, whatever was measured before."""
    admission, clock = new_admission()
    await measure(admission, clock, 100)
    (request,) = await requests(admission, 1000)
    await clock.elapse(2)
    request.admitted.reading = ReadingProgress(total=1000, cached=200, processed=600, seconds=2)
    assert request.admitted.reading_left == pytest.approx(2)
    await clock.elapse(1)
    assert request.admitted.reading_left == pytest.approx(1)
    request.admitted.first_token()
    assert request.admitted.reading_left is None
