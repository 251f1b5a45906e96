"""A turn whose conversation only the store can tell: what happens at each moment until the store has answered."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from noted_changes import NotedConversations, kinds_of

from elbowroom.agents.conversations.beginning import AT_ONCE, Asked, Recording
from elbowroom.agents.conversations.recording import TurnRecorder
from elbowroom.agents.request import Caller
from elbowroom.context.conversation import (
    PRUNING,
    CompactionNoted,
    ConversationBegun,
    Known,
    StepUsage,
    TurnBegun,
)
from elbowroom.errors import ConversationLocked
from elbowroom.providers.base import TextDelta
from elbowroom.store.changes import Deleted, KeptChange
from elbowroom.store.index import ConversationIndex

Json = dict[str, str]
ADA = Caller(owner="ada")
FIRST: Json = {"role": "user", "content": "Which pier?"}
ANSWER: Json = {"role": "assistant", "content": "The ninth."}
SECOND: Json = {"role": "user", "content": "And tomorrow?"}


class SlowConversations(NotedConversations):
    """Conversations whose look-ups wait until `answers` is set; the index knows what was noted."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ConversationIndex()
        self.answers = asyncio.Event()
        self.looked_up = 0

    def note(self, changes: Sequence[KeptChange]) -> None:
        """Take changes in."""
        self.index.note(changes)
        super().note(changes)

    def remembered(self, owner: str, name: str, keys: Sequence[str], common: int) -> Known | None:
        """Tell what the index knows."""
        return self.index.look_up(owner, name, keys, common)

    async def look_up(self, owner: str, name: str, keys: Sequence[str], common: int = 0) -> Known | None:
        """Read the answer, and tell it later."""
        self.looked_up += 1
        known = await super().look_up(owner, name, keys, common)
        await self.answers.wait()
        return None if known is not None and self.index.was_deleted(known.conversation) else known


def begin(recording: Recording, *messages: Json, caller: Caller = ADA) -> TurnRecorder:
    """Begin the turn of a request with these messages."""
    return recording.begin(Asked.of(caller.keeps_as, caller.chat_id, "writer", messages))


def say(live: TurnRecorder, text: str = ANSWER["content"]) -> None:
    """Answer a turn to its end."""
    live.said([TextDelta(text)])
    live.called(())
    live.ended("complete", live.chain.followed_by({"role": "assistant", "content": text}))


async def kept(conversations: SlowConversations, conversation: str) -> list[object]:
    """Return the contents of all messages of a conversation."""
    found = await conversations.read("ada", conversation)
    return [message.message["content"] for message in found.messages] if found else []


async def begun_before(conversations: SlowConversations) -> str:
    """Keep a conversation of which the index knows nothing, as one of an earlier process; return its id."""
    live = begin(Recording(conversations), FIRST)
    say(live)
    conversations.index = ConversationIndex()
    conversations.changes.clear()
    return live.conversation


async def test_changes_wait_for_the_conversation_in_order() -> None:
    """Nothing of a turn is noted before its conversation is known, and then all of it, also where it has ended."""
    conversations = SlowConversations()
    conversation = await begun_before(conversations)
    told: list[str] = []
    live = begin(Recording(conversations), FIRST, ANSWER, SECOND)
    live.tell(lambda: told.append(live.conversation))
    live.compacted(900, 300, "plan")
    say(live, "The tenth.")
    assert not await live.is_found()
    assert conversations.changes == []
    conversations.answers.set()
    assert await live.is_found(is_patient=True)
    assert kinds_of(conversations.changes) == [
        "Heard",
        "TurnBegun",
        "CompactionNoted",
        "ReplyBegun",
        "ReplyGrew",
        "ReplyEnded",
        "TurnEnded",
    ]
    assert [change.conversation for change in conversations.changes if isinstance(change, CompactionNoted)] == [
        conversation
    ]
    assert told == ["", conversation]
    assert await kept(conversations, conversation) == ["Which pier?", "The ninth.", "And tomorrow?", "The tenth."]


async def test_a_pruning_agent_that_works_meanwhile() -> None:
    """What it uses before the conversation is found counts for the conversation that is found."""
    conversations = SlowConversations()
    conversation = await begun_before(conversations)
    live = begin(Recording(conversations), FIRST, ANSWER, SECOND)
    live.pruner_used("m", StepUsage(input=70, output=5))
    conversations.answers.set()
    assert await live.is_found(is_patient=True)
    turns = [change for change in conversations.changes if isinstance(change, TurnBegun)]
    assert [(turn.conversation, turn.turn) for turn in turns] == [
        (conversation, live.id),
        (conversation, f"{PRUNING}{conversation}"),
    ]


async def test_a_client_that_leaves_first() -> None:
    """What was said until then is kept in the right conversation, though nobody waits for it any more."""
    conversations = SlowConversations()
    conversation = await begun_before(conversations)
    recording = Recording(conversations)
    live = begin(recording, FIRST, ANSWER, SECOND)
    live.said([TextDelta("The te")])
    live.ended("interrupted", "")
    conversations.answers.set()
    await recording.aclose()
    assert (await kept(conversations, conversation))[2:] == ["And tomorrow?", "The te"]


async def test_two_requests_at_once_that_nobody_knows() -> None:
    """Both look in vain for the same history; one begins a conversation, and the other one goes on with it."""
    conversations = SlowConversations()
    recording = Recording(conversations)
    one, other = (begin(recording, FIRST, ANSWER, SECOND) for _ in range(2))
    conversations.answers.set()
    assert await one.is_found(is_patient=True)
    assert await other.is_found(is_patient=True)
    assert one.conversation == other.conversation != ""
    assert len(conversations.noted(ConversationBegun)) == 1


async def test_two_requests_at_once_of_one_name() -> None:
    """Both have the same id from the start, and the store is asked for another one that has the name."""
    conversations = SlowConversations()
    named = replace(ADA, chat_id="chat 7")
    one, other = (begin(Recording(conversations), FIRST, caller=named) for _ in range(2))
    assert one.conversation == other.conversation != ""
    conversations.answers.set()
    assert await one.is_found(is_patient=True)
    assert await other.is_found(is_patient=True)
    assert one.conversation == other.conversation
    assert len(await conversations.rows("ada")) == 1


async def test_a_turn_that_follows_before_the_first_is_found() -> None:
    """The second turn of a conversation whose first one still waits belongs to the same."""
    conversations = SlowConversations()
    recording = Recording(conversations)
    first = begin(recording, FIRST, ANSWER, SECOND)
    say(first, "The tenth.")
    second = begin(recording, FIRST, ANSWER, SECOND, {**ANSWER, "content": "The tenth."}, FIRST)
    conversations.answers.set()
    assert await second.is_found(is_patient=True)
    assert first.conversation == second.conversation


async def test_an_answer_comes_back_before_its_conversation_is_found() -> None:
    """Each message is kept once, though what the store tells is older than the answer."""
    conversations = SlowConversations()
    conversation = await begun_before(conversations)
    recording = Recording(conversations)
    say(begin(recording, FIRST, ANSWER, SECOND), "The tenth.")
    await asyncio.sleep(0)
    live = begin(recording, FIRST, ANSWER, SECOND, {**ANSWER, "content": "The tenth."}, FIRST)
    say(live, "The ninth, again.")
    await asyncio.sleep(0)
    conversations.answers.set()
    await recording.aclose()
    assert live.conversation == conversation
    contents = ["Which pier?", "The ninth.", "And tomorrow?", "The tenth.", "Which pier?", "The ninth, again."]
    assert await kept(conversations, conversation) == contents


async def test_deleted_while_it_is_looked_up() -> None:
    """The answer of the store is older than the deletion: all that the client sends is a new conversation."""
    conversations = SlowConversations()
    conversation = await begun_before(conversations)
    live = begin(Recording(conversations), FIRST, ANSWER, SECOND)
    await asyncio.sleep(0)
    assert conversations.looked_up == 1
    assert await conversations.delete("ada", conversation)
    conversations.index.note([Deleted(conversation)])
    conversations.answers.set()
    assert await live.is_found(is_patient=True)
    assert live.conversation != conversation
    assert await kept(conversations, live.conversation) == ["Which pier?", "The ninth.", "And tomorrow?"]


async def test_a_new_chat_asks_nobody() -> None:
    """A first question without a name cannot be known, and its conversation begins at once."""
    conversations = SlowConversations()
    live = begin(Recording(conversations), FIRST)
    assert live.is_placed
    assert live.conversation
    assert conversations.looked_up == 0


async def test_only_where_something_is_hidden_it_is_read() -> None:
    """A conversation whose turns are all single replies is not read for what the client has never seen."""
    conversations = SlowConversations()
    recording = Recording(conversations)
    say(begin(recording, FIRST))
    conversations.failure = AssertionError("the turns are read")
    live = begin(recording, FIRST, ANSWER, SECOND)
    assert live.is_placed
    assert await live.hidden(live.chain, -1) == []


async def test_many_new_messages_are_noted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between five hundred messages others have their turn, and nothing of the conversation is lost."""
    conversations = SlowConversations()
    conversations.index.take_no_more(has_all=True)
    sizes: list[int] = []
    note = conversations.note

    def measured(changes: Sequence[KeptChange]) -> None:
        sizes.append(len(changes))
        note(changes)

    monkeypatch.setattr(conversations, "note", measured)
    said = [{"role": "user", "content": f"{number}"} for number in range(1, 1201)]
    live = begin(Recording(conversations), *said)
    assert not live.is_placed
    say(live, "The tenth.")
    assert await live.is_found(is_patient=True)
    assert max(sizes) <= AT_ONCE + 4
    assert conversations.looked_up == 0
    assert await kept(conversations, live.conversation) == [*(one["content"] for one in said), "The tenth."]


async def test_a_long_history_is_not_deleted_while_it_is_noted() -> None:
    """Between the pieces in which it is noted its conversation is answered already, so that no half of it is left."""
    conversations = SlowConversations()
    conversations.answers.set()
    recording = Recording(conversations)
    long = [{"role": role, "content": f"{number}"} for number in range(AT_ONCE) for role in ("user", "assistant")]
    live = begin(recording, *long, SECOND)
    while not conversations.changes:  # noqa: ASYNC110  # a piece of it, after which others have their turn
        await asyncio.sleep(0)
    assert not live.is_placed
    with pytest.raises(ConversationLocked):
        async with recording.locks.changing(live.conversation):
            pass
    assert await live.is_found(is_patient=True)
    say(live)
    async with recording.locks.changing(live.conversation):
        await conversations.delete("ada", live.conversation)
    assert await kept(conversations, live.conversation) == []


async def test_turns_wait_for_a_change_of_their_conversation() -> None:
    """Those that come while it is deleted begin it anew and whole; two changes wait for each other."""
    conversations = SlowConversations()
    conversations.answers.set()
    recording = Recording(conversations)
    named = replace(ADA, chat_id="pier")
    first = begin(recording, FIRST, caller=named)
    assert await first.is_found(is_patient=True)
    say(first)
    async with recording.locks.changing(first.conversation):
        lives = [begin(recording, FIRST, ANSWER, SECOND, caller=named) for _ in range(2)]
        assert [await live.is_found() for live in lives] == [False, False]
        other = asyncio.create_task(recording.locks.changed(first.conversation))
        await conversations.delete("ada", first.conversation)
        conversations.note([Deleted(first.conversation)])
        assert not other.done()
    for live in lives:
        assert await live.is_found(is_patient=True)
        say(live, "The tenth.")
    assert {live.conversation for live in lives} == {first.conversation}
    assert (await kept(conversations, first.conversation))[:3] == ["Which pier?", "The ninth.", "And tomorrow?"]
    assert not recording.locks._locks
