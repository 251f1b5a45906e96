"""One step of a run: ask the model, once or several times over for one reply, and hand on each piece as it comes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from elbowroom.agents.admission import Ticket
from elbowroom.agents.answer import Answer, AnswerEvent, Reply, Said, Sink
from elbowroom.agents.conversations import LiveTurn
from elbowroom.agents.prompt import Unreported
from elbowroom.context.manager import AgentContextManager, StreamVerdict
from elbowroom.context.seam import Continuation, StopFinder
from elbowroom.errors import EmptyReply
from elbowroom.providers.base import (
    Finished,
    ModelInfo,
    Provider,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from elbowroom.tokens.files import StreamCounter

GROWS_BY: Final = 16
"""An answer that is longer than its reserve takes one sixteenth of the window at a time."""
EARLY: Final = 2
"""It asks for that when one in so many parts of what it takes at a time is left,"""
URGENT: Final = 4
"""and where it was refused, again when one in so many is: then it has to stop."""


class StreamWatch:
    """Follows one answer as it comes. `said` is what of it the client has had from earlier requests.

    Everything that the model generates is counted: visible text, thoughts and calls. Far from the edge a bound in
    bytes is enough, also for what the request holds of the window by its `ticket`; the tokenizer is asked only where
    that could be at 90 % of the window, and where others need the room. An answer that others leave no room for
    `lacks_room`: it is stopped.
    """

    def __init__(
        self, manager: AgentContextManager, counter: StreamCounter, said: str, ticket: Ticket | None = None
    ) -> None:
        self.is_stopped = False
        self.lacks_room = False
        self._has_ended = False
        self._manager = manager
        self._counter = counter
        self._ticket = ticket
        self._grows_by = max(1, manager.budget.window // GROWS_BY)
        self._bytes = 0
        self._counted = self._counted_bytes = 0
        self._harmless = self._least_left(0)
        if ticket is not None:
            ticket.settled = self._needed
        self._uncounted: list[str] = []
        self._text = [said]
        self._finder: StopFinder | None = None

    @property
    def generated(self) -> int:
        """Return how many tokens have come. Nothing is counted before somebody wants to know, and nothing twice."""
        if self._uncounted:
            for text in self._uncounted:
                self._counter.feed(text)
            self._uncounted.clear()
            self._counted, self._counted_bytes = self._counter.value, self._bytes
        return self._counted

    def end(self) -> None:
        """Take note that the model has ended by itself: there is nothing left to be stopped."""
        self._has_ended = True

    def count(self, text: str) -> None:
        """Take note of what the model has generated, whatever becomes of it."""
        self._uncounted.append(text)
        self._bytes += size_in_bytes(text)

    def keep_text(self, text: str) -> str:
        """Return how much of the next visible piece belongs to the answer: all of it, or less where it stops."""
        verdict = self._verdict()
        if verdict == "go on" and self._finder is None:
            self._text.append(text)
            return text
        if self._finder is None:
            self._finder = StopFinder("".join(self._text))
        place = self._finder.feed(text)
        if verdict == "go on" or (verdict == "stop at a good place" and place is None):
            return text
        self.is_stopped = True
        return text if place is None else text[:place]

    def pass_thought(self, text: str) -> None:
        """Look at a piece of the model's thinking, which may be stopped behind any line."""
        verdict = self._verdict()
        self.is_stopped = verdict == "stop now" or (verdict == "stop at a good place" and "\n" in text)

    def pass_call(self) -> None:
        """Look at a piece of a tool call: half a call is of no use, so it is stopped only where it must be."""
        self.is_stopped = self._verdict() == "stop now"

    def _verdict(self) -> StreamVerdict:
        if self._has_ended or self._bytes < self._harmless or self._fits_by_bytes():
            return "go on"
        generated, self.lacks_room = self.generated, False
        verdict = self._manager.while_streaming(generated)
        if verdict == "go on":
            verdict = self._beside_others(self._manager.prompt + generated)
        if verdict == "go on":
            self._harmless = self._bytes + self._least_left(generated)
        return verdict

    def _fits_by_bytes(self) -> bool:
        """Tell whether the answer fits even if each byte since the last count is a token; it holds as much then."""
        most = self._counted + self._bytes - self._counted_bytes
        filled = self._manager.prompt + most
        if self._ticket is None or filled >= self._manager.budget.stop_at:
            return False
        if not self._ticket.grow(min(filled + self._grows_by, self._manager.budget.window), insists=False):
            return False
        self.lacks_room = False
        self._harmless = self._bytes + self._least_left(most)
        return True

    def _needed(self) -> int:
        """Return how many tokens of the window the request needs for what has come and what comes next."""
        return self._manager.prompt + self.generated + self._grows_by

    def _beside_others(self, filled: int) -> StreamVerdict:
        """Hold more of the window where the answer needs it soon; without room for that it has to stop."""
        wanted = min(filled + self._grows_by, self._manager.budget.window)
        self.lacks_room = self._ticket is not None and not self._ticket.grow(wanted)
        if self._ticket is None or not self.lacks_room:
            return "go on"
        left = self._ticket.tokens - filled
        if left > self._grows_by // URGENT:
            return "go on"  # work in the background leaves as soon as it is asked to
        return "stop at a good place" if left > 0 else "stop now"

    def _least_left(self, generated: int) -> int:
        """Return how many tokens can come before there is something to decide; each has at least a byte.

        Who has just been refused more of the window asks again when that has become urgent, not at each token.
        """
        edge = self._manager.budget.stop_at
        if self._ticket is not None:
            spare = self._grows_by // (URGENT if self.lacks_room else EARLY)
            edge = min(edge, self._ticket.tokens - spare)
        return edge - self._manager.prompt - generated


def size_in_bytes(text: str) -> int:
    """Return how many bytes a text has, lone halves of characters in it or not."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Step:
    """Reads a streamed reply into `answer` and `sink`; `is_for_client` tells whose tool a name is.

    A reply that was stopped at the edge of the window goes on with another `attempt`. `usage` is what the engine
    has reported for the last one, None where it reports nothing; `unreported` is then what that was an answer to.
    `live` is told all that the reply takes.
    """

    def __init__(
        self,
        answer: Answer,
        sink: Sink,
        offered: Collection[str],
        is_for_client: Callable[[str], bool],
        live: LiveTurn | None = None,
    ) -> None:
        self._answer = answer
        self._guard = answer.guard
        self._sink = sink
        self._is_for_client = is_for_client
        self._live = live
        self._watch: StreamWatch | None = None
        self._continuation: Continuation | None = None
        self._generated: list[str] = []
        self.usage: dict[str, Any] | None = None
        self.unreported: Unreported | None = None
        self.reply = Reply(offered)
        answer.begin_step()
        if live is not None:
            live.step_began()

    async def run(self, provider: Provider, body: Mapping[str, Any], info: ModelInfo) -> Reply:
        """Send the body and return the whole reply, as `attempt` and `close` do."""
        await self.attempt(provider, body, info)
        return await self.close()

    async def attempt(
        self,
        provider: Provider,
        body: Mapping[str, Any],
        info: ModelInfo,
        watch: StreamWatch | None = None,
        ticket: Ticket | None = None,
        *,
        may_be_empty: bool = True,
    ) -> None:
        """Send the body and read until the model ends, or until the watch stops it; that closes the upstream.

        `ticket` is what the request holds of the model's context; it is told when the prompt has been read.

        What continues a text is joined to it: what it repeats of the end is left out. An empty reply after text
        means that the model has nothing to add, where it `may_be_empty`; otherwise it is raised as EmptyReply, like
        every other failure.
        """
        self.usage = None
        self._generated = []
        self._watch = watch
        if self._guard is not None:
            self._guard.drop()
        said = "".join(self.reply.text)
        self._continuation = Continuation(said) if said else None
        try:
            async with aclosing(provider.stream(body, info)) as stream:
                async for events in stream:
                    if ticket is not None and ticket.is_prefilling:
                        ticket.first_token()
                    await self._take(events)
                    if watch is not None and watch.is_stopped:
                        break
        except EmptyReply:
            if not self._answer.text or not may_be_empty:
                raise
            self._answer.upstream_finish = "stop"
        await self._end_attempt()
        self.unreported = None
        if self.usage is not None:
            self._answer.usages.append(self.usage)
        else:
            self.unreported = Unreported(body, self.generated)

    @property
    def pieces(self) -> Sequence[str]:
        """Return what the model has written in the last attempt, as it came."""
        return self._generated

    @property
    def generated(self) -> str:
        """Return all that the model has written in the last attempt, shown or not."""
        return "".join(self._generated)

    @property
    def was_cut(self) -> bool:
        """Tell whether the last attempt ended at a limit of its length."""
        return self._answer.upstream_finish == "length"

    def end_for_length(self) -> None:
        """Let the reply be one that ended for want of room."""
        self._answer.upstream_finish = "length"

    async def close(self) -> Reply:
        """Take the reply as whole: hand the client its tool calls and return it."""
        calls = self.reply.close_calls(was_cut=self.was_cut)
        if self._live is not None:
            self._live.called(calls)
        await self._hand_on([call for call in calls if self._is_for_client(call.name)])
        return self.reply

    async def _take(self, events: list[StreamEvent]) -> None:
        visible: list[Said] = []
        if self._watch is not None and events and isinstance(events[-1], Finished | UsageReport):
            self._watch.end()
        for event in events:
            match event:
                case TextDelta():
                    visible += self._text(event)
                case ReasoningDelta():
                    visible += self._thought(event)
                case ToolCallDelta():
                    self._call(event)
                case Finished():
                    self._answer.upstream_finish = event.reason
                case UsageReport():
                    self.usage = event.usage
            if self._watch is not None and self._watch.is_stopped:
                break
        await self._show(visible)

    def _text(self, event: TextDelta) -> list[Said]:
        text = event.text
        self._generated.append(text)
        if self._watch is not None:
            self._watch.count(text)
        if self._continuation is not None:
            text = self._continuation.feed(text)
        if self._watch is not None:
            text = self._watch.keep_text(text)
        if text != event.text:
            event = replace(event, text=text, logprobs=None)
        return self._said(event)

    def _said(self, event: TextDelta) -> list[Said]:
        return self._shown(event) if event.text or event.logprobs is not None else []

    def _thought(self, event: ReasoningDelta) -> list[Said]:
        self._generated.append(event.text)
        if self._watch is not None:
            self._watch.count(event.text)
            self._watch.pass_thought(event.text)
        if self.reply.text and self._continuation is not None:
            return []  # it thinks about how to go on with a text that the client is in the middle of
        return self._shown(event)

    def _shown(self, event: Said) -> list[Said]:
        """Take an event into the reply, and return what the client sees now."""
        return self._taken([event] if self._guard is None else self._guard.passed(event))

    def _taken(self, events: Sequence[Said]) -> list[Said]:
        for event in events:
            kept = self.reply.text if isinstance(event, TextDelta) else self.reply.reasoning
            kept.append(event.text)
        return [*events]

    def _call(self, event: ToolCallDelta) -> None:
        self.reply.add_call(event)
        self._generated += [event.name or "", event.arguments]
        if self._watch is not None:
            self._watch.count((event.name or "") + event.arguments)
            self._watch.pass_call()

    async def _end_attempt(self) -> None:
        """Hand on what has been held back."""
        is_stopped = self._watch is not None and self._watch.is_stopped
        rest = self._continuation.end() if self._continuation is not None and not is_stopped else ""
        visible = self._said(TextDelta(rest))
        if self._guard is not None:
            visible += self._taken(self._guard.end_attempt(goes_on=is_stopped or self.was_cut))
        await self._show(visible)

    async def _show(self, said: Sequence[Said]) -> None:
        if said and self._live is not None:
            self._live.said(said)
        await self._hand_on(said)

    async def _hand_on(self, events: Sequence[AnswerEvent]) -> None:
        if events:
            await self._sink([self._answer.take(event) for event in events])
