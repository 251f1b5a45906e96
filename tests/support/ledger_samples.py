"""Compactions to keep: a conversation, its chain, and the entry that stands for a part of it."""

from elbowroom.context.ledger import Chain, Entry
from elbowroom.context.transcript import Message


def conversation(turns: int, about: str = "it") -> list[Message]:
    """Return a history with a system message and so many turns."""
    messages: list[Message] = [{"role": "system", "content": f"You know about {about}."}]
    for number in range(1, turns + 1):
        messages.append({"role": "user", "content": f"Question {number} about {about}"})
        messages.append({"role": "assistant", "content": f"Answer {number} about {about}"})
    return messages


def compaction(messages: list[Message], covered: int | None = None) -> tuple[Entry, list[Message]]:
    """Return the entry for the first so many messages that are not the system's, or for all, and the messages."""
    chain = Chain.of("owner", "agent", messages)
    place = (covered or len(chain.keys)) - 1
    summary = {"role": "user", "content": f"Summary of {place + 1} messages"}
    entry = Entry(chain.keys[place], (summary,), 8192, 7000, 900, "summary", 1_700_000_000.5)
    return entry, messages
