"""Conversations in the hands of a test: said, kept by each kind of store, and read again."""

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ledger_files import SOON

from elbowroom.context.conversation import (
    Added,
    Change,
    ContextFill,
    Conversation,
    ConversationBegun,
    Heard,
    QueuedMessage,
    ReplyBegun,
    ReplyCalled,
    ReplyEnded,
    ReplyGrew,
    StepUsage,
    StepUsed,
    TurnBegun,
    TurnEnded,
)
from elbowroom.store.conversations import WriteBehindConversations
from elbowroom.store.place import Place
from elbowroom.store.questions import Conversations
from elbowroom.store.sql import SqlStore
from elbowroom.store.write_behind import Patience, WriteBehindStore

ME = "me"
AGENT = "reader"
KINDS = ("memory", "file", "unwritable", "broken", "postgresql")
"""In memory, in a file, with one that refuses changes, where none can be opened, and on a PostgreSQL server."""
FILL = ContextFill(700, 4096, 3000, 3600)
moments: Iterator[float] = (1000.0 + number for number in itertools.count())


def user(text: str) -> dict[str, Any]:
    """Return what a person says."""
    return {"role": "user", "content": text}


def call(name: str, call_id: str) -> dict[str, Any]:
    """Return a call of a tool."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": '{"path": "a"}'}}


def result(call_id: str, text: str) -> dict[str, Any]:
    """Return what a tool has returned."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def begun(conversation: str, question: str = "What is in the note?", owner: str = ME, name: str = "") -> list[Change]:
    """Return a conversation with its first message, which has the key `<conversation>.1`."""
    return [
        ConversationBegun(conversation, owner, name, AGENT, next(moments)),
        heard(conversation, f"{conversation}.1", "seed", question),
    ]


def heard(conversation: str, key: str, parent: str, text: str) -> Heard:
    """Return a message of a person."""
    return Heard(conversation, key, parent, user(text), next(moments))


def turn_begun(turn: str, conversation: str, parent: str) -> list[Change]:
    """Return a turn with its first reply, which begins to read a file and is not whole."""
    return [
        TurnBegun(turn, conversation, parent, AGENT, next(moments)),
        ReplyBegun(turn, f"{turn}.1", next(moments)),
        ReplyGrew(f"{turn}.1", "reasoning", "I have "),
        ReplyGrew(f"{turn}.1", "reasoning", "to read."),
        ReplyGrew(f"{turn}.1", "text", "Let me "),
        ReplyGrew(f"{turn}.1", "text", "look."),
    ]


def turn_went_on(turn: str) -> list[Change]:
    """Return the rest of the first reply, the result, and the beginning of the second."""
    return [
        ReplyCalled(f"{turn}.1", call("read", f"{turn}.call")),
        ReplyEnded(f"{turn}.1", "complete"),
        StepUsed(turn, "small model", StepUsage(100, 10, 1, 5), replace(FILL, tokens=500), next(moments)),
        Added(turn, f"{turn}.2", result(f"{turn}.call", "Straße, naïve, 日本語"), next(moments)),
        ReplyBegun(turn, f"{turn}.3", next(moments)),
        ReplyGrew(f"{turn}.3", "text", 'He says "hi"'),
    ]


def turn_ended(turn: str, key: str) -> list[Change]:
    """Return the end of the second reply and of the turn."""
    return [
        ReplyGrew(f"{turn}.3", "text", ".\nDone."),
        ReplyEnded(f"{turn}.3", "complete"),
        StepUsed(turn, "small model", StepUsage(20, 5, 0, 120, is_counted=True), FILL, next(moments)),
        TurnEnded(turn, "complete", key, next(moments)),
    ]


def turn(turn_id: str, conversation: str, parent: str, key: str) -> list[Change]:
    """Return a whole turn: a reply that calls, its result, and the answer."""
    return [*turn_begun(turn_id, conversation, parent), *turn_went_on(turn_id), *turn_ended(turn_id, key)]


def whole(conversation: str, question: str = "What is in the note?", owner: str = ME, name: str = "") -> list[Change]:
    """Return a conversation with one turn; the answer has the key `<conversation>.2`."""
    first = f"{conversation}.1"
    return [
        *begun(conversation, question, owner, name),
        *turn(f"{conversation}-t", conversation, first, f"{conversation}.2"),
    ]


def turn_messages(turn_id: str) -> list[dict[str, Any]]:
    """Return the messages of a turn that ended."""
    return [
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call("read", f"{turn_id}.call")]},
        result(f"{turn_id}.call", "Straße, naïve, 日本語"),
        {"role": "assistant", "content": 'He says "hi".\nDone.'},
    ]


def queued(item: str, conversation: str, text: str = "And now?") -> QueuedMessage:
    """Return a message that waits."""
    return QueuedMessage(item, conversation, user(text), "steer", next(moments))


async def messages_of(conversations: Conversations, conversation: str, owner: str = ME) -> list[Any]:
    """Return the messages that are kept of a conversation, in order."""
    found = await conversations.read(owner, conversation)
    return [kept.message for kept in found.messages] if found else []


def unnumbered(found: Conversation | None) -> Conversation | None:
    """Return a conversation as every store shows it: the numbers of messages tell nothing but their order."""
    if found is None:
        return None
    assert [kept.number for kept in found.messages] == sorted({kept.number for kept in found.messages})
    return replace(found, messages=tuple(replace(kept, number=0) for kept in found.messages))


async def pragma(store: SqlStore, setting: str) -> None:
    """Change a setting of the connection that writes."""

    def change() -> None:
        connection = store._database._writer.raw_connection()
        connection.execute(f"PRAGMA {setting}")
        connection.close()

    await store._database.do(change)


class OwnConversations(WriteBehindConversations):
    """Conversations that close their store with them."""

    @property
    def sql(self) -> SqlStore:
        """Return the open database."""
        assert self._store.current
        return self._store.current

    async def refuse_writes(self) -> None:
        """Let the open database refuse everything, and not be tried again soon."""
        self._store.patience = replace(self._store.patience, again=3600)
        await pragma(self.sql, "query_only = 1")

    async def take_writes(self) -> None:
        """Let the database take everything again, and be tried at once."""
        await pragma(self.sql, "query_only = 0")
        self._store._next_try = 0.0

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()
        await super().aclose()


@asynccontextmanager
async def write_behind_conversations(place: Place, patience: Patience = SOON) -> AsyncIterator[OwnConversations]:
    """Open conversations at a place that may fail, or in memory, and close them again."""
    conversations = OwnConversations(WriteBehindStore(str(place), lambda: SqlStore.open(place), patience))
    try:
        yield conversations
    finally:
        await conversations.aclose()


async def said(conversations: Conversations, changes: Sequence[Change], at_once: int = 1) -> None:
    """Note changes, so many at a time."""
    for start in range(0, len(changes), at_once):
        conversations.note(changes[start : start + at_once])
