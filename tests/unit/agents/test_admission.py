"""Requests share a model's context: each waits for room, in an order that is fair."""

import asyncio

import pytest
from admitted_requests import MODEL, WINDOW, Request, new_admission, requests
from manual_clock import settle
from waiting import until

from elbowroom.agents.admission import Admission, Priority
from elbowroom.agents.admission.pool import Pool
from elbowroom.errors import TooManyRequests


async def test_requests_that_fit_together_are_sent_at_once() -> None:
    """Nobody waits while there is room for all, to the last token."""
    admission, _ = new_admission()
    first, second = await requests(admission, 400, 600)
    assert first.is_admitted
    assert second.is_admitted
    assert admission.held(MODEL) == WINDOW


async def test_one_that_does_not_fit_waits_for_room() -> None:
    """It is admitted as soon as another has ended, and all is free in the end."""
    admission, _ = new_admission()
    first, second = await requests(admission, 400, 601)
    assert not second.is_admitted
    assert admission.waiting(MODEL) == 1
    await first.finish()
    await settle()
    assert second.is_admitted
    await second.finish()
    assert admission.held(MODEL) == 0


async def test_models_do_not_wait_for_each_other() -> None:
    """Each model of each provider has a context of its own."""
    admission, _ = new_admission()
    await requests(admission, WINDOW)
    for other in [("lmstudio", "gemma-3-4b"), ("another", MODEL[1])]:
        async with (
            asyncio.timeout(20),
            admission.admitted(other, capacity=WINDOW, tokens=WINDOW, priority=Priority.CHAT, prompt=1),
        ):
            assert admission.held(other) == WINDOW


async def test_one_that_is_larger_than_the_window_is_sent_alone() -> None:
    """It waits for an empty pool and then holds all of it: whether it fits is for the engine to say."""
    admission, _ = new_admission()
    small, large = await requests(admission, 1, 5 * WINDOW)
    assert not large.is_admitted
    await small.finish()
    await settle()
    assert large.admitted.tokens == WINDOW


async def test_small_ones_do_not_overtake_a_large_one() -> None:
    """Who came first goes first, even where a later one would have fitted beside those in flight."""
    admission, _ = new_admission()
    running, large, small = await requests(admission, 500, 800, 100)
    assert not small.is_admitted
    await running.finish()
    await settle()
    assert large.is_admitted
    assert small.is_admitted


async def test_chats_go_before_tasks_and_tasks_before_background_work() -> None:
    """The order of arrival counts only within one rank."""
    admission, _ = new_admission()
    (running,) = await requests(admission, WINDOW)
    background, task = Request(admission, 900, Priority.BACKGROUND), Request(admission, 900, Priority.TASK)
    await settle()
    chat = Request(admission, 900)
    await settle()
    admitted = []
    for leaving, next_one in [(running, chat), (chat, task), (task, background)]:
        await leaving.finish()
        await settle()
        admitted.append([request.is_admitted for request in (chat, task, background)])
        assert next_one.is_admitted
    assert admitted == [[True, False, False], [True, True, False], [True, True, True]]


async def test_a_small_task_does_not_slip_past_a_large_chat() -> None:
    """What there is room for is kept for the chat that waits for more."""
    admission, _ = new_admission()
    await requests(admission, 500, 800)
    task = Request(admission, 10, Priority.TASK)
    await settle()
    assert not task.is_admitted


async def test_a_small_chat_overtakes_a_large_task() -> None:
    """A task that waits for room holds no chat up."""
    admission, _ = new_admission()
    await requests(admission, 500)
    task = Request(admission, 800, Priority.TASK)
    await settle()
    (chat,) = await requests(admission, 500)
    assert chat.is_admitted
    assert not task.is_admitted


async def test_who_waits_is_told_once_how_many_are_before() -> None:
    """Those in flight count, and those that wait and are admitted earlier."""
    admission, clock = new_admission()
    _, _, third = await requests(admission, 600, 600, 600)
    task = Request(admission, 600, Priority.TASK)
    await clock.elapse(60)
    assert third.told == [2]
    assert task.told == [3]


async def test_who_waits_for_a_moment_only_is_not_told() -> None:
    """Room within a fraction of a second is no wait to speak of."""
    admission, clock = new_admission()
    first, second = await requests(admission, 600, 600)
    await clock.elapse(0.2)
    await first.finish()
    await clock.elapse(60)
    assert second.is_admitted
    assert second.told == []


async def test_one_that_gives_up_waiting_leaves_no_trace() -> None:
    """Those behind it are admitted where there is room for them now."""
    admission, clock = new_admission()
    running, large, small = await requests(admission, 500, 800, 100)
    await large.cancel()
    await settle()
    assert small.is_admitted
    await running.finish()
    await small.finish()
    assert admission.held(MODEL) == admission.waiting(MODEL) == 0
    assert clock.appointments == 0


async def test_one_that_is_cancelled_while_it_is_admitted_leaves_no_trace() -> None:
    """Nothing was sent, so nothing stays held."""
    admission, _ = new_admission()
    running, second = await requests(admission, 600, 600)
    await running.finish()
    assert admission.held(MODEL) == 600, "it has its place before it knows"
    await second.cancel()
    assert not second.is_admitted
    assert admission.held(MODEL) == 0


async def test_one_whose_client_cannot_be_told_leaves_no_trace() -> None:
    """What the callback raises comes out, and the next one is admitted."""
    admission, clock = new_admission()
    await requests(admission, 600)

    async def tell(_before: object) -> None:
        raise ConnectionResetError

    async def ask() -> None:
        async with admission.admitted(
            MODEL, capacity=WINDOW, tokens=600, priority=Priority.CHAT, prompt=600, on_wait=tell
        ):
            pytest.fail("there is no room")

    asking = asyncio.create_task(ask())
    await settle()
    (small,) = await requests(admission, 100)
    await clock.elapse(1)
    assert isinstance(asking.exception(), ConnectionResetError)
    assert admission.waiting(MODEL) == 0
    assert small.is_admitted


async def test_the_newest_window_counts() -> None:
    """A model that was loaded anew with a larger window has room for those who wait."""
    admission, _ = new_admission()
    _, second = await requests(admission, 600, 600)
    third = Request(admission, 100, window=2000)
    await settle()
    assert second.is_admitted
    assert third.is_admitted


async def test_a_smaller_window_is_not_overfilled() -> None:
    """With less room than is held nobody is admitted, and who asked for more than there is now gets all of it."""
    admission, _ = new_admission()
    first, second = await requests(admission, 600, 700)
    third = Request(admission, 50, window=500)
    await settle()
    assert not third.is_admitted
    await first.finish()
    await settle()
    assert second.admitted.tokens == 500


async def test_a_full_queue_refuses_the_next_one() -> None:
    """The error names the model and when to ask again; those who wait are admitted all the same."""
    admission, _ = new_admission(max_waiting=2)
    running, second, third, fourth = await requests(admission, 600, 600, 600, 10)
    error = fourth.task.exception()
    assert isinstance(error, TooManyRequests)
    assert error.status == 429
    assert error.retry_after >= 1
    assert MODEL[1] in error.message
    for leaving, next_one in [(running, second), (second, third)]:
        await leaving.finish()
        await settle()
        assert next_one.is_admitted


async def test_nobody_is_refused_where_there_is_room() -> None:
    """A queue without a place refuses only those who would have to wait; it may be made longer at any time."""
    admission, _ = new_admission(max_waiting=0)
    first, _, refused = await requests(admission, 400, 400, 400)
    assert first.is_admitted
    assert isinstance(refused.task.exception(), TooManyRequests)
    admission.max_waiting = 1
    (waiting,) = await requests(admission, 400)
    assert not waiting.task.done()


async def test_the_time_to_ask_again_follows_recent_answers() -> None:
    """Answers of two minutes, one at a time: that is how long the next place takes."""
    admission, clock = new_admission(max_waiting=0)
    for _ in range(3):
        (request,) = await requests(admission, WINDOW)
        await clock.elapse(120)
        request.admitted.first_token()
        await request.finish()
    _, refused = await requests(admission, WINDOW, WINDOW)
    error = refused.task.exception()
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == 120


async def test_an_answer_takes_more_where_there_is_room() -> None:
    """Beyond the room there is it stays at what it holds, and is told so."""
    admission, _ = new_admission()
    first, second = await requests(admission, 400, 400)
    assert first.admitted.grow(600)
    assert not first.admitted.grow(601)
    assert first.admitted.tokens == 600
    assert first.admitted.grow(500), "it holds that already"
    assert first.admitted.tokens == 600
    assert not second.admitted.grow(401)


async def test_an_answer_grows_before_those_who_wait() -> None:
    """Who is in flight already cannot wait; who is not, can."""
    admission, _ = new_admission()
    first, second = await requests(admission, 400, 700)
    assert first.admitted.grow(900)
    assert not second.is_admitted


async def test_an_answer_that_is_alone_may_fill_the_window() -> None:
    """It holds the whole window at most."""
    admission, _ = new_admission()
    first, second = await requests(admission, 400, 700)
    assert first.admitted.grow(WINDOW + 50)
    assert first.admitted.tokens == WINDOW
    await first.finish()
    await settle()
    assert second.is_admitted


@pytest.mark.parametrize("priority", [Priority.CHAT, Priority.TASK])
async def test_background_work_makes_room(priority: Priority) -> None:
    """It is asked to leave as soon as somebody has to wait, once."""
    admission, clock = new_admission()
    work = Request(admission, 600, Priority.BACKGROUND)
    await settle()
    asked: list[str] = []
    work.admitted.first_token()
    work.admitted.on_preempt = lambda: asked.append("asked")
    request = Request(admission, 600, priority)
    await requests(admission, 600)
    await clock.elapse(1)
    assert asked == ["asked"]
    await work.cancel()
    await settle()
    assert request.is_admitted or priority is Priority.TASK


async def test_background_work_is_left_alone_where_there_is_room() -> None:
    """Nor is it asked by other background work that has to wait."""
    admission, _ = new_admission()
    work = Request(admission, 600, Priority.BACKGROUND)
    await settle()
    asked: list[str] = []
    work.admitted.on_preempt = lambda: asked.append("asked")
    await requests(admission, 400)
    other = Request(admission, 600, Priority.BACKGROUND)
    await settle()
    assert not other.is_admitted
    assert asked == []


async def test_background_work_that_names_its_way_to_leave_too_late_is_asked_then() -> None:
    """A chat that comes between the admission and the first line of the work is not forgotten."""
    admission, _ = new_admission()
    work = Request(admission, 600, Priority.BACKGROUND)
    await settle()
    _, chat = await requests(admission, 100, 600)
    work.admitted.on_preempt = work.task.cancel
    await settle()
    assert work.task.cancelled()
    assert not chat.is_admitted, "the engine reads the cancelled prompt to its end"


async def test_background_work_that_has_left_is_not_asked() -> None:
    """What its task does afterwards is its own, also while the engine reads its prompt to the end."""
    admission, _ = new_admission()
    left, cancelled = Request(admission, 300, Priority.BACKGROUND), Request(admission, 300, Priority.BACKGROUND)
    await settle()
    asked: list[str] = []
    for work in (left, cancelled):
        work.admitted.on_preempt = lambda: asked.append("asked")
    await left.finish()
    await cancelled.cancel()
    await requests(admission, 800, 800)
    assert admission.waiting(MODEL) == 2
    assert asked == []


async def test_background_work_that_gave_its_place_back_is_not_asked_later() -> None:
    """It was to be asked as soon as it said how, but there is nothing left that it could give back."""
    admission, _ = new_admission()
    work = Request(admission, 600, Priority.BACKGROUND)
    await settle()
    await requests(admission, 600)
    await work.finish()
    asked: list[bool] = []
    work.admitted.on_preempt = lambda: asked.append(True)
    await settle()
    assert asked == []


async def test_a_growing_chat_asks_background_work_to_leave() -> None:
    """It gets its room when the work has gone."""
    admission, _ = new_admission()
    work = Request(admission, 500, Priority.BACKGROUND)
    (chat,) = await requests(admission, 400)
    work.admitted.first_token()
    work.admitted.on_preempt = work.task.cancel
    assert not chat.admitted.grow(600)
    await settle()
    assert chat.admitted.grow(600)


async def test_background_work_begins_in_nobodys_way() -> None:
    """Not while a chat holds context, nor while anybody waits; a task that is answered does not matter."""
    admission, _ = new_admission()
    assert admission.background_may_start(MODEL)
    (chat,) = await requests(admission, 10)
    assert not admission.background_may_start(MODEL)
    await chat.finish()
    task = Request(admission, 900, Priority.TASK)
    await settle()
    assert admission.background_may_start(MODEL)
    waiting = Request(admission, 900, Priority.TASK)
    await settle()
    assert not admission.background_may_start(MODEL)
    await waiting.cancel()
    await task.finish()


async def test_it_goes_by_the_event_loop_unless_told_otherwise() -> None:
    """Without a clock of its own it waits, tells and admits in real time."""
    admission = Admission()
    first, second = await requests(admission, 600, 600)
    await until(lambda: second.told)
    await first.finish()
    await until(lambda: second.is_admitted)
    await second.cancel()
    assert second.told == [1]
    assert admission.held(MODEL) == 600, "it was cancelled before its first token"
    admission.close()
    assert admission.held(MODEL) == 0


async def test_who_holds_more_than_is_needed_gives_it_back() -> None:
    """One who asks gets it without waiting; nobody is left with less than he was admitted with."""
    pool = Pool(asyncio.get_running_loop())
    modest, greedy = (pool.ask(WINDOW, Priority.CHAT, 200, 100) for _ in range(2))
    modest.settled, greedy.settled = lambda: 50, lambda: 250
    assert modest.grow(300, insists=False)
    assert greedy.grow(600, insists=False)
    waiting = pool.ask(WINDOW, Priority.CHAT, 550, 100)
    assert waiting.state == "held"
    assert (modest.tokens, greedy.tokens) == (200, 250)


async def test_who_does_not_insist_leaves_others_as_they_are() -> None:
    """What is only wanted to save a count neither ends background work nor takes back what others hold."""
    pool = Pool(asyncio.get_running_loop())
    work = pool.ask(WINDOW, Priority.BACKGROUND, 300, 100)
    ended: list[bool] = []
    work.on_preempt = lambda: ended.append(True)
    other, chat = pool.ask(WINDOW, Priority.CHAT, 200, 100), pool.ask(WINDOW, Priority.CHAT, 200, 100)
    other.settled = lambda: 100
    assert other.grow(400, insists=False)
    assert not chat.grow(400, insists=False)
    assert (other.tokens, chat.tokens, ended) == (400, 200, [])
    assert chat.grow(400)
    assert other.tokens == 200
    assert not chat.grow(600)
    assert ended == [True]
