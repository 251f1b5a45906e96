"""The entries of the ledger as this process knows them, those on their way to the store included."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from elbowroom.agents.turn.state import CompactionNotes
from elbowroom.context.canonical import json_form
from elbowroom.context.ledger import KEY_BYTES, NOTED, UNDONE, Chain, Entry, LedgerRows, Written
from elbowroom.context.transcript import Message, text_of
from elbowroom.context.unasked import Passage, note_of


@dataclass(frozen=True, slots=True)
class Entries:
    """Finds entries in `rows` and among the unsaved ones of `notes`, and keeps new ones."""

    rows: LedgerRows
    notes: CompactionNotes

    async def of(self, chain: Chain, keys: Collection[str] | None = None) -> AsyncIterator[tuple[int, Entry]]:
        """Yield the entries for beginnings of a conversation with their places in its chain, the longest first.

        `keys` are those of the stored entries, where they are known already.
        """
        stored = await self.rows.keys() if keys is None else keys
        for place, key in reversed([*enumerate(chain.keys)]):
            is_known = key in stored or key in self.notes.unsaved
            if is_known and (entry := await self.with_key(key, stored)) is not None:
                yield place, entry

    async def with_key(self, key: str, stored: Collection[str]) -> Entry | None:
        """Return the entry with a key; None where there is none, or its compaction was taken back."""
        entry = self.notes.unsaved.get(key)
        if entry is None and key in stored:
            entry = next(iter(await self.rows.find([key])), None)
        return entry if entry is not None and entry.rung != UNDONE else None

    async def notes_of(self, keys: Sequence[str]) -> dict[str, str]:
        """Return what came back unasked with the messages of these keys."""
        return {key: text_of(messages[0]) for key, messages in (await self._notes(keys)).items()}

    async def came_back(self, keys: Sequence[str]) -> dict[str, list[Passage]]:
        """Return the passages that came back unasked with the messages of these keys."""
        found = await self._notes(keys)
        return {
            key: [Passage(0, str(each["role"]), text_of(each), at=each.get("at")) for each in messages[1:]]
            for key, messages in found.items()
        }

    async def _notes(self, keys: Sequence[str]) -> dict[str, Sequence[Message]]:
        by_own = {key_of_note(key): key for key in keys}
        return {by_own[own]: messages for own, messages in (await self.noted(list(by_own))).items()}

    def keep_note(self, key: str, passages: Sequence[Passage]) -> None:
        """Keep what comes back with the message of this key: the note as it is sent, and the passages in it."""
        said = [{"role": each.role, "content": each.text, "at": each.at} for each in passages]
        note = [{"role": "user", "content": note_of(passages)}] if passages else []
        self.keep(key_of_note(key), [*note, *said], Written(0, 0, 0, NOTED), ())

    async def forgotten(self, chain: Chain) -> list[str]:
        """Return the passages that the person never wants to come back in a conversation."""
        found = await self.noted([key_of_forgotten(chain)])
        return [text_of(message) for messages in found.values() for message in messages]

    async def part_answered(self, key: str) -> str | None:
        """Return what a pruning agent has answered about a part; None where that is not known."""
        found = (await self.noted([key])).get(key)
        return text_of(found[0]) if found else None

    def keep_part(self, key: str, answer: str) -> None:
        """Keep what a pruning agent has answered about a part."""
        self.keep(key, [{"role": "assistant", "content": answer}], Written(0, 0, 0, NOTED), ())

    async def noted(self, own: Sequence[str]) -> dict[str, Sequence[Message]]:
        """Return what is noted under these keys, the unsaved included; without those under which nothing is."""
        stored = self.rows.keys_now()
        stored = await self.rows.keys() if stored is None else stored
        unsaved = [entry for key in own if (entry := self.notes.unsaved.get(key)) is not None]
        known = {entry.key for entry in unsaved}
        wanted = [key for key in own if key in stored and key not in known]
        found = [*unsaved, *(await self.rows.find(wanted) if wanted else ())]
        return {entry.key: entry.messages for entry in found if entry.messages}

    def keep(self, key: str, messages: Sequence[Message], written: Written, made_from: Sequence[Message]) -> None:
        """Keep messages under a key, and the outputs of tools for as long that these messages refer to."""
        entry = Entry(
            key, tuple(messages), written.window, written.before, written.after, written.rung, created=time.time()
        )
        self.notes.unsaved[key] = entry  # another request finds it at once
        task = asyncio.get_running_loop().create_task(self._save(entry, made_from))
        self.notes.saving.add(task)
        task.add_done_callback(self.notes.saving.discard)

    def keep_copy(self, key: str, entry: Entry, made_from: Sequence[Message]) -> None:
        """Keep an entry under another key."""
        self.keep(key, entry.messages, entry.written, made_from)

    async def _save(self, entry: Entry, made_from: Sequence[Message]) -> None:
        try:
            await self.rows.save(entry, made_from)
        finally:
            if self.notes.unsaved.get(entry.key) is entry:
                del self.notes.unsaved[entry.key]


def key_of_note(key: str) -> str:
    """Return the key of the entry that has what came back unasked with the message of this key."""
    return _beside("note", key)


def key_of_forgotten(chain: Chain) -> str:
    """Return the key of the entry that has what must not come back in conversations with this first message."""
    return _beside("forgotten", chain.keys[0] if chain.keys else chain.seed)


def key_of_part(owner: str, ways: object, cap: int, rests_on: str) -> str:
    """Return the key of the entry that has what a pruning agent has answered about a part, in at most `cap` tokens.

    `ways` are what its answers depend on besides the part, as JSON holds it.
    """
    return _beside("part", json_form([owner, ways, cap, rests_on]))


def _beside(name: str, key: str) -> str:
    return hashlib.blake2b(f"{name} {key}".encode(), digest_size=KEY_BYTES).hexdigest()


def key_set_aside(entry: Entry) -> str:
    """Return the key under which the entry is kept whose place this one took; an edit of its summary changes no key."""
    sizes = f"{entry.key} {entry.before} {entry.after}"
    return hashlib.blake2b(sizes.encode(), digest_size=KEY_BYTES).hexdigest()
