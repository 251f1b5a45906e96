"""Gives each prompt for a llama.cpp server that can save slots one of them, and has what leaves it saved and restored.

A server that cannot, or gains nothing from it, is left alone: it chooses the slot that shares most with a prompt.
What to do is decided in `context/slots.py`, by what the engine says that it had in its cache. Nothing that fails here
fails a request: the engine reads the prompt as a whole then.
"""

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
    SlotState,
    StreamEvent,
    UsageReport,
)

log = logging.getLogger(__name__)
KEEPS: Final = "keeps by itself what it takes out of a slot; elbowroom leaves its slots alone"
REFUSES: Final = "refuses to be told a slot; elbowroom leaves its slots alone"
SAVES: Final = "forgets what it takes out of a slot; elbowroom has conversations saved that leave one, and restored"
CANNOT: Final = (
    "cannot save its slots, and elbowroom leaves them alone. Where conversations are read anew whenever they go on, "
    "start llama-server with --slot-save-path and a folder, or with a larger --cache-ram"
)
UNTOLD: Final = (
    "did not tell which of its slots are busy, and was left the choice of one. Where that is always so, start "
    "llama-server without --no-slots"
)
NO_EFFECT: Final = "gains nothing from having its slots saved and restored; elbowroom leaves them alone"
States = Mapping[int, SlotState] | None
"""What each slot of an engine does; None where it is not told."""


class Report:
    """What an engine says of a prompt: how many tokens it has, were in the cache, and were written after it.

    Its `seat` is None where it is not known; once something `is_sent`, what was in that slot is no longer there. So
    many `strays` had been sent without a slot when it began.
    """

    def __init__(self, strays: int, seat: Seat | None = None) -> None:
        self.seat = seat
        self.strays = strays
        self.prompt: int | None = None
        self.cached: int | None = None
        self.written = 0
        self.is_sent = False

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

    def end(self, table: SlotTable, prompt: SentPrompt) -> None:
        """Note what a slot has now that a prompt has been read and answered, or given up."""
        if self.seat is None:
            table.lost()
        elif self.is_sent:
            table.left(self.seat, self.read(prompt))
        else:
            table.given_back(self.seat)

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
        self._said = set[str]()
        self._strays = 0
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
        """Have a prompt of the conversation `of` read and answered, and yield the events, as `Provider.stream` does."""
        ticket.prepares()
        try:
            async with aclosing(await self._begun(body, ticket, of)) as stream:
                async for events in stream:
                    yield events
        except (UpstreamUnreachable, StreamCut, ModelUnavailable):
            self._begin_anew()
            raise

    async def _begun(
        self, body: Mapping[str, Any], ticket: Ticket, of: Hashable
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Return the events of a prompt, in the slot that is for it, or in the one that the engine chooses."""
        if self._can_save is None:
            self._can_save = await self._files.can_save(self._info.id)
            if not self._can_save:
                self._stand("left_alone", CANNOT)
        if self.standing == "left_alone" or "id_slot" in body or body.get("cache_prompt") is False:
            ticket.begins()
            return self._provider.stream(body, self._info)
        prompt = SentPrompt.of(self._name, self._info.loaded_context, body, {}, tokens=ticket.prompt)
        states = await self._states()
        seat = None
        if states is not None:
            busy = {slot for slot, state in states.items() if state.is_busy}
            is_new = all(message.get("role") != "assistant" for message in body["messages"])
            pays = partial(self._moving.pays, self._engine_of())
            seat = self._table.seat(prompt, of, pays, is_new=is_new, busy=busy)
        if seat is None:
            return self._unseated(body, prompt, ticket, of, states)
        return self._seated(body, prompt, ticket, seat, states)

    async def _states(self) -> States:
        """Return what the engine says that its slots do; a single one needs no telling."""
        told = await self._files.states(self._info.id)
        if told is None and self._slots == 1:
            return {}
        if told is None:
            self._say(UNTOLD)
        return told

    async def _landed(self, table: SlotTable, before: States, seat: Seat) -> Seat | None:
        """Return the seat in the slot that the engine has chosen for what it reads now, None where it is not known."""
        now = await self._states() if before is not None else None
        if before is None or now is None:
            return None
        return table.landed({slot for slot, state in now.items() if state.has_begun(before.get(slot))}, seat)

    async def _unseated(
        self, body: Mapping[str, Any], prompt: SentPrompt, ticket: Ticket, of: Hashable, before: States
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a prompt for which the engine chooses the slot, and find out which it has chosen."""
        self._strays += 1
        table, report = self._table, Report(self._strays)
        table.strayed()
        ticket.begins()
        try:
            async with aclosing(self._provider.stream(body, self._info)) as stream:
                async for events in stream:
                    report.take(events)
                    if not report.is_sent:
                        report.is_sent, report.seat = True, await self._landed(table, before, Seat(0, of))
                    yield events
        finally:
            report.end(table, prompt)

    async def _seated(
        self, body: Mapping[str, Any], prompt: SentPrompt, ticket: Ticket, seat: Seat, before: States
    ) -> AsyncGenerator[list[StreamEvent], None]:
        table, report = self._table, Report(self._strays, seat)
        table.taken(seat)
        try:
            await self._save(table, seat, report)
            async with aclosing(self._sent(body, table, seat, ticket, report, before)) as stream:
                async for events in stream:
                    yield events
        finally:
            report.end(table, prompt)

    async def _sent(
        self,
        body: Mapping[str, Any],
        table: SlotTable,
        seat: Seat,
        ticket: Ticket,
        report: Report,
        before: States,
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Send the prompt in one way after another until the engine says that it has what is expected, or in the last.

        It says so before it reads, so that hardly any time is lost.
        """
        is_judged = has_begun = False
        ways = deque(ways_of(self.standing, seat))
        way = ways[0]
        while ways:
            way, report.is_sent, report.cached = ways.popleft(), True, None
            if way == "anywhere":
                table.given_back(seat)
                table.strayed()
                report.seat = None
            elif (
                way == "file"
                and seat.file is not None
                and not await self._restored(table, seat.file, seat.slot, report)
            ):
                seat = replace(seat, expected=0)
            pinned = {"id_slot": seat.slot} if way != "anywhere" and self._slots > 1 else {}
            ticket.begins()
            try:
                async with aclosing(self._provider.stream({**body, **pinned}, self._info)) as stream:
                    async for events in stream:
                        report.take(events)
                        if report.seat is None and not has_begun:
                            report.seat = await self._landed(table, before, seat)
                        has_begun = has_begun or not all(isinstance(event, ReadingProgress) for event in events)
                        if not is_judged and (has := report.has(seat.expected)) is not None:
                            if ways and not has and not has_begun:
                                break
                            is_judged = True
                            self._judge(seat, way, has, report)
                        yield events
                    else:
                        ways.clear()
            except UpstreamRejected as error:
                if not pinned or has_begun or "slot" not in error.message.lower():
                    raise
                self._stand("left_alone", REFUSES)
                ways = deque[Way](["anywhere"])
            if ways and report.seat is None:
                table.lost()
                table.taken(seat)
                report.seat = seat
            seat = report.seat or seat
        if not is_judged:
            self._judge(seat, way, None, report)

    def _judge(self, seat: Seat, way: Way, has: bool | None, report: Report) -> None:
        """Learn from whether the engine had what a conversation goes on with; another one may have come between."""
        if not seat.expected or (seat.file is None and has is not False) or (not has and self._strays > report.strays):
            return
        if seat.file is None:  # it has forgotten what nobody has taken the place of: it may have been started anew
            self._can_save = None
            return
        if seat.is_out:
            standing = standing_after(self.standing, way, has)
            no_use = KEEPS if has and way != "file" else NO_EFFECT
            self._stand(standing, SAVES if standing == "saves" else no_use)
        if way == "file":
            self._note_help(report, has_helped=bool(has))

    def _stand(self, standing: Standing, told: str) -> None:
        """Do this from now on, and say so."""
        if standing != self.standing:
            self._say(told)
        self.standing = standing

    def _say(self, told: str) -> None:
        if told not in self._said:
            self._said.add(told)
            log.info("%s %s.", self._name, told)

    async def _save(self, table: SlotTable, seat: Seat, report: Report) -> None:
        """Have saved what leaves the slot; where that is of no use, it is only remembered that it has left."""
        if seat.leaves is None:
            return
        tokens, patience = 0, self._moving.patience(self._engine_of(), seat.leaves.tokens)
        if seat.saves:
            try:
                moved = await self._files.save(self._info.id, seat.slot, seat.number, patience)
                tokens, self._moving = moved.tokens, self._moving.after(moved.tokens, moved.seconds)
            except ElbowroomError as error:
                log.warning("%s could not save a slot: %s", self._name, error.message)
                self._note_help(report, has_helped=False)
        table.saved(seat, tokens)

    async def _restored(self, table: SlotTable, file: File, slot: int, report: Report) -> bool:
        """Have a file restored into a slot; return whether the slot has now what was saved."""
        try:
            patience = self._moving.patience(self._engine_of(), file.tokens)
            moved = await self._files.restore(self._info.id, slot, file.number, patience)
        except ElbowroomError as error:
            log.warning("%s could not restore a slot: %s", self._name, error.message)
            moved = SlotMoved(0, 0)
        self._moving = self._moving.after(moved.tokens, moved.seconds)
        if table.restored(file, moved.tokens):
            return True
        self._note_help(report, has_helped=False)
        return False

    def _note_help(self, report: Report, *, has_helped: bool) -> None:
        """Note whether a file was of use, and have nothing saved any more once it was so less often than not.

        That it was not is no news where the engine may have had another prompt in the slot meanwhile.
        """
        if not has_helped and self._strays > report.strays:
            return
        self._helped += 1 if has_helped else -1
        if self._helped < 0:
            self._stand("left_alone", NO_EFFECT)
