"""Gives each prompt for a llama.cpp server a slot of the model, and has what leaves a slot saved and restored.

What to do is decided in `context/slots.py`, by what the engine says that it had in its cache. Nothing that fails here
fails a request: the engine reads the prompt as a whole then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from elbowroom.agents.admission.pool import Ticket
from elbowroom.context.costs import Engine, Moving
from elbowroom.context.reuse import SentPrompt
from elbowroom.context.slots import File, Seat, SlotTable, Standing, Way, standing_after, ways_of
from elbowroom.errors import ElbowroomError, ModelUnavailable, StreamCut, UpstreamRejected, UpstreamUnreachable
from elbowroom.providers.base import (
    ModelInfo,
    Provider,
    ReadingProgress,
    SlotFiles,
    SlotMoved,
    StreamEvent,
    UsageReport,
)

log = logging.getLogger(__name__)
PATIENCE: Final = 10.0
"""Seconds that saving or restoring a slot may take, unless it takes longer to read what is in it."""
KEEPS: Final = "keeps by itself what it takes out of a slot; elbowroom leaves its slots alone"
REFUSES: Final = "refuses to be told a slot; elbowroom leaves its slots alone"
SAVES: Final = "forgets what it takes out of a slot; elbowroom has conversations saved that leave one, and restored"
NO_FOLDER: Final = (
    "forgets a conversation when another one takes its slot. Start llama-server with --slot-save-path and a folder, "
    "and elbowroom has it saved and restored; or with a larger --cache-ram"
)
NO_EFFECT: Final = "gains nothing from having its slots saved and restored; elbowroom does neither any more"


class Report:
    """What an engine says of a prompt: how many tokens it has, were in the cache, and were written after it."""

    def __init__(self) -> None:
        self.prompt: int | None = None
        self.cached: int | None = None
        self.written = 0

    def take(self, events: list[StreamEvent]) -> None:
        """Take what has come."""
        for event in events:
            if isinstance(event, ReadingProgress):
                self.prompt, self.cached = event.total, event.cached
            elif isinstance(event, UsageReport):
                self._take_usage(event.usage)

    def has(self, expected: int) -> bool | None:
        """Tell whether most of what was expected was in the cache; None where the engine does not say."""
        return None if self.cached is None else 2 * self.cached >= expected

    def read(self, prompt: SentPrompt) -> SentPrompt | None:
        """Return the prompt with its sizes; None where the engine may not have read it."""
        return None if self.prompt is None else replace(prompt, tokens=self.prompt, answer=self.written)

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        match usage:
            case {"prompt_tokens": int(prompt), "completion_tokens": int(written)}:
                self.prompt, self.written = prompt, written
            case _:
                pass
        match usage.get("prompt_tokens_details"):
            case {"cached_tokens": int(cached)}:
                self.cached = cached
            case _:
                pass


class ModelSlots:
    """The slots of one loaded model; `standing` is what is done about them, and `load` tells how it was loaded."""

    def __init__(self, provider: Provider, files: SlotFiles, info: ModelInfo, engine_of: Callable[[], Engine]) -> None:
        self.standing: Standing = "tried"
        self.load = provider, info.loaded_context, info.slots
        self._name = f"{provider.id}/{info.id}"
        self._provider, self._files, self._info = provider, files, info
        self._engine_of = engine_of
        self._slots = info.slots or 1
        self._idle = asyncio.Semaphore(self._slots)
        self._said = set[str]()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Know nothing of the engine, which may have been started anew."""
        self.standing = "tried"
        self._table = SlotTable(self._slots)
        self._can_save: bool | None = None
        self._moving = Moving()
        self._helped = 0
        """How many more restored files the engine has gone on with than not."""

    async def stream(
        self, body: Mapping[str, Any], ticket: Ticket, of: Hashable
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Have a prompt of the conversation `of` read and answered, and yield the events, as `Provider.stream` does.

        It waits here for an idle slot, as it would in the engine: what is there can be saved only then.
        """
        if self.standing == "left_alone" or "id_slot" in body or body.get("cache_prompt") is False:
            async with aclosing(self._provider.stream(body, self._info)) as stream:
                async for events in stream:
                    yield events
            return
        async with self._idle:
            if self._can_save is None:
                self._can_save = await self._files.can_save(self._info.id)
            prompt = SentPrompt.of(self._name, self._info.loaded_context, body, {}, tokens=ticket.prompt)
            async with aclosing(self._seated(body, prompt, ticket, of)) as stream:
                async for events in stream:
                    yield events

    async def _seated(
        self, body: Mapping[str, Any], prompt: SentPrompt, ticket: Ticket, of: Hashable
    ) -> AsyncGenerator[list[StreamEvent], None]:
        table, report = self._table, Report()
        seat = table.seat(prompt, of, partial(self._moving.pays, self._engine_of()))
        table.taken(seat)
        ticket.prepares()
        try:
            await self._save(seat)
            async with aclosing(self._sent(body, seat, ticket, report)) as stream:
                async for events in stream:
                    yield events
        except (UpstreamUnreachable, StreamCut, ModelUnavailable):
            self._begin_anew()
            raise
        finally:
            table.left(seat, report.read(prompt))

    async def _sent(
        self, body: Mapping[str, Any], seat: Seat, ticket: Ticket, report: Report
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Send the prompt in one way after another until the engine says that it has what is expected, or in the last.

        It says so before it reads, so that hardly any time is lost.
        """
        is_judged = is_refused = has_begun = False
        ways = deque(ways_of(self.standing, seat, is_alone=self._slots == 1))
        way = ways[0]
        while ways:
            way = ways.popleft()
            if way == "file" and seat.file is not None and not await self._restored(seat.file, seat.slot):
                seat = replace(seat, expected=0)
            pinned = {"id_slot": seat.slot} if way != "anywhere" and self._slots > 1 else {}
            report.cached = None
            ticket.begins()
            try:
                async with aclosing(self._provider.stream({**body, **pinned}, self._info)) as stream:
                    async for events in stream:
                        report.take(events)
                        if not is_judged and (has := report.has(seat.expected)) is not None:
                            if ways and not has and not has_begun:
                                break
                            is_judged = True
                            self._judge(seat, way, has)
                        has_begun = True
                        yield events
                    else:
                        ways.clear()
            except UpstreamRejected:
                if not pinned or has_begun:
                    raise
                ways, is_refused = deque[Way](["anywhere"]), True
        if not is_judged:
            self._judge(seat, way, None)
        if is_refused:
            self._stand("left_alone", REFUSES)

    def _judge(self, seat: Seat, way: Way, has: bool | None) -> None:
        """Learn from whether the engine had what a conversation goes on with."""
        if not seat.expected or (seat.file is None and has is not False):
            return
        if seat.file is None:  # it has forgotten what nobody has taken the place of: it may have been started anew
            self._can_save = None
            self.standing = "tried" if self.standing == "pins" else self.standing
            return
        standing = standing_after(self.standing, way, has, can_save=bool(self._can_save))
        no_help = NO_EFFECT if self._can_save else NO_FOLDER
        self._stand(standing, {"left_alone": KEEPS, "saves": SAVES}.get(standing, no_help))
        if way == "file":
            self._note_help(has_helped=bool(has))

    def _stand(self, standing: Standing, told: str) -> None:
        """Do this from now on, and say so, each thing once."""
        if standing != self.standing and told not in self._said:
            self._said.add(told)
            log.info("%s %s.", self._name, told)
        self.standing = standing

    def _patience(self, tokens: int) -> float:
        return max(PATIENCE, tokens / self._engine_of().reading)

    async def _save(self, seat: Seat) -> None:
        """Have saved what leaves the slot; where that is of no use, it is only remembered that it has left."""
        if seat.leaves is None:
            return
        tokens, patience = 0, self._patience(seat.leaves.tokens)
        if seat.saves and self._can_save and self.standing != "pins":
            try:
                moved = await self._files.save(self._info.id, seat.slot, seat.number, patience)
                tokens, self._moving = moved.tokens, self._moving.after(moved.tokens, moved.seconds)
            except ElbowroomError as error:
                log.warning("%s could not save a slot: %s", self._name, error.message)
                self._note_help(has_helped=False)
        self._table.saved(seat, tokens)

    async def _restored(self, file: File, slot: int) -> bool:
        """Have a file restored into a slot; return whether the slot has now what was saved."""
        try:
            moved = await self._files.restore(self._info.id, slot, file.number, self._patience(file.tokens))
        except ElbowroomError as error:
            log.warning("%s could not restore a slot: %s", self._name, error.message)
            moved = SlotMoved(0, 0)
        self._moving = self._moving.after(moved.tokens, moved.seconds)
        if self._table.restored(file, moved.tokens):
            return True
        self._note_help(has_helped=False)
        return False

    def _note_help(self, *, has_helped: bool) -> None:
        """Note whether a file was of use, and have nothing saved any more once it was so less often than not."""
        self._helped += 1 if has_helped else -1
        if self._helped < 0:
            self._stand("pins", NO_EFFECT)
