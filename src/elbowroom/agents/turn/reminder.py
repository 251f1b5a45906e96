"""Brings back, unasked, the passages of what was compacted away that the person's last message is about."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from elbowroom.agents.answer import Notice, Sink, read_failure
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.tools.recall import PastIndex, PastMessage
from elbowroom.agents.turn.recall import Recall
from elbowroom.context.budget import Budget
from elbowroom.context.canonical import without_thoughts
from elbowroom.context.observations import Observations
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import text_of
from elbowroom.context.unasked import Found, Passage, chosen, note_of, pointed_at, room_for_passages, told_days

log = logging.getLogger(__name__)
INDEX_SECONDS: Final = 1.0
"""How long an answer waits until its conversation's past is indexed; the answer after it finds that done."""
SPOKEN: Final = ("user", "assistant")
"""Whose words come back: what a tool returned never becomes a part of the person's message."""
SizeOf = Callable[[str], int]


@dataclass(slots=True)
class Reminder:
    """Finds what the last message of a turn is about in the past of the conversation that `recall` knows.

    `live` knows when something was said; where it is None, nothing comes back. The person is told by `tell`.
    """

    recall: Recall
    live: TurnRecorder | None
    tell: Sink
    observations: Observations
    _searched: int = field(default=0, init=False)
    _searching: asyncio.Task[tuple[PastIndex, Found]] | None = field(default=None, init=False)

    def begin(self, prompt: Prompt) -> None:
        """Begin to search, while the prompt is counted, where something was compacted away."""
        gone = self._gone(prompt)
        if not gone or gone == self._searched:
            return
        self._searched = gone
        self._searching = asyncio.create_task(asyncio.to_thread(self._found_among, gone))
        self._searching.add_done_callback(read_failure)

    async def reminded(self, prompt: Prompt, budget: Budget, size: int, size_of: SizeOf) -> Prompt:
        """Return a prompt of this size with what its last message is about; a chat never fails for that."""
        room = room_for_passages(budget.window, size)
        try:
            self.begin(prompt)
            if not room or self._searching is None or not self._gone(prompt):
                return prompt
            index, found = await asyncio.wait_for(asyncio.shield(self._searching), INDEX_SECONDS)
            passages = await self._chosen(prompt, index, found, room, size_of)
            return await self._noted(prompt, passages, size_of) if passages else prompt
        except TimeoutError:
            log.info("The past of a conversation is not indexed yet: nothing of it comes back with this message.")
        except Exception:
            log.exception("What was said in the past of a conversation cannot be searched.")
        return prompt

    def _gone(self, prompt: Prompt) -> int:
        """Return how many messages of the client may be gone; 0 where nothing may come back with the last one."""
        recall, last = self.recall, prompt.of_client[-1] if prompt.of_client and self.live is not None else None
        if last is None or last.note or last.message.get("role") != "user" or not last.key:
            return 0
        if last.key != recall.chain.keys[-1]:
            return 0
        if any(item.origin == "summary" for item in prompt.items):
            return len(recall.chain.keys) - 1
        return recall.recalled_place + 1 if recall.has_summary else 0

    def _found_among(self, gone: int) -> tuple[PastIndex, Found]:
        """Return the index of so many of the client's messages, and what the last one finds there."""
        recall, pasts = self.recall, self.recall.entries.notes.pasts
        keys = recall.chain.keys[:gone]
        known, index = pasts.take(keys)
        index.add(message for place in range(known, gone) if (message := self._said(place)).text)
        pasts.keep(keys, index)
        return index, index.found(text_of(recall.of_client[-1]))

    def _said(self, place: int) -> PastMessage:
        """Return the message at a place in the chain; without text where its words do not come back."""
        message = self.recall.of_client[self.recall.chain.ends[place] - 1]
        role = str(message.get("role"))
        text = without_thoughts(text_of(message)) if role in SPOKEN else ""
        return PastMessage(place, role, text, None)

    async def _chosen(
        self, prompt: Prompt, index: PastIndex, found: Found, room: int, size_of: SizeOf
    ) -> list[Passage]:
        """Return the passages that come back within so many tokens, with the times at which they were said."""
        if not found.best:
            return []
        message = text_of(self.recall.of_client[-1])
        others = "\n".join(text_of(item.message) for item in prompt.items[:-1])
        places = await asyncio.to_thread(pointed_at, message, found, others)
        if not places:
            return []
        times = await self._times(index, places)
        said = "\n".join([others, message, *await self.recall.forgotten()])
        return await asyncio.to_thread(
            lambda: _dated(
                chosen(places, index.passages, said, lambda some: size_of(note_of(_dated(some, times))) <= room), times
            )
        )

    async def _times(self, index: PastIndex, places: Sequence[int]) -> Mapping[int, float]:
        """Return when the messages of these passages were said, and of those that follow them, by their places."""
        if self.live is None:
            return {}
        keys = self.recall.chain.keys
        near = {index.passages[at].message for place in places for at in (place, place + 1) if at < len(index.passages)}
        by_key = {keys[place]: place for place in near}
        return {by_key[key]: at for key, at in (await self.live.times(list(by_key))).items()}

    async def _noted(self, prompt: Prompt, passages: Sequence[Passage], size_of: SizeOf) -> Prompt:
        """Return the prompt with these passages at its end, which is kept for later turns and told to the person."""
        note, key = note_of(passages), self.recall.chain.keys[-1]
        self.recall.entries.keep_note(key, passages)
        self.observations.recalled(len(passages), size_of(note))
        today = datetime.fromtimestamp(time.time(), UTC).astimezone().date()
        await self.tell([Notice("recalled", told_days(passages, today), passages=tuple(passages))])
        return prompt.noted({key: note})


def _dated(passages: Sequence[Passage], times: Mapping[int, float]) -> list[Passage]:
    return [replace(passage, at=times.get(passage.message)) for passage in passages]
