"""Lets go, as the person wants, what came back unasked with the messages of a conversation."""

from collections.abc import Container, Sequence

from elbowroom.agents.turn.entries import key_of_forgotten
from elbowroom.agents.turn.recall import Recall
from elbowroom.context.ledger import NOTED, Written
from elbowroom.context.transcript import Message
from elbowroom.context.unasked import Passage, note_in, note_of, with_note, without_note


async def let_go(recall: Recall, key: str, numbers: Container[int]) -> list[Passage]:
    """Let passages, by their numbers from 1 on, no longer stand with the message of this key, nor come back again.

    Return those that did stand there.
    """
    entries, chain = recall.entries, recall.chain
    passages = (await entries.came_back([key])).get(key, ())
    gone = [each for number, each in enumerate(passages, 1) if number in numbers]
    if not gone:
        return []
    left = [each for each in passages if each not in gone]
    before = (await entries.notes_of([key])).get(key, "")
    entries.keep_note(key, left)
    async for _, entry in entries.of(chain):
        if any(note_in(message) == before for message in entry.messages):
            messages = [_noted_anew(each, before, left) for each in entry.messages]
            entries.keep(entry.key, messages, entry.written, recall.of_client)
    unwanted = [*await entries.forgotten(chain), *(each.text for each in gone)]
    said = [{"role": "user", "content": text} for text in dict.fromkeys(unwanted)]
    entries.keep(key_of_forgotten(chain), said, Written(0, 0, 0, NOTED), ())
    await entries.notes.saved()
    return gone


async def last_came_back(recall: Recall) -> tuple[str, Sequence[Passage]]:
    """Return the key of the last message with which passages came back, and these; empty where none did."""
    keys = recall.chain.keys
    found = await recall.entries.came_back(keys)
    return next(((key, found[key]) for key in reversed(keys) if found.get(key)), ("", ()))


def _noted_anew(message: Message, note: str, passages: Sequence[Passage]) -> Message:
    """Return a message that has this note with these passages instead; any other one as it is."""
    if note_in(message) != note:
        return message
    plain = without_note(message)
    return with_note(plain, note_of(passages)) if passages else plain
