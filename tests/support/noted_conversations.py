"""Conversations that are noted in a store as requests would note them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kept_conversations import BEGUN, SEED, call_of

from elbowroom.context.conversation import (
    Added,
    Change,
    CompactionDetails,
    CompactionNoted,
    ContextFill,
    ConversationBegun,
    Heard,
    ReplyBegun,
    ReplyCalled,
    ReplyEnded,
    ReplyGrew,
    Status,
    StepUsage,
    StepUsed,
    TurnBegun,
    TurnEnded,
)
from elbowroom.store.questions import Conversations

DETAILS = CompactionDetails(2.25, 4, 6, 20, "They spoke of ```lists```.")


@dataclass(slots=True)
class Noted:
    """A conversation as it goes on; `at` is its clock, `key` the place in the tree that it has come to."""

    store: Conversations
    id: str
    owner: str = ""
    name: str = ""
    at: float = BEGUN
    key: str = SEED
    count: int = 0
    changes: list[Change] = field(default_factory=list)

    def begin(self) -> "Noted":
        """Begin it."""
        self.changes.append(ConversationBegun(self.id, self.owner, self.name, "writer", self.at))
        return self

    def ask(self, content: Any, *, parent: str | None = None) -> str:
        """Hear a question behind the last message, or behind another; returns its key."""
        if parent is not None:
            self.key = parent
        key = self._next("u")
        message = {"role": "user", "content": content}
        self.changes.append(Heard(self.id, key, self.key, message, self.at))
        self.key = key
        return key

    def answer(
        self, text: str, *, lookups: Sequence[tuple[str, str]] = (), reasoning: str = "", status: Status = "complete"
    ) -> str:
        """Answer the last message, after calls of a tool with these arguments and results; returns the key."""
        turn, key = self._next("t"), self._next("a")
        self.changes.append(TurnBegun(turn, self.id, self.key, "writer", self.at))
        for arguments, result in lookups:
            reply, call = self._next("r"), self._next("call")
            self.changes += [
                ReplyBegun(turn, reply, self.at),
                ReplyCalled(reply, call_of(call, "vault_read", arguments)),
                ReplyEnded(reply, "complete"),
                Added(turn, self._next("r"), {"role": "tool", "tool_call_id": call, "content": result}, self.at),
            ]
        reply = self._next("r")
        self.changes.append(ReplyBegun(turn, reply, self.at))
        if reasoning:
            self.changes.append(ReplyGrew(reply, "reasoning", reasoning))
        fill = ContextFill(tokens=6100, window=8192, trigger=6553, stop_at=7372, turn=210)
        usage = StepUsage(input=900, output=120, cache_read=300)
        self.changes += [
            ReplyGrew(reply, "text", text),
            ReplyEnded(reply, status),
            StepUsed(turn, "qwen2.5-7b-instruct", usage, fill, self.at),
            TurnEnded(turn, status, key, self.at),
        ]
        self.key = key
        return key

    def compact(self) -> None:
        """Note a compaction."""
        self.changes.append(CompactionNoted(self.id, 7000, 3000, "plan", self.at, DETAILS))

    async def keep(self) -> "Noted":
        """Give all that has happened to the store."""
        self.store.note(self.changes)
        await self.store.settled()
        self.changes.clear()
        return self

    def _next(self, kind: str) -> str:
        self.count += 1
        self.at += 1
        return f"{self.id}-{kind}{self.count}"


async def milk(store: Conversations, number: int = 1, at: float = BEGUN, **about: Any) -> Noted:
    """Keep a short conversation with a look into a note, in which the question was asked again."""
    noted = Noted(store, f"conv_{number:024x}", at=at + 100 * number, **about).begin()
    asked = noted.ask(f"What is in list {number}?")
    noted.answer("Milk.", lookups=[('{"path":"list.md"}', "oat milk\n```bread```")], reasoning="Short.")
    noted.key = asked
    noted.answer("Milk and bread", status="interrupted")
    noted.compact()
    return await noted.keep()
