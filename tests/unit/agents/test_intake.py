"""What a run takes in: where it stands among the run's messages, and how the person is told of it."""

from collections.abc import Sequence
from typing import Any

from noted_changes import NotedConversations

from elbowroom.agents.answer import AnswerEvent, Notice
from elbowroom.agents.conversations.queue import FOLLOW_UP, STEER, Intake, MessageQueue, told
from elbowroom.agents.conversations.recording import TurnRecorder
from elbowroom.context.conversation import QueuedMessage
from elbowroom.context.ledger import Chain

ASKED = {"role": "user", "content": "Check the logs."}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "Empty."}


def said(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


async def show(events: Sequence[AnswerEvent]) -> None:
    """Take what a client is told."""
    assert all(isinstance(event, Notice) and event.kind == "taken in" for event in events)


def queued(number: int) -> QueuedMessage:
    """Return a message that waits."""
    return QueuedMessage(f"q{number}", "c", said(f"message {number}"), "steer", 0.0)


async def test_messages_stay_where_they_were_taken_in() -> None:
    """However the run grows, what was there before stays as it was; a reply that ends it stands before what follows."""
    queue = MessageQueue(None)
    live = TurnRecorder(NotedConversations(), "c", "", "writer", Chain.of("", "writer", [ASKED]))
    intake = Intake(queue, live, show)
    await queue.add("c", said("at once"), "follow_up")
    await intake.begin_step([ASKED], [], is_first=True)
    assert intake.merged([]) == [said("at once")]
    await queue.add("c", said("later"), "steer")
    assert await intake.take(2, STEER)
    behind_results = intake.merged([CALL, RESULT])
    assert behind_results == [said("at once"), CALL, RESULT, said("later")]
    await queue.add("c", said("then"), "follow_up")
    assert not await intake.take(2, STEER)
    reply = {"role": "assistant", "content": "Both are empty."}
    assert await intake.take(2, STEER, FOLLOW_UP, reply=reply)
    assert intake.merged([CALL, RESULT]) == [*behind_results, reply, said("then")]
    assert intake.merged([CALL, RESULT, CALL, RESULT]) == [*behind_results, reply, said("then"), CALL, RESULT]
    assert not await intake.take(2, STEER, FOLLOW_UP, reply=reply)


async def test_a_run_without_a_conversation_takes_nothing_in() -> None:
    """Its messages stay as they are."""
    intake = Intake(MessageQueue(None), None, show)
    await intake.begin_step([ASKED], [], is_first=True)
    assert not await intake.take(0, STEER, FOLLOW_UP, reply={"role": "assistant", "content": "Done."})
    intake.end()
    assert intake.merged([CALL, RESULT]) == [CALL, RESULT]


def test_the_person_is_told_in_a_line_each() -> None:
    """A long message is told by its beginning, one without a text too, and of many only how many there are more."""
    long = QueuedMessage("q", "c", said("also check\n" + "the log of May " * 20), "steer", 0.0)
    image = QueuedMessage("q", "c", {"role": "user", "content": [{"type": "image_url"}]}, "steer", 0.0)
    first, second = told("Taken in", [long, image])
    assert first.startswith("Taken in: also check the log of May")
    assert len(first) < 80
    assert second == "Taken in: a message without text"
    many = told("Taken in", [queued(number) for number in range(1000)])
    assert many == [*(f"Taken in: message {number}" for number in range(4)), "Taken in: 996 more messages"]
