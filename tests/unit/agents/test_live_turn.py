"""A turn is noted as it comes: in order, in few pieces, never later than promised, and to its end."""

import pytest
from noted_changes import NotedConversations, kinds_of

from elbowroom.agents.answer import ToolCall
from elbowroom.agents.conversations.recording import HANDED_OVER, MOST_WAITING, TurnRecorder
from elbowroom.context.conversation import (
    Added,
    CompactionNoted,
    ContextFill,
    Conversation,
    ConversationBegun,
    QueuedMessage,
    QueueDropped,
    ReplyBegun,
    ReplyGrew,
    StepUsage,
    StepUsed,
    TurnBegun,
    TurnEnded,
)
from elbowroom.context.ledger import Chain
from elbowroom.context.transcript import Message
from elbowroom.providers.base import ReasoningDelta, TextDelta

ASKED = {"role": "user", "content": "What is in a.md?"}
CHAIN = Chain.of("", "writer", [ASKED])
CALLS = [ToolCall("aaaaaaaaa", "read_note", '{"path": "a.md"}'), ToolCall("bbbbbbbbb", "list", "{}")]


def begun(conversations: NotedConversations) -> TurnRecorder:
    """Return a turn of a conversation that is known."""
    live = TurnRecorder(conversations, "conv_1", "", "writer", CHAIN)
    known = ConversationBegun("conv_1", "", "", "writer", 0.0)
    conversations.note([known, TurnBegun(live.id, "conv_1", live.parent, "writer", 0.0)])
    conversations.changes.clear()
    return live


def words(count: int) -> list[TextDelta | ReasoningDelta]:
    """Return so many pieces of a text."""
    return [TextDelta(f"{number} ") for number in range(count)]


async def read(conversations: NotedConversations) -> Conversation:
    """Return the one conversation."""
    kept = await conversations.read("", "conv_1")
    assert kept is not None
    return kept


async def test_a_turn_with_tools_is_kept_in_order() -> None:
    """A reply stands before the results of its calls, thoughts beside the words, and then the next reply."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.step_began()
    live.said([ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta("Read"), TextDelta("ing.")])
    live.called(CALLS)
    live.returned("bbbbbbbbb", "a.md")
    live.returned("aaaaaaaaa", "Water the plants.")
    live.step_used("qwen", StepUsage(10, 2), ContextFill(12, 100, 80, 90))
    live.step_began()
    live.said([TextDelta("Plants.")])
    live.called(())
    live.ended("complete", "key")
    made = [call.as_openai() for call in CALLS]
    kept = await read(conversations)
    assert [message.message for message in kept.messages] == [
        {"role": "assistant", "content": "Reading.", "tool_calls": made},
        {"role": "tool", "tool_call_id": "bbbbbbbbb", "content": "a.md"},
        {"role": "tool", "tool_call_id": "aaaaaaaaa", "content": "Water the plants."},
        {"role": "assistant", "content": "Plants."},
    ]
    assert [message.status for message in kept.messages] == ["complete"] * 4
    assert kept.messages[0].reasoning == "Hm."
    assert kept.row.totals.usage.total == 12


async def test_words_are_noted_together_and_by_kind() -> None:
    """What waits is noted as one piece for each run of thoughts or words."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.said([ReasoningDelta("a"), ReasoningDelta("b"), TextDelta("c")])
    live.said([TextDelta("d"), ReasoningDelta("e")])
    assert conversations.changes == []
    live.hand_on()
    grown = conversations.noted(ReplyGrew)
    assert [(change.kind, change.text) for change in grown if isinstance(change, ReplyGrew)] == [
        ("reasoning", "ab"),
        ("text", "cd"),
        ("reasoning", "e"),
    ]


async def test_so_many_words_are_noted_without_waiting() -> None:
    """No more than 64 pieces wait, whatever the time."""
    conversations = NotedConversations()
    live = begun(conversations)
    for piece in words(MOST_WAITING - 1):
        live.said([piece])
    assert conversations.changes == []
    live.said([TextDelta("last")])
    assert kinds_of(conversations.changes) == ["ReplyBegun", "ReplyGrew"]


async def test_words_are_noted_when_the_store_asks_for_them() -> None:
    """A turn in which nothing more happens is noted as far as it has come; between two words the store is told once."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.said(words(3))
    live.said(words(1))
    assert len(conversations.handing_on) == 1
    conversations.hand_on()
    [reply, grown] = conversations.changes
    assert isinstance(grown, ReplyGrew)
    assert (kinds_of([reply]), grown.text) == (["ReplyBegun"], "0 1 2 0 ")
    live.said(words(1))
    conversations.hand_on()
    assert len(conversations.noted(ReplyGrew)) == 2


async def test_a_reply_that_says_nothing_leaves_nothing() -> None:
    """A step that is asked again, or whose reply is empty, is no message."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.step_began()
    live.said([TextDelta("", logprobs={"content": []})])
    live.step_began()
    live.called(())
    live.ended("complete", "key")
    assert kinds_of(conversations.changes) == ["TurnEnded"]


async def test_what_was_being_said_is_interrupted_with_its_turn() -> None:
    """The words that have come are kept, those that waited too, and the reply says that it is not whole."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.said(words(3))
    live.ended("interrupted", "key")
    [message] = (await read(conversations)).messages
    assert (message.message["content"], message.status) == ("0 1 2 ", "interrupted")


async def test_a_turn_ends_once() -> None:
    """Who ends it first says how, and of what comes late only what a step has used is noted behind its end."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.called(CALLS)
    live.ended("interrupted", "key")
    live.ended("complete", "")
    live.said(words(MOST_WAITING))
    live.called(CALLS)
    live.returned("aaaaaaaaa", "late")
    [end] = conversations.noted(TurnEnded)
    assert isinstance(end, TurnEnded)
    assert (end.status, end.key) == ("interrupted", "key")
    assert conversations.changes[-1] is end
    live.step_used("qwen", StepUsage(1, 1), None)
    assert kinds_of(conversations.changes)[-2:] == ["TurnEnded", "StepUsed"]


async def test_a_compaction_behind_the_answer_is_noted() -> None:
    """It is the conversation's, which goes on when the turn has ended."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.ended("complete", "key")
    live.compacted(900, 300, "plan")
    assert isinstance(conversations.changes[-1], CompactionNoted)


async def test_a_result_is_kept_once() -> None:
    """What a tool has returned is not kept again when the SDK hands it in, and nothing of what the client sent."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.called(CALLS)
    live.returned("aaaaaaaaa", "Water the plants.")
    missing = {"role": "tool", "tool_call_id": "bbbbbbbbb", "content": "There is no such tool."}
    appended: list[Message] = [
        {"role": "assistant", "content": "", "tool_calls": [call.as_openai() for call in CALLS]},
        {"role": "tool", "tool_call_id": "aaaaaaaaa", "content": "Water the plants."},
        missing,
        {"role": "tool", "tool_call_id": "of another", "content": "?"},
    ]
    live.results(appended)
    live.results(appended)
    added = [change.content for change in conversations.noted(Added) if isinstance(change, Added)]
    assert added == [{"role": "tool", "tool_call_id": "aaaaaaaaa", "content": "Water the plants."}, missing]


async def test_messages_from_the_queue_leave_it_with_the_first_word_behind_them() -> None:
    """They stand before the reply that answers them, and the same moment takes them out of the queue."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.said(words(1))
    live.called(())
    message = {"role": "user", "content": "Stop that."}
    live.took_in([QueuedMessage("q1", "conv_1", message, "steer", 0.0)])
    live.step_began()
    assert live.unread
    assert kinds_of(conversations.changes) == ["ReplyBegun", "ReplyGrew", "ReplyEnded"]
    live.said(words(1))
    live.hand_on()
    assert not live.unread
    assert kinds_of(conversations.changes[3:]) == ["Added", "QueueDropped", "ReplyBegun", "ReplyGrew"]
    assert conversations.noted(QueueDropped) == [QueueDropped(("q1",))]


async def test_messages_from_the_queue_that_no_model_has_read_are_no_part_of_the_turn() -> None:
    """They can wait again: a turn that fails before the first word leaves them to the queue."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.took_in([QueuedMessage("q1", "conv_1", {"role": "user", "content": "Stop that."}, "steer", 0.0)])
    live.step_began()
    live.ended("interrupted", "")
    assert live.unread
    assert kinds_of(conversations.changes) == ["TurnEnded"]


async def test_usage_stands_behind_the_words() -> None:
    """The step that it is of has been noted by then."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.said(words(1))
    live.step_used("qwen", StepUsage(5, 1), None)
    assert [type(change) for change in conversations.changes] == [ReplyBegun, ReplyGrew, StepUsed]


@pytest.mark.parametrize("failure", [None, OSError("disk")])
async def test_hidden_turns_are_read_or_left_out(failure: Exception | None) -> None:
    """What the client never saw is found behind a place in the chain; a store that fails has none."""
    conversations = NotedConversations()
    live = begun(conversations)
    said = {"role": "assistant", "content": "Plants."}
    live.called(CALLS)
    live.returned("aaaaaaaaa", "Water the plants.")
    live.said([TextDelta("Plants.")])
    live.called(())
    live.ended("complete", CHAIN.followed_by(said))
    conversations.failure = failure
    chain = Chain.of("", "writer", [ASKED, said, {"role": "user", "content": "Thanks."}])
    found = [[turn.id for turn in await live.hidden(chain, place)] for place in (-1, 0, 1, 2)]
    assert found == ([[live.id], [live.id], [], []] if failure is None else [[], [], [], []])


async def test_a_turn_that_was_handed_over_is_not_put_back() -> None:
    """It is kept with the handover, of which the agent that is asked next is told nothing."""
    conversations = NotedConversations()
    live = begun(conversations)
    live.called(CALLS[:1])
    live.returned("aaaaaaaaa", f"{HANDED_OVER} The Editor answers the user from here on.")
    live.said([TextDelta("Plants.")])
    live.called(())
    live.ended("complete", CHAIN.followed_by({"role": "assistant", "content": "Plants."}))
    chain = Chain.of("", "writer", [ASKED, {"role": "assistant", "content": "Plants."}])
    assert await live.hidden(chain, -1) == []
    assert len(await conversations.turns("conv_1", chain.keys)) == 1


async def test_without_a_store_nothing_is_kept() -> None:
    """A turn whose conversation is not kept takes everything, and has nothing hidden."""
    live = TurnRecorder(None, "conv_1", "", "writer", CHAIN)
    live.step_began()
    live.said(words(MOST_WAITING))
    live.called(CALLS)
    live.returned("aaaaaaaaa", "?")
    live.ended("complete", "key")
    assert await live.hidden(CHAIN, -1) == []
