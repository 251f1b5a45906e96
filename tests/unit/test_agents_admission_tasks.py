"""A task - a title, tags, follow-ups - waits for its chat."""

import asyncio

import pytest
from admitted_requests import MODEL, WINDOW, Request, new_admission, requests
from manual_clock import settle

from elbowroom.agents.admission import Admission, ChatKey
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
    with admission.chat(CHAT):
        await clock.elapse(60)
        assert not task.done()
    await settle()
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
    """Other chats of the model, unnamed ones and other models' do not concern one that names its chat."""
    admission, clock = new_admission()
    with admission.chat(OTHER_CHAT), admission.chat(UNNAMED), admission.chat(OTHER_MODEL):
        task = begin(admission, CHAT)
        await clock.elapse(0.4)
        assert task.done()


@pytest.mark.parametrize("running", [CHAT, UNNAMED])
async def test_a_task_that_names_no_chat_waits_for_all_of_the_model(running: ChatKey) -> None:
    """Those of other models do not concern it."""
    admission, clock = new_admission()
    with admission.chat(OTHER_MODEL):
        with admission.chat(running):
            task = begin(admission, UNNAMED)
            await clock.elapse(5)
            assert not task.done()
        await settle()
        assert task.done()


async def test_a_chat_that_begins_meanwhile_is_waited_for_too() -> None:
    """Also where it begins at the very moment at which the one before it ends, and where one chat runs twice."""
    admission, clock = new_admission()
    with admission.chat(CHAT):
        task = begin(admission, CHAT)
        await clock.elapse(1)
        second = admission.chat(CHAT)
        second.__enter__()
    await settle()
    assert not task.done()
    second.__exit__(None, None, None)
    with admission.chat(CHAT):
        await settle()
        assert not task.done()
    await settle()
    assert task.done()


async def test_a_chat_that_fails_has_ended() -> None:
    """Its tasks do not wait for ever."""
    admission, clock = new_admission()
    task = begin(admission, CHAT)

    async def fail() -> None:
        with admission.chat(CHAT):
            await clock.sleep(1)
            raise ConnectionResetError

    chat = asyncio.create_task(fail())
    await clock.elapse(0.9)
    assert not task.done()
    await clock.elapse(0.2)
    assert isinstance(chat.exception(), ConnectionResetError)
    assert task.done()


async def test_waiting_tasks_count_for_the_queue() -> None:
    """The next task that would have to wait is refused, and the next chat too; one with room for it is not."""
    admission, clock = new_admission(max_waiting=2)
    with admission.chat(CHAT):
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
    await settle()
    assert all(task.done() for task in waiting)


async def test_a_task_that_gives_up_leaves_no_trace() -> None:
    """Neither while it waits for a moment nor while it waits for its chat."""
    admission, clock = new_admission()
    with admission.chat(CHAT):
        first, second = begin(admission, CHAT), begin(admission, UNNAMED)
        await settle()
        first.cancel()
        await clock.elapse(1)
        assert admission.waiting(MODEL) == 1
        second.cancel()
        await settle()
        assert admission.waiting(MODEL) == 0
    assert clock.appointments == 0


async def test_chats_do_not_wait_for_chats() -> None:
    """Marking a chat as running holds nobody up but its tasks."""
    admission, _ = new_admission()
    with admission.chat(CHAT), admission.chat(CHAT):
        request = Request(admission, WINDOW)
        await settle()
        assert request.is_admitted
        await request.finish()
