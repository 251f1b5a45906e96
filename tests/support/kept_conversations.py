"""Conversations as they are read from a store, put together by hand."""

from collections.abc import Sequence
from typing import Any

from elbowroom.context.conversation import (
    ContextFill,
    Conversation,
    ConversationRow,
    KeptCompaction,
    KeptMessage,
    Status,
    StepUsage,
    Totals,
)

BEGUN = 1_760_000_000.0
SEED = "seed"


class Told:
    """Messages that came in one behind the other."""

    def __init__(self) -> None:
        self.messages: list[KeptMessage] = []

    def sent(self, key: str, parent: str, content: Any, role: str = "user", **fields: Any) -> KeptMessage:
        """Add what a client sent."""
        return self._add("", key, parent, {"role": role, "content": content, **fields})

    def said(
        self,
        turn: str,
        key: str,
        parent: str,
        content: Any,
        *,
        status: Status = "complete",
        reasoning: str = "",
        role: str = "assistant",
        **fields: Any,
    ) -> KeptMessage:
        """Add a message of a turn."""
        message = {"role": role, "content": content, **fields}
        return self._add(turn, key, parent, message, status=status, reasoning=reasoning)

    def looked_up(self, turn: str, key: str, parent: str, arguments: str, result: Any, text: str | None = None) -> None:
        """Add a reply of a turn that calls a tool, and what it returned."""
        call = call_of(f"call{len(self.messages)}", "vault_read", arguments)
        self.said(turn, key, parent, text, tool_calls=[call])
        self.said(turn, key, parent, result, role="tool", tool_call_id=call["id"])

    def _add(
        self, turn: str, key: str, parent: str, message: Any, *, status: Status = "complete", reasoning: str = ""
    ) -> KeptMessage:
        number = len(self.messages) + 1
        kept = KeptMessage(
            f"msg{number}", number, turn, key, parent, "writer", status, message, reasoning, BEGUN + number
        )
        self.messages.append(kept)
        return kept


def call_of(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a tool call in OpenAI's form."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation_of(
    messages: Sequence[KeptMessage], *, title: str = "A question", compactions: Sequence[KeptCompaction] = ()
) -> Conversation:
    """Return a conversation with these messages."""
    totals = Totals(StepUsage(input=900, output=120, cache_read=300), 2, len(compactions))
    fill = ContextFill(tokens=6100, window=8192, trigger=6553, stop_at=7372)
    row = ConversationRow("conv_0123", "notes/7", "writer", title, BEGUN, BEGUN + len(messages), totals, fill)
    return Conversation(row, tuple(compactions), tuple(messages))
