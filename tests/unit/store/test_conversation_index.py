"""The index of conversations answers as the database does, from what is noted or read, and stays within its bounds."""

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from memory_stores import MemoryConversations

from elbowroom.agents.conversations.beginning import Asked, Recording
from elbowroom.agents.request import Caller
from elbowroom.context.conversation import NONE_KNOWN, ConversationBegun, Heard, Known, TurnEnded
from elbowroom.context.transcript import Message
from elbowroom.providers.base import TextDelta
from elbowroom.store.changes import Deleted, KeptChange
from elbowroom.store.index import ConversationIndex, fill
from elbowroom.store.index.conversation_index import BYTES_A_CONVERSATION, BYTES_A_KEY, MOST_LOOKED_UP
from elbowroom.store.index.keys import KeyTable, number_of, numbers_of

SYSTEM: Message = {"role": "system", "content": "You are kind."}


class IndexedConversations(MemoryConversations):
    """Conversations in a database, with an index that takes in what is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ConversationIndex()

    def note(self, changes: Sequence[KeptChange]) -> None:
        """Take changes in."""
        self.index.note(changes)
        super().note(changes)

    async def both(self, asked: Asked) -> tuple[Known | None, Known]:
        """Return what the index and what the database tells of a request."""
        keys, common = asked.keys, asked.common
        stored = await self.look_up(asked.owner, asked.name, keys, common)
        return self.index.look_up(asked.owner, asked.name, keys, common), stored or NONE_KNOWN


async def complete() -> IndexedConversations:
    """Return conversations of which there are none yet, and whose index knows that."""
    conversations = IndexedConversations()
    await fill(conversations.index, conversations)
    assert conversations.index.is_complete
    return conversations


def asked_of(messages: Sequence[Message], caller: Caller) -> Asked:
    """Return a request with these messages."""
    return Asked.of(caller.keeps_as, caller.chat_id, "writer", [{**message} for message in messages])


async def turn(
    conversations: IndexedConversations, messages: Sequence[Message], caller: Caller, answer: str
) -> list[Message]:
    """Answer a request; return the history with the answer. An empty answer is interrupted before its first word."""
    live = Recording(conversations).begin(asked_of(messages, caller))
    await live.is_found(is_patient=True)
    said = {"role": "assistant", "content": answer}
    if answer:
        live.said([TextDelta(answer)])
        live.called(())
    live.ended("complete" if answer else "interrupted", live.chain.followed_by(said) if answer else "")
    return [*messages, said] if answer else list(messages)


async def lived(conversations: IndexedConversations, seed: int) -> list[Asked]:
    """Let people chat at random, with the same beginnings, edits, branches and deletions; return what they may ask."""
    dice = random.Random(seed)
    histories: list[list[Message]] = []
    asked: list[Asked] = []
    callers = [Caller(owner="ada"), Caller(owner="bob"), Caller(owner="ada", chat_id="chat 7")]
    for _ in range(40):
        caller, history = dice.choice(callers), list(dice.choice(histories)) if histories else []
        if not history or dice.random() < 0.2:
            history = [SYSTEM] if dice.random() < 0.7 else []
        history = history[: dice.randint(0, len(history))] if dice.random() < 0.3 else history
        question: Message = {"role": "user", "content": dice.choice(["Hello", "And?", f"{dice.random()}"])}
        history = await turn(conversations, [*history, question], caller, dice.choice(["", "Hi.", f"{dice.random()}"]))
        histories.append(history)
        asked += [asked_of([*history, {"role": "user", "content": "More"}], caller), asked_of(history, caller)]
        if dice.random() < 0.1 and (rows := await conversations.rows("ada")):
            await conversations.delete("ada", dice.choice(rows).id)
            conversations.index.note([Deleted(row.id) for row in rows if not await conversations.find("ada", row.id)])
    return asked


@pytest.mark.parametrize("seed", range(6))
async def test_it_answers_as_the_database_does(seed: int) -> None:
    """Whatever people do, memory finds the same conversation with the same keys, as noted and as read anew."""
    conversations = await complete()
    asked = await lived(conversations, seed)
    for index in (conversations.index, ConversationIndex()):
        conversations.index = index
        await fill(index, conversations)
        for request in asked:
            remembered, stored = await conversations.both(request)
            assert remembered == stored
            assert remembered is not None
            assert remembered.may_have_hidden <= stored.may_have_hidden
        assert index.misses == 0 < index.hits


async def test_a_greeting_is_no_answer() -> None:
    """Two chats that begin with the client's own greeting and the same question are two conversations."""
    conversations = await complete()
    caller = Caller(owner="ada")
    greeted: list[Message] = [{"role": "assistant", "content": "Welcome."}, {"role": "user", "content": "Hello"}]
    history = await turn(conversations, greeted, caller, "Hi.")
    for request in (asked_of(greeted, caller), asked_of(history, caller)):
        remembered, stored = await conversations.both(request)
        assert remembered == stored
    assert (await conversations.both(asked_of(greeted, caller)))[0] == NONE_KNOWN


def test_a_long_history_without_an_answer_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up takes so many steps as the history has messages, also where no conversation has answered any."""
    index = ConversationIndex()
    index.take_no_more(has_all=True)
    index.note([ConversationBegun("conv_1", "ada", "", "writer", 1.0)])
    keys = [f"{number * 2_654_435_761:032x}"[::-1] for number in range(1, 501)]
    index.note([Heard("conv_1", key, "p", {"role": "user", "content": ""}, 1.0) for key in keys])
    looks: list[int] = []
    has = KeyTable.has

    def counted(table: KeyTable, key: int, holder: int) -> bool:
        looks.append(key)
        return has(table, key, holder)

    monkeypatch.setattr(KeyTable, "has", counted)
    assert index.look_up("ada", "", [*keys, "f" * 32], 1) == NONE_KNOWN
    assert 0 < len(looks) <= 2 * len(keys)


async def test_until_it_is_complete_it_finds_only_what_is_sure() -> None:
    """A history that it knows but for the last message is found; one that it does not know may be an older one."""
    conversations = IndexedConversations()
    known = await turn(conversations, [{"role": "user", "content": "Hello"}], Caller(owner="ada"), "Hi.")
    more: Message = {"role": "user", "content": "More"}
    remembered, stored = await conversations.both(asked_of([*known, more], Caller(owner="ada")))
    assert remembered == stored != NONE_KNOWN
    remembered, _ = await conversations.both(asked_of([*known, more, {**more, "role": "assistant"}, more], Caller()))
    assert remembered is None
    remembered, _ = await conversations.both(asked_of([*known, *[more] * 3], Caller(owner="ada")))
    assert remembered is None


async def test_an_older_conversation_of_which_a_part_is_noted_is_read_first() -> None:
    """Of a conversation that was begun by an earlier process the index does not know all keys until it has read it."""
    conversations = IndexedConversations()
    caller = Caller(owner="ada", chat_id="chat 7")
    history = await turn(conversations, [{"role": "user", "content": "Hello"}], caller, "Hi.")
    conversations.index = index = ConversationIndex()
    history = await turn(conversations, [*history, {"role": "user", "content": "More"}], caller, "Yes.")
    request = asked_of(history, caller)
    assert (await conversations.both(request))[0] is None
    assert len(index.to_read) == 1
    await fill(index, conversations)
    remembered, stored = await conversations.both(request)
    assert remembered == stored
    assert remembered is not None
    assert len(remembered.kept) == 4


async def test_what_is_deleted_while_it_is_read_does_not_come_back() -> None:
    """A page that was read before a deletion brings nothing of what was deleted since."""
    conversations = IndexedConversations()
    await turn(conversations, [{"role": "user", "content": "Hello"}], Caller(owner="ada"), "Hi.")
    [row] = await conversations.rows("ada")
    page = await conversations.indexed(None)
    index = ConversationIndex()
    index.note([Deleted(row.id)])
    assert index.begin_to_take(page[0]) is None
    assert index.was_deleted(row.id)
    index.note([ConversationBegun(row.id, "ada", "", "writer", 1.0)])
    assert not index.was_deleted(row.id)


def grown(index: ConversationIndex, number: int, messages: int) -> None:
    """Note a conversation with so many messages."""
    index.note([ConversationBegun(f"conv_{number:024x}", "ada", f"chat {number}", "writer", float(number))])
    for place in range(messages):
        key = f"{number * 1_000_003 + place * 2_654_435_761 & (2**128 - 1):032x}"[::-1]
        role = "assistant" if place % 2 else "user"
        index.note([Heard(f"conv_{number:024x}", key, "p", {"role": role, "content": ""}, float(number))])


def test_it_stays_within_its_bounds() -> None:
    """Beyond them the conversations used longest ago go, with their keys, and then not all are known any more."""
    index = ConversationIndex(most_conversations=100, most_keys=1500)
    index.take_no_more(has_all=True)
    for number in range(400):
        grown(index, number, 20)
        assert index.conversations <= 100
        assert index.keys <= 1500 + 200  # some of those that went are still being swept out
    assert index.conversations == 1500 // 21
    assert not index.is_complete
    for conversation in list(index.to_read):
        index.is_gone(conversation)  # which filling would find out
    newest, oldest = (index.look_up("ada", f"chat {number}", [], 0) for number in (399, 0))
    assert newest == Known(f"conv_{399:024x}", frozenset())
    assert oldest is None


def test_system_messages_count_as_keys_as_well() -> None:
    """A client that sends another system message each time does not make it grow beyond its bounds."""
    index = ConversationIndex(most_keys=500)
    for number in range(2000):
        key, system = f"{number * 2_654_435_761:032x}"[::-1], {"role": "system", "content": f"It is {number}."}
        index.note([ConversationBegun(f"conv_{number // 10}", "ada", "", "writer", float(number))])
        index.note([Heard(f"conv_{number // 10}", key, "p", system, float(number))])
        assert index.keys <= 500 + 20  # some of those that went are still being swept out
    assert index.conversations <= 500 // 10


def test_a_giant_is_swept_out_little_by_little() -> None:
    """No single change pays for the many keys of a conversation that goes."""
    index = ConversationIndex(most_keys=5000)
    grown(index, 1, 4990)
    grown(index, 2, 20)
    assert 4000 < index.keys <= 5011
    for number in range(3, 9):
        grown(index, number, 20)
    assert index.keys == 7 * 21


def test_it_takes_no_more_memory_than_it_says() -> None:
    """Conversations of 20 messages take less than what is stated, names and ids included."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        index = ConversationIndex()
        index.take_no_more(has_all=True)
        for number in range(300):
            grown(index, number, 20)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < index.bytes == 300 * (BYTES_A_CONVERSATION + 21 * BYTES_A_KEY)


def test_an_end_without_a_beginning_says_nothing() -> None:
    """The end of a turn that nobody has begun changes nothing."""
    index = ConversationIndex()
    index.note([TurnEnded("turn", "complete", "key", 1.0)])
    assert (index.conversations, index.keys) == (0, 0)


HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [HEX],
        [HEX, HEX[::-1], "f" * 32, "0" * 32],
        [HEX, "short"],
        [HEX, f"  {HEX[4:]}  "],
        [HEX, "x" * 32],
        [HEX, f"{HEX[:31]}x"],
        ["é" * 32, "\ud800"],
    ],
)
def test_keys_are_numbered_together_as_one_by_one(keys: list[str]) -> None:
    """Keys of any form have the numbers that each has by itself."""
    assert numbers_of(keys) == [number_of(key) for key in keys]


def test_the_beginning_of_a_very_long_history_is_left_to_the_database() -> None:
    """Of a history without a known end only the database can say that it is new, so that no look-up takes long."""
    index = ConversationIndex()
    index.take_no_more(has_all=True)
    keys = [f"{number * 2_654_435_761:032x}"[::-1] for number in range(1, MOST_LOOKED_UP + 2)]
    assert index.look_up("ada", "", keys[1:], 1) == NONE_KNOWN
    assert index.look_up("ada", "", keys, 1) is None


def test_a_very_long_history_is_known_with_all_its_messages() -> None:
    """The keys of questions and answers that a conversation has are told, and no others."""
    index = ConversationIndex()
    index.take_no_more(has_all=True)
    index.note([ConversationBegun("conv_1", "ada", "", "writer", 1.0)])
    keys = [f"{number * 2_654_435_761:032x}"[::-1] for number in range(1, MOST_LOOKED_UP + 3)]
    roles = ["user", "assistant"] * len(keys)
    index.note(
        [Heard("conv_1", key, "p", {"role": role, "content": ""}, 1.0) for key, role in zip(keys, roles, strict=False)]
    )
    known = index.look_up("ada", "", [*keys, "f" * 32], 1)
    assert known is not None
    assert (known.conversation, known.kept) == ("conv_1", frozenset(keys))
