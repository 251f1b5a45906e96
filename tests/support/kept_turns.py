"""Turns as they are kept, and what a client has of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elbowroom.context.conversation import KeptTurn
from elbowroom.context.ledger import Chain
from elbowroom.context.put_back import BETWEEN_REPLIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.context.conversation import Status
    from elbowroom.context.transcript import Message

Json = dict[str, Any]


def user(text: str) -> Json:
    """Return what a person says, to the agent or into the queue."""
    return {"role": "user", "content": text}


def called(call_id: str, arguments: str = '{"path": "a.md"}', name: str = "read_note") -> Json:
    """Return a tool call."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def reply(text: str, *calls: Json) -> Json:
    """Return what the model says in one step."""
    message: Json = {"role": "assistant", "content": text}
    return {**message, "tool_calls": list(calls)} if calls else message


def result(call_id: str, text: str = "The pier was painted.") -> Json:
    """Return what a tool has returned."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def shown(messages: Sequence[Message]) -> str:
    """Return the text of a turn's answer as the client gets it."""
    texts = [message["content"] for message in messages if message["role"] == "assistant"]
    return BETWEEN_REPLIES.join(filter(None, texts))


def kept_turn(
    before: Sequence[Message],
    messages: Sequence[Message],
    said: Message | None = None,
    *,
    status: Status = "complete",
    agent: str = "coder",
    number: int = 1,
) -> KeptTurn:
    """Return a turn of ada's behind these messages of the client; it was interrupted where `said` is not given."""
    chain = Chain.of("ada", agent, before)
    parent = chain.keys[-1] if chain.keys else chain.seed
    key = chain.followed_by(said) if said is not None else ""
    return KeptTurn(f"turn_{number}", key, parent, agent, status if key else "interrupted", tuple(messages))
