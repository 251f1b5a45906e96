"""Brings back, unasked, the passages of what was compacted away that the person's last message is about."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.prompt import StepPrompt
from elbowroom.agents.tools.recall import PastIndex, PastMessage
from elbowroom.agents.turn.recall import Recall
from elbowroom.context.canonical import without_thoughts
from elbowroom.context.observations import Observations
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import text_of
from elbowroom.context.unasked import Found, Passage, chosen, note_of, pointed_at, room_for_passages, told_days
from elbowroom.store.base import retrieved

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
        self._searching.add_done_callback(retrieved)

    async def remind(self, step: StepPrompt) -> None:
        """Let what the last message is about stand at the end of a prompt, as far as there is room for that."""
        manager = step.manager
        size, empty = await step.most(manager.history.messages), await step.empty()
        room = room_for_passages(manager.budget, empty, size)
        manager.history = await self._reminded(manager.history, room, step.text)

    async def _reminded(self, prompt: Prompt, room: int, size_of: SizeOf) -> Prompt:
        """Return the prompt with what its last message is about in so many tokens; a chat never fails for that."""
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
        pointed = [index.passages[place] for place in places if place < len(index.passages)]
        if not pointed:
            return []
        times = await self._times({each.message for each in pointed})
        dated = [replace(each, at=times.get(each.message)) for each in pointed]
        said = "\n".join([others, message, *await self.recall.entries.forgotten(self.recall.chain)])
        return await asyncio.to_thread(chosen, dated, said, room, size_of)

    async def _times(self, places: Iterable[int]) -> Mapping[int, float]:
        """Return when the messages at these places of the chain were said, by their places."""
        if self.live is None:
            return {}
        by_key = {self.recall.chain.keys[place]: place for place in places}
        return {by_key[key]: at for key, at in (await self.live.times(list(by_key))).items()}

    async def _noted(self, prompt: Prompt, passages: Sequence[Passage], size_of: SizeOf) -> Prompt:
        """Return the prompt with these passages at its end, which is kept for later turns and told to the person."""
        note, key = note_of(passages), self.recall.chain.keys[-1]
        self.recall.entries.keep_note(key, passages)
        self.observations.recalled(len(passages), size_of(note))
        today = datetime.fromtimestamp(time.time(), UTC).astimezone().date()
        await self.tell([Notice("recalled", told_days(passages, today), passages=tuple(passages))])
        return prompt.noted({key: note})
