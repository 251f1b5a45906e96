"""A task - a title, tags, follow-ups - waits for its chat, and gives way to every other."""

import asyncio

import pytest
from admitted_requests import MODEL, WINDOW, Request, new_admission, requests
from manual_clock import settle

from elbowroom.agents.admission.admission import LONGEST_TASK_WAIT, MOST_WAYS_GIVEN, TASK_PATIENCE, Admission
from elbowroom.agents.running import ChatKey
from elbowroom.errors import TooManyRequests

CHAT: ChatKey = (*MODEL, "chat-1")
OTHER_CHAT: ChatKey = (*MODEL, "chat-2")
UNNAMED: ChatKey = (*MODEL, "")
OTHER_MODEL: ChatKey = ("lmstudio", "gemma-3-4b", "chat-1")


def begin(admission: Admission, key: ChatKey) -> asyncio.Task[None]:
    """Return a task that waits for the chats of this key."""
    return asyncio.create_task(admission.before_task(key))


async def test_a_task_waits_for_a_chat_that_comes_a_little_later() -> None:
    """A client asks for the title of a new chat up to 130 ms before it sends the chat."""
    admission, clock = new_admission()
    task = begin(admission, CHAT)
    await clock.elapse(0.13)
    with admission.running.chat(CHAT):
        await clock.elapse(60)
        assert not task.done()
    await clock.elapse(TASK_PATIENCE)
    assert task.done()


@pytest.mark.parametrize("key", [CHAT, UNNAMED])
async def test_a_task_goes_on_after_a_moment_where_no_chat_runs(key: ChatKey) -> None:
    """It waits that moment, and no longer."""
    admission, clock = new_admission()
    task = begin(admission, key)
    await clock.elapse(0.29)
    assert not task.done()
    await clock.elapse(0.02)
    assert task.done()


async def test_a_task_waits_for_its_own_chat_alone() -> None:
    """Other chats of the model and unnamed ones do not concern one that names its chat."""
    admission, clock = new_admission()
    with admission.running.chat(OTHER_CHAT), admission.running.chat(UNNAMED):
        task = begin(admission, CHAT)
        await clock.elapse(0.4)
        assert task.done()


async def test_a_task_waits_for_its_own_chat_with_whatever_model() -> None:
    """A client may have the titles of all chats written by a model of its choice, on the same machine."""
    admission, clock = new_admission()
    with admission.running.chat(OTHER_MODEL):
        task = begin(admission, CHAT)
        await clock.elapse(5)
        assert not task.done()
    await clock.elapse(TASK_PATIENCE)
    assert task.done()


async def test_what_a_task_calls_its_model_is_not_remembered() -> None:
    """Nobody has looked yet whether there is such a model; metrics would have a line for each name, for ever."""
    admission, clock = new_admission()
    with admission.running.chat(CHAT):
        tasks = [begin(admission, (MODEL[0], f"no-such-{number}", CHAT[2])) for number in range(3)]
        await clock.elapse(1)
        assert admission.waiting((MODEL[0], "no-such-1")) == 1
        assert admission.waiting_for_all() == {}
    await clock.elapse(TASK_PATIENCE)
    await asyncio.gather(*tasks)
    assert admission.waiting((MODEL[0], "no-such-1")) == 0


async def test_a_chat_without_an_end_is_not_waited_for_without_one() -> None:
    """An agent may be at work for an hour; the title of its chat comes before that."""
    admission, clock = new_admission()
    with admission.running.chat(CHAT):
        task = begin(admission, CHAT)
        await clock.elapse(LONGEST_TASK_WAIT - 1)
        assert not task.done()
        await clock.elapse(2)
        assert task.done()
        assert admission.waiting(MODEL) == 0
    assert clock.appointments == 0


@pytest.mark.parametrize("running", [CHAT, UNNAMED])
async def test_a_task_that_names_no_chat_waits_for_all_of_the_model(running: ChatKey) -> None:
    """Those of other models do not concern it."""
    admission, clock = new_admission()
    with admission.running.chat(OTHER_MODEL):
        with admission.running.chat(running):
            task = begin(admission, UNNAMED)
            await clock.elapse(5)
            assert not task.done()
        await clock.elapse(TASK_PATIENCE)
        assert task.done()


async def test_a_chat_that_begins_meanwhile_is_waited_for_too() -> None:
    """Also where it begins when the one before it ends, or a moment after, and where one chat runs twice."""
    admission, clock = new_admission()
    with admission.running.chat(CHAT):
        task = begin(admission, CHAT)
        await clock.elapse(1)
        second = admission.running.chat(CHAT)
        second.__enter__()
    await settle()
    assert not task.done()
    second.__exit__(None, None, None)
    with admission.running.chat(CHAT):
        await clock.elapse(5)
        assert not task.done()
    await clock.elapse(TASK_PATIENCE)
    assert task.done()


async def test_the_rounds_of_a_clients_tools_are_one_chat() -> None:
    """A client runs its tools between two requests of a chat; no title goes to the model in the middle of that."""
    admission, clock = new_admission()
    task = begin(admission, CHAT)
    for _ in range(5):
        with admission.running.chat(CHAT):
            await clock.elapse(1)
        await clock.elapse(TASK_PATIENCE - 0.1)
        assert not task.done()
    await clock.elapse(TASK_PATIENCE)
    assert task.done()


async def test_a_chat_that_fails_has_ended() -> None:
    """Its tasks do not wait for ever."""
    admission, clock = new_admission()
    task = begin(admission, CHAT)

    async def fail() -> None:
        with admission.running.chat(CHAT):
            await clock.sleep(1)
            raise ConnectionResetError

    chat = asyncio.create_task(fail())
    await clock.elapse(0.9)
    assert not task.done()
    await clock.elapse(0.2 + TASK_PATIENCE)
    assert isinstance(chat.exception(), ConnectionResetError)
    assert task.done()


async def test_waiting_tasks_count_for_the_queue() -> None:
    """The next task that would have to wait is refused, and the next chat too; one with room for it is not."""
    admission, clock = new_admission(max_waiting=2)
    with admission.running.chat(CHAT):
        waiting = [begin(admission, CHAT) for _ in range(2)]
        await clock.elapse(1)
        assert admission.waiting(MODEL) == 2
        assert not admission.background_may_start(MODEL)
        refused = begin(admission, CHAT)
        await clock.elapse(1)
        assert isinstance(refused.exception(), TooManyRequests)
        running, chat = await requests(admission, WINDOW, 100)
        assert running.is_admitted
        assert isinstance(chat.task.exception(), TooManyRequests)
        await running.finish()
    await clock.elapse(TASK_PATIENCE)
    assert all(task.done() for task in waiting)


async def test_a_task_that_gives_up_leaves_no_trace() -> None:
    """Neither while it waits for a moment nor while it waits for its chat."""
    admission, clock = new_admission()
    with admission.running.chat(CHAT):
        first, second = begin(admission, CHAT), begin(admission, UNNAMED)
        await settle()
        first.cancel()
        await clock.elapse(1)
        assert admission.waiting(MODEL) == 1
        second.cancel()
        await settle()
        assert admission.waiting(MODEL) == 0
    assert clock.appointments == 0


class Work:
    """What a task does: it ends when it is told to, and notes how often it was begun and cancelled."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.may_leave = True
        self.end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.begun

    def for_task(self, admission: Admission, key: ChatKey) -> asyncio.Task[int]:
        """Begin it."""
        return asyncio.create_task(admission.giving_way(key, self, may_leave=lambda: self.may_leave))


@pytest.mark.parametrize("chat", [CHAT, OTHER_CHAT, UNNAMED, OTHER_MODEL])
async def test_a_task_at_work_gives_way(chat: ChatKey) -> None:
    """A chat with its model, or its own chat with any, does not wait for it; where that was its own, it waits."""
    admission, clock = new_admission()
    work = Work()
    task = work.for_task(admission, CHAT)
    await settle()
    with admission.running.chat(chat):
        await clock.elapse(5)
        assert work.cancelled == 1
        assert work.begun == (1 if chat in (CHAT, OTHER_MODEL) else 2)
    await clock.elapse(TASK_PATIENCE)
    assert work.begun == 2
    work.end.set()
    assert await task == 2


async def test_a_task_gives_way_to_a_step_of_an_agent() -> None:
    """Also to a model that the chat did not name: an agent's request to it is one of a chat."""
    admission, clock = new_admission()
    work = Work()
    task = work.for_task(admission, CHAT)
    await settle()
    step = Request(admission, WINDOW)
    await settle()
    assert step.is_admitted
    assert work.cancelled == 1
    await step.finish()
    work.end.set()
    await clock.elapse(TASK_PATIENCE)
    assert await task == 2


async def test_a_task_gives_way_so_often_and_no_more() -> None:
    """However many people talk to the model, each gets a title in the end."""
    admission, clock = new_admission()
    work = Work()
    task = work.for_task(admission, CHAT)
    for _ in range(10):
        await clock.elapse(TASK_PATIENCE)
        with admission.running.chat(OTHER_CHAT), admission.running.chat(UNNAMED):
            await settle()
    assert work.cancelled == MOST_WAYS_GIVEN
    work.end.set()
    assert await task == MOST_WAYS_GIVEN + 1


async def test_a_task_that_may_not_leave_stays() -> None:
    """Its client has seen the beginning of the answer."""
    admission, _ = new_admission()
    work = Work()
    work.may_leave = False
    task = work.for_task(admission, CHAT)
    await settle()
    with admission.running.chat(OTHER_CHAT):
        await settle()
        assert work.cancelled == 0
    work.end.set()
    assert await task == 1


async def test_who_leaves_is_not_begun_anew() -> None:
    """A task whose client goes at the moment at which a chat begins has ended; so has one that fails."""
    admission, _ = new_admission()
    work = Work()
    task = work.for_task(admission, CHAT)
    await settle()
    with admission.running.chat(OTHER_CHAT):
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert work.begun == 1

    async def fail() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await admission.giving_way(CHAT, fail)


async def test_chats_do_not_wait_for_chats() -> None:
    """Marking a chat as running holds nobody up but its tasks."""
    admission, _ = new_admission()
    with admission.running.chat(CHAT), admission.running.chat(CHAT):
        request = Request(admission, WINDOW)
        await settle()
        assert request.is_admitted
        await request.finish()
