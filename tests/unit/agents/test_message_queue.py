"""Messages that wait for turns: in order, each handed over once, and there again after a restart."""

import asyncio
from typing import Any

import pytest
from queue_journal import QueueJournal

from elbowroom.agents.conversations.queue import (
    ANY,
    FOLLOW_UP,
    LOADING_SECONDS,
    MOST_BYTES,
    MOST_WAITING,
    STEER,
    MessageQueue,
    QueueFull,
)
from elbowroom.context.conversation import QueuedMessage, QueueMode
from elbowroom.errors import BodyTooLarge


def said(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def texts(items: list[QueuedMessage]) -> list[str]:
    """Return what messages say."""
    return [item.message["content"] for item in items]


async def fill(queue: MessageQueue, *messages: tuple[str, QueueMode]) -> None:
    """Add messages to the conversation c."""
    for text, mode in messages:
        await queue.add("c", said(text), mode)


@pytest.fixture
def journal() -> QueueJournal:
    """Return where the queue is kept."""
    return QueueJournal()


@pytest.fixture
def queue(journal: QueueJournal) -> MessageQueue:
    """Return a queue in which nothing waits."""
    return MessageQueue(journal, clock=lambda: 7.0)


async def test_queue_of_a_conversation_that_is_not_kept(queue: MessageQueue) -> None:
    """A message waits in memory alone, is said not to be stored, and is read like any other."""
    accepted = await queue.add("c", said("only here"), "steer", is_kept=False)
    assert not accepted.is_stored
    assert texts(queue.take("c", "turn", ANY)) == ["only here"]


async def test_messages_are_taken_in_the_order_in_which_they_came(queue: MessageQueue) -> None:
    """Each is told its place, and a turn gets them in this order, once."""
    accepted = [await queue.add("c", said(text), "steer") for text in ("one", "two", "three")]
    assert [one.position for one in accepted] == [1, 2, 3]
    assert all(one.is_stored for one in accepted)
    taken = queue.take("c", "turn", ANY)
    assert texts(taken) == ["one", "two", "three"]
    assert [item.id for item in taken] == [one.id for one in accepted]
    assert queue.take("c", "other", ANY) == []


async def test_modes_are_taken_each_for_itself(queue: MessageQueue) -> None:
    """A turn that wants what steers it leaves what is to follow its answer."""
    await fill(queue, ("later", "follow_up"), ("now", "steer"), ("later too", "follow_up"))
    assert texts(queue.take("c", "turn", STEER)) == ["now"]
    assert texts(queue.waiting("c")) == ["later", "later too"]
    assert texts(queue.take("c", "turn", FOLLOW_UP)) == ["later", "later too"]


async def test_conversations_have_queues_of_their_own(queue: MessageQueue) -> None:
    """What waits in one is not handed to a turn of another."""
    await queue.add("one", said("for one"), "steer")
    await queue.add("two", said("for two"), "steer")
    assert texts(queue.take("two", "turn", ANY)) == ["for two"]
    assert texts(queue.waiting("one")) == ["for one"]


async def test_what_no_model_has_read_waits_again_in_its_old_place(queue: MessageQueue) -> None:
    """A turn that fails gives its messages back: before those that came later, after those that it left."""
    await fill(queue, ("a", "follow_up"), ("b", "steer"), ("c", "steer"))
    queue.take("c", "turn", STEER)
    await queue.add("c", said("d"), "steer")
    queue.give_back("turn")
    assert texts(queue.waiting("c")) == ["a", "b", "c", "d"]


async def test_what_was_delivered_does_not_come_back(queue: MessageQueue, journal: QueueJournal) -> None:
    """Neither when the turn fails later nor after a restart."""
    await queue.add("c", said("read"), "steer")
    queue.take("c", "turn", ANY)
    queue.delivered("turn")
    await queue.add("c", said("not read"), "steer")
    queue.take("c", "turn", ANY)
    queue.give_back("turn")
    assert texts(queue.waiting("c")) == ["not read"]
    assert texts(await journal.queue()) == ["not read"]


async def test_messages_that_wait_can_be_removed(queue: MessageQueue, journal: QueueJournal) -> None:
    """One of them or all; those that a turn has taken in stay with it."""
    await fill(queue, ("taken", "follow_up"), ("kept", "steer"), ("removed", "steer"))
    queue.take("c", "turn", FOLLOW_UP)
    [taken], waiting = queue.taken("c"), queue.waiting("c")
    assert texts(queue.remove("c", [waiting[1].id, taken.id, "qmsg_unknown"])) == ["removed"]
    assert texts(queue.waiting("c")) == ["kept"]
    assert texts(queue.clear("c")) == ["kept"]
    assert queue.waiting("c") == []
    assert texts(queue.taken("c")) == ["taken"]
    assert texts(list(journal.kept().values())) == ["taken"]


async def test_a_queue_goes_on_where_another_process_left_it(queue: MessageQueue, journal: QueueJournal) -> None:
    """What waited waits, and what a turn had taken that never ended too, in the old order, before what comes now."""
    await fill(queue, ("one", "steer"), ("two", "follow_up"), ("three", "steer"))
    queue.take("c", "turn", STEER)
    again = MessageQueue(journal)
    assert (await again.add("c", said("four"), "steer")).position == 4
    assert texts(again.take("c", "next", ANY)) == ["one", "two", "three", "four"]


async def test_what_a_slow_store_has_comes_in_later(journal: QueueJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat does not wait for it; once it is there it stands before what came meanwhile, and nothing stands twice."""
    monkeypatch.setattr("elbowroom.agents.conversations.queue.LOADING_SECONDS", LOADING_SECONDS / 100)
    await MessageQueue(journal).add("c", said("left"), "steer")
    is_open = asyncio.Event()

    class Slow(QueueJournal):
        async def queue(self) -> list[QueuedMessage]:
            await is_open.wait()
            return await super().queue()

    slow = Slow()
    slow.changes = journal.changes
    queue = MessageQueue(slow)
    assert (await queue.add("c", said("new"), "steer")).position == 1
    gone = await queue.add("c", said("gone"), "follow_up")
    queue.remove("c", [gone.id])
    is_open.set()
    await queue.load()
    assert texts(queue.take("c", "turn", ANY)) == ["left", "new"]


async def test_a_queue_that_is_still_being_read_can_be_closed(journal: QueueJournal) -> None:
    """Closing leaves no task behind, whether or not anything was read."""
    queue = MessageQueue(journal)
    await queue.aclose()

    class Never(QueueJournal):
        async def queue(self) -> list[QueuedMessage]:
            await asyncio.Event().wait()
            return []

    queue, before = MessageQueue(Never()), asyncio.all_tasks()
    loading = asyncio.create_task(queue.load())
    await asyncio.sleep(0)
    await queue.aclose()
    await loading
    assert asyncio.all_tasks() == before


async def test_without_a_store_messages_are_kept_in_memory(queue: MessageQueue, journal: QueueJournal) -> None:
    """Whoever adds one is told that a restart would lose it."""
    journal.works = False
    assert not (await queue.add("c", said("hello"), "steer")).is_stored
    assert texts(queue.take("c", "turn", ANY)) == ["hello"]


async def test_a_queue_is_bounded(queue: MessageQueue) -> None:
    """Too many messages are refused with 429, a message that is too large with 413; other queues are not concerned."""
    await asyncio.gather(*(queue.add("c", said("x"), "steer") for _ in range(MOST_WAITING)))
    with pytest.raises(QueueFull, match="1,000 messages wait") as full:
        await queue.add("c", said("x"), "steer")
    assert full.value.status == 429
    assert (await queue.add("other", said("x"), "steer")).position == 1
    with pytest.raises(BodyTooLarge, match="may wait in a queue") as large:
        await queue.add("other", said("ä" * (MOST_BYTES // 2)), "steer")
    assert large.value.status == 413
    assert len(queue.waiting("other")) == 1
