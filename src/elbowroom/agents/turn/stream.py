"""Reads the replies that clients get: hands each piece on, and stops an answer before it fills the window."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

from elbowroom.agents.admission import Ticket
from elbowroom.agents.answer import Answer, Reply, Said, Sink, ToolCall
from elbowroom.agents.ask import Question, ReplyReader, ask
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.prompt import Unreported
from elbowroom.agents.tools import CallsInText
from elbowroom.agents.turn.parting import StopSequences, ThoughtsInText
from elbowroom.context.manager import AgentContextManager, StreamVerdict
from elbowroom.context.seam import Continuation, StopFinder
from elbowroom.context.transcript import size_in_bytes
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

AHEAD: Final = 2048
"""Tokens of a large window that an answer holds at most before they have come."""
GROWS_BY: Final = 16
"""An answer that is longer than its reserve takes one sixteenth of the window at a time, and no more than AHEAD."""
EARLY: Final = 2
"""It asks for more when this fraction (one half) of what it takes at a time is left."""
URGENT: Final = 4
"""Where that was refused it asks again when one quarter is left, and stops if it is refused once more."""
AT_THE_END: Final = (Finished, UsageReport)


class StreamWatch:
    """Stops an answer before it fills the window. `said` is its text that the client has from earlier requests.

    All that the model generates is counted: visible text, thoughts and calls. Far from the edge a bound in bytes is
    enough, also for the share of the window that the request holds by its `ticket`. The tokenizer is asked only where
    the bound comes to 90 % of the window, and where other requests need the room. An answer `lacks_room` where others
    leave it none: then it is stopped.
    """

    def __init__(
        self, manager: AgentContextManager, counter: StreamCounter, said: str, ticket: Ticket | None = None
    ) -> None:
        self.is_stopped = self.lacks_room = False
        self.has_ended = False
        """The model has ended by itself: nothing is left to stop."""
        self._manager = manager
        self._counter = counter
        self._ticket = ticket
        self._grows_by = max(1, min(manager.budget.window // GROWS_BY, AHEAD))
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
        """Return how many tokens have come. Text is counted only when this is asked, and once."""
        if self._uncounted:
            for text in self._uncounted:
                self._counter.feed(text)
            self._uncounted.clear()
            self._counted, self._counted_bytes = self._counter.value, self._bytes
        return self._counted

    def count(self, text: str) -> None:
        """Note a piece that the model has generated, shown or not."""
        self._uncounted.append(text)
        self._bytes += size_in_bytes(text)

    def keep_text(self, text: str) -> str:
        """Return the part of the next visible piece that belongs to the answer: all, or less where the answer stops."""
        verdict: StreamVerdict = "go on" if self._bytes < self._harmless else self._verdict()
        if verdict == "go on" and self._finder is None:
            self._text.append(text)
            return text
        if self._finder is None:
            self._finder = StopFinder("".join(self._text))
        place = self._finder.feed(text)
        if verdict == "stop now" and place is None:
            place = self._finder.end_of_word(text, waits=not self.lacks_room)
        if verdict == "go on" or place is None:
            return text
        self.is_stopped = True
        return text[:place]

    def pass_thought(self, text: str) -> None:
        """Look at a piece of the model's thinking, which may stop after any line."""
        verdict = self._verdict()
        self.is_stopped = verdict == "stop now" or (verdict == "stop at a good place" and "\n" in text)

    def pass_call(self) -> None:
        """Look at a piece of a tool call: half a call is of no use, so it is stopped only where it must be."""
        self.is_stopped = self._verdict(in_call=True) == "stop now"

    def _verdict(self, *, in_call: bool = False) -> StreamVerdict:
        if self.has_ended or self._bytes < self._harmless or self._fits_by_bytes():
            return "go on"
        generated, self.lacks_room = self.generated, False
        verdict = self._manager.while_streaming(generated, in_call=in_call)
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

        After a refusal the next question for more of the window comes when it is urgent, not at each token.
        """
        edge = self._manager.budget.stop_at
        if self._ticket is not None:
            spare = self._grows_by // (URGENT if self.lacks_room else EARLY)
            edge = min(edge, self._ticket.tokens - spare)
        return edge - self._manager.prompt - generated


class ReplyStream(ReplyReader):
    """Reads the reply of one model step into `answer` and shows it to `sink` as it comes.

    A reply that `watch` has stopped at the edge of the window goes on with another request: the text that continues is
    joined to the text before it, without what it repeats. Where it `begins_anew`, it is broken off and not shown.
    `is_for_client` tells whether a call of this name goes to the client, and `live` records all of the reply. An empty
    reply after text means that the model has nothing to add, unless it must not be: `may_be_empty`. `unreported` is the
    last request where the engine reported no usage, `lost` what the engine had to read again, as JSON. Calls of
    `tools` that stand in the text are taken as calls, thoughts at its beginning as thoughts. It
    `has_stopped` where one of `stops` stands in it. Calls are taken as what they are `resolved` to.
    """

    def __init__(
        self,
        answer: Answer,
        sink: Sink,
        offered: Collection[str],
        is_for_client: Callable[[str], bool],
        live: TurnRecorder | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        stops: Sequence[str] = (),
        resolved: Callable[[ToolCall], ToolCall] | None = None,
    ) -> None:
        super().__init__(offered)
        self.watch: StreamWatch | None = None
        self.may_be_empty = True
        self.unreported: Unreported | None = None
        self.lost: dict[str, Any] | None = None
        self._answer, self._guard, self._sink = answer, answer.guard, sink
        self._is_for_client = is_for_client
        self.live = live
        self._body: Mapping[str, Any] = {}
        self._tools = tools
        self._in_text: CallsInText | None = None
        self._thoughts: ThoughtsInText | None = None
        self._may_think, self.has_stopped = True, False
        self._stops, self._resolved = stops, resolved
        self._until: StopSequences | None = None
        self._continuation: Continuation | None = None
        self._unseen: list[Said] = []
        answer.begin_step()
        if live is not None:
            live.step_began()

    async def run(self, provider: Provider, body: Mapping[str, Any], info: ModelInfo) -> Reply:
        """Send a body that takes no room of a shared context, read the reply to its end and return it."""
        await ask(Question(provider, info, body), self)
        return await self.close()

    @property
    def begins_anew(self) -> bool:
        """Tell whether the last request, which had to go on with the reply, began with its first words again."""
        return self._continuation is not None and self._continuation.begins_anew

    @property
    def was_cut(self) -> bool:
        """Tell whether the last request ended at a limit of its length."""
        return self._answer.upstream_finish == "length"

    def begin(self, body: Mapping[str, Any]) -> None:
        """Prepare for a request that continues the reply so far."""
        self._body, self.pieces, self.usage, self.finish = body, [], None, ""
        self._unseen, self.has_enough = [], False
        if self._guard is not None:
            self._guard.drop()
        self._in_text = CallsInText(self._tools) if self._tools else None
        self._thoughts, self._may_think = None, True
        self._until, self.has_stopped = StopSequences(self._stops) if self._stops else None, False
        said = "".join(self.reply.text)
        self._continuation = Continuation(said) if said else None

    async def take(self, events: list[StreamEvent]) -> None:
        """Take what has arrived, and show the client its part of it."""
        if self.watch is not None and events and isinstance(events[-1], AT_THE_END):
            self.watch.has_ended = True
        self.gather(events)
        if self.finish:
            self._answer.upstream_finish = self.finish
        if self._unseen:
            await self._shown()

    def take_text(self, event: TextDelta) -> None:
        """Take a piece of visible text, without what it repeats and what comes after the place where it stops."""
        text = event.text
        self.pieces.append(text)
        if self.watch is not None:
            self.watch.count(text)
        if self._may_think:
            text = self._without_thoughts(text)
        if self._until is not None:
            text = self._until.feed(text)
            self.has_stopped = self._until.found is not None
        if self._in_text is not None:
            text = self._take_written(*self._in_text.feed(text))
            if self.watch is not None and self._in_text.is_inside:
                self.watch.pass_call()
        if self._continuation is not None:
            text = self._continuation.feed(text)
        if self.watch is not None:
            text = self.watch.keep_text(text)
        self.has_enough = self.has_stopped or self.begins_anew or (self.watch is not None and self.watch.is_stopped)
        if text != event.text:
            event = TextDelta(text)
        if self._guard is None and event.text:  # nearly always
            self.reply.text.append(event.text)
            self._unseen.append(event)
        elif event.text or event.logprobs is not None:
            self._say(event)

    def _without_thoughts(self, text: str) -> str:
        """Return the words of a text, and take the thoughts in it, which are counted already."""
        if self._thoughts is None:
            if text.strip() and not text.lstrip().startswith("<"):  # nearly always
                self._may_think = False
                return text
            self._thoughts = ThoughtsInText()
        thoughts, words = self._thoughts.feed(text)
        self._may_think = not self._thoughts.is_over
        if thoughts:
            self._think(ReasoningDelta(thoughts))
        return words

    def _take_written(self, shown: str, calls: Sequence[ToolCallDelta]) -> str:
        """Take calls that stand in the text; return what is to be shown of it."""
        for call in calls:
            self.has_calls = True
            self.reply.add_call(call)
        return shown

    def take_thought(self, event: ReasoningDelta) -> None:
        """Take a piece of the model's thinking; it is not shown in the middle of a text."""
        self.pieces.append(event.text)
        if self.watch is not None:
            self.watch.count(event.text)
        self._think(event)

    def _think(self, event: ReasoningDelta) -> None:
        if self.watch is not None:
            self.watch.pass_thought(event.text)
            self.has_enough = self.watch.is_stopped
        if self._continuation is None or not self.reply.text:
            self._say(event)

    def take_call(self, event: ToolCallDelta) -> None:
        """Take a piece of a tool call, which is shown once it is whole."""
        super().take_call(event)
        if self.watch is not None:
            self.watch.count((event.name or "") + event.arguments)
            self.watch.pass_call()
            self.has_enough = self.watch.is_stopped

    def accept_empty(self) -> bool:
        """Take an empty reply after text as the end of the answer, where it may be empty."""
        if not self._answer.text or not self.may_be_empty:
            return False
        self._answer.upstream_finish = "stop"
        return True

    async def end(self) -> None:
        """Show what has been held back, and note the usage of the request."""
        rest = "" if self.has_enough and not self.has_stopped else self._rest()
        if rest:
            self._say(TextDelta(rest))
        if self._guard is not None:
            for event in self._guard.end_attempt(goes_on=self.has_enough or self.was_cut):
                self._keep(event)
        if self._unseen:
            await self._shown()
        self.unreported = Unreported(self._body, self.generated) if self.usage is None else None
        if self.usage is not None:
            self._answer.usages.append(self.usage)
        self._answer.engine = self.reply.engine
        self._answer.stop_sequence = self._until.found if self._until is not None else None
        if self.has_stopped:
            self._answer.upstream_finish = "stop"

    def _rest(self) -> str:
        """Return the text that was held back until the end of the request, and take the thoughts and calls in it."""
        thoughts, rest = self._thoughts.end() if self._thoughts is not None else ("", "")
        if thoughts:
            self._think(ReasoningDelta(thoughts))
        if self._until is not None:
            rest = self._until.feed(rest) + self._until.end()
            self.has_stopped = self._until.found is not None
        if self._in_text is not None:
            rest = self._take_written(*self._in_text.feed(rest)) + self._take_written(*self._in_text.end())
        return self._continuation.feed(rest) + self._continuation.end() if self._continuation is not None else rest

    def end_for_length(self) -> None:
        """Note that the reply ended because the window is full."""
        self._answer.upstream_finish = "length"

    async def close(self) -> Reply:
        """Take the reply as whole: hand the client its tool calls and return it."""
        calls = self.reply.close_calls(was_cut=self.was_cut)
        if self._resolved is not None:
            self.reply.tool_calls = calls = list(map(self._resolved, calls))
        if self.live is not None:
            self.live.called(calls, self.lost)
        if calls and (own := [call for call in calls if self._is_for_client(call.name)]):
            await self._sink(list(map(self._answer.take, own)))
        return self.reply

    def _say(self, event: Said) -> None:
        """Show the client a piece, without remote images where there is a guard."""
        if self._guard is None:
            self._keep(event)
            return
        for safe in self._guard.passed(event):
            self._keep(safe)

    def _keep(self, event: Said) -> None:
        (self.reply.text if isinstance(event, TextDelta) else self.reply.reasoning).append(event.text)
        self._unseen.append(event)

    def _shown(self) -> Awaitable[None]:
        """Record what the client has not seen yet, and hand it to the sink; nothing where the sink refuses it."""
        said, self._unseen = self._unseen, []
        showing = self._sink(list(map(self._answer.take, said)))
        if self.live is not None:
            self.live.said(said)
        return showing
