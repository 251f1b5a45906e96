"""Which conversation a request belongs to, and what of its messages is new."""

import logging
import time
from dataclasses import replace

import pytest
from noted_changes import NotedConversations, kinds_of

from elbowroom.agents.conversations import beginning
from elbowroom.agents.conversations.beginning import Asked, Recording
from elbowroom.agents.conversations.recording import TurnRecorder
from elbowroom.agents.request import Caller
from elbowroom.context.conversation import Conversation, Heard
from elbowroom.context.ledger import Chain
from elbowroom.providers.base import TextDelta

Json = dict[str, str]
SYSTEM: Json = {"role": "system", "content": "You are kind."}
FIRST: Json = {"role": "user", "content": "Which pier?"}
ANSWER: Json = {"role": "assistant", "content": "The ninth."}
SECOND: Json = {"role": "user", "content": "And tomorrow?"}


async def begin(recording: Recording, *messages: Json, caller: Caller | None = None) -> TurnRecorder:
    """Begin the turn of a request with these messages."""
    caller = caller or Caller(known_by="nobody else")
    live = recording.begin(Asked.of(caller.keeps_as, caller.chat_id, "writer", messages))
    assert await live.is_found(is_patient=True)
    return live


async def answered(recording: Recording, *messages: Json, caller: Caller | None = None) -> TurnRecorder:
    """Begin such a turn and answer it."""
    live = await begin(recording, *messages, caller=caller)
    live.step_began()
    live.said([TextDelta(ANSWER["content"])])
    live.called(())
    live.ended("complete", live.chain.followed_by(ANSWER))
    return live


async def kept_of(conversations: NotedConversations, live: TurnRecorder) -> Conversation:
    """Return the conversation of a turn as it is kept."""
    kept = await conversations.read(live.owner, live.conversation)
    assert kept is not None
    return kept


async def test_a_conversation_goes_on() -> None:
    """The second request brings the first one's answer: that is no new message, and the conversation the same."""
    conversations = NotedConversations()
    recording = Recording(conversations)
    first = await answered(recording, SYSTEM, FIRST)
    second = await answered(recording, SYSTEM, FIRST, ANSWER, SECOND)
    assert second.conversation == first.conversation
    kept = await kept_of(conversations, second)
    assert [message.message for message in kept.messages] == [SYSTEM, FIRST, ANSWER, SECOND, ANSWER]
    assert kept.messages[3].parent == Chain.of(second.owner, "writer", [FIRST, ANSWER]).keys[-1]
    assert second.parent == kept.messages[3].key


async def test_new_chats_are_conversations_of_their_own() -> None:
    """The same first words do not make two chats one."""
    recording = Recording(NotedConversations())
    first, second = await answered(recording, FIRST), await answered(recording, FIRST)
    assert first.conversation != second.conversation
    assert {len(live.conversation) for live in (first, second)} == {len("conv_") + 24}


async def test_a_retry_adds_a_turn_and_no_message() -> None:
    """Asked again, the conversation has another answer to the same message."""
    conversations = NotedConversations()
    recording = Recording(conversations)
    live = await answered(recording, FIRST)
    for _ in range(3):
        await answered(recording, FIRST, ANSWER, SECOND)
    kept = await kept_of(conversations, live)
    heard = [message.message for message in kept.messages if not message.turn]
    assert heard == [FIRST, SECOND]
    assert len({message.turn for message in kept.messages if message.turn}) == 4


async def test_an_edited_message_is_a_branch() -> None:
    """Only the edited message is new; it hangs where the other one hangs."""
    conversations = NotedConversations()
    recording = Recording(conversations)
    await answered(recording, SYSTEM, FIRST)
    await answered(recording, SYSTEM, FIRST, ANSWER, SECOND)
    conversations.changes.clear()
    edited = {"role": "user", "content": "And on Sunday?"}
    live = await answered(recording, SYSTEM, FIRST, ANSWER, edited)
    [heard] = conversations.noted(Heard)
    assert isinstance(heard, Heard)
    assert heard.message == edited
    assert heard.parent == Chain.of(live.owner, "writer", [FIRST, ANSWER]).keys[-1]


async def test_a_changed_system_message_is_kept_beside_the_others() -> None:
    """It makes no new conversation, since it is no part of what was said."""
    conversations = NotedConversations()
    recording = Recording(conversations)
    first = await answered(recording, SYSTEM, FIRST)
    conversations.changes.clear()
    changed = {**SYSTEM, "content": "You are short."}
    second = await answered(recording, changed, FIRST, ANSWER, SECOND)
    assert second.conversation == first.conversation
    heard = [change.message for change in conversations.noted(Heard) if isinstance(change, Heard)]
    assert heard == [changed, SECOND]


async def test_an_answer_that_was_changed_by_the_person_is_kept() -> None:
    """What the client sends as an answer and no turn has said is a message like others."""
    conversations = NotedConversations()
    recording = Recording(conversations)
    await answered(recording, FIRST)
    conversations.changes.clear()
    mine = {**ANSWER, "content": "The tenth."}
    await answered(recording, FIRST, mine, SECOND)
    heard = [change.message for change in conversations.noted(Heard) if isinstance(change, Heard)]
    assert mine in heard


async def test_a_name_is_enough() -> None:
    """Requests that name their conversation belong to it, at once and whatever they hold; owners have their own."""
    conversations = NotedConversations()
    recording = Recording(conversations)
    ada, bob = Caller(owner="ada", chat_id="chat 1"), Caller(owner="bob", chat_id="chat 1")
    first, second = await begin(recording, FIRST, caller=ada), await begin(recording, SECOND, caller=ada)
    other = await begin(recording, FIRST, caller=bob)
    assert first.conversation == second.conversation != other.conversation
    apart = await begin(Recording(NotedConversations()), FIRST, caller=ada)
    assert apart.conversation == first.conversation


@pytest.mark.parametrize("name", ["", "chat 1"])
async def test_the_id_of_an_answer_sent_back_names_its_conversation(name: str) -> None:
    """A client that begins without a name may take the id that it got for one; another user's id is nobody's."""
    conversations = NotedConversations()
    recording = Recording(conversations)
    first = await answered(recording, FIRST, caller=Caller(owner="ada", chat_id=name))
    named = Caller(owner="ada", chat_id=first.conversation)
    second = await answered(recording, FIRST, ANSWER, SECOND, caller=named)
    anew = await answered(recording, SECOND, caller=named)
    other = await answered(recording, FIRST, caller=replace(named, owner="bob"))
    assert first.conversation == second.conversation == anew.conversation != other.conversation
    kept = await kept_of(conversations, first)
    assert [message.message for message in kept.messages] == [FIRST, ANSWER, SECOND, ANSWER, SECOND, ANSWER]


@pytest.mark.parametrize("conversations", [NotedConversations(delay=30), NotedConversations(failure=OSError("disk"))])
async def test_a_store_in_trouble_costs_no_answer(
    conversations: NotedConversations, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is slow or fails leaves the request as a new conversation, which is noted all the same."""
    monkeypatch.setattr(beginning, "OPENING_SECONDS", 0.2)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        live = await begin(Recording(conversations), FIRST, ANSWER, SECOND)
    assert time.monotonic() - began < 15
    assert kinds_of(conversations.changes) == ["ConversationBegun", *["Heard"] * 3, "TurnBegun"]
    assert live.conversation.startswith("conv_")
    assert "cannot be looked up" in caplog.text


async def test_without_a_store_there_is_an_id() -> None:
    """A turn that is not kept has one as well, by its name where it has one."""
    caller = Caller(owner="ada", chat_id="chat 1")
    live = await begin(Recording(None), FIRST, caller=caller)
    known = await begin(Recording(NotedConversations()), FIRST, caller=caller)
    assert live.conversation == known.conversation
    assert (live.owner, live.agent) == ("ada", "writer")
