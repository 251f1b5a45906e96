"""Short conversations for tests of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from elbowroom.context.ledger import Chain, is_system
from elbowroom.context.prompt import items_of, recalled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from random_histories import Json

    from elbowroom.context.ledger import Entry
    from elbowroom.context.transcript import Message

ASK: Final[Json] = {"role": "user", "content": "What floats?"}
ANSWER: Final[Json] = {"role": "assistant", "content": "Boats do."}
THANKS: Final[Json] = {"role": "user", "content": "Thanks."}
RETRY: Final[Json] = {"role": "user", "content": "retry"}


def system(text: str = "You help.") -> Json:
    """Return a system message."""
    return {"role": "system", "content": text}


def longest(chain: Chain, entries: Iterable[Entry]) -> tuple[int, Entry] | None:
    """Return the entry that covers most of a conversation, with its place in the chain."""
    found = [(chain.keys.index(entry.key), entry) for entry in entries if entry.key in chain.keys]
    return max(found, key=lambda placed: placed[0], default=None)


def chain_of(messages: Sequence[Message]) -> Chain:
    """Return the chain of a history of one owner and one agent."""
    return Chain.of("ada", "coder", messages)


def restored(messages: Sequence[Message], place: int, entry: Entry) -> list[Message]:
    """Return a conversation with an entry in place of all up to a place in its chain."""
    chain = chain_of(messages)
    return [item.message for item in recalled(items_of(messages, chain), chain.keys[place], entry.messages)]


def call(call_id: object = "call_1", arguments: str = "{}") -> Json:
    """Return a tool call."""
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": arguments}}


def spoken(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that are not system messages."""
    return [message for message in messages if not is_system(message)]
