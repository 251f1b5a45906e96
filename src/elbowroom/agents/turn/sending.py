"""Sends the requests of one model step, each as soon as there is room for it, and accounts for what it has used."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Final

from elbowroom.agents.admission import Leaving, PoolKey, Priority, Ticket
from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.ask import Question, ask, rough_prompt
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import PromptSize, cached_of, template_arguments
from elbowroom.agents.turn.compactor import SECONDS_BETWEEN
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.agents.turn.recovery import Recovery
from elbowroom.agents.turn.state import Shared
from elbowroom.agents.turn.stream import AHEAD, ReplyStream, StreamWatch
from elbowroom.context.conversation import ContextFill, StepUsage
from elbowroom.context.costs import LEAST_TOLD
from elbowroom.context.effects import Progress
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.reuse import Kept, SentPrompt, Talk, alike_in_cache, change_between, loss_of
from elbowroom.context.transcript import Message, size_in_bytes, text_of
from elbowroom.errors import ContextOverflow, ElbowroomError
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.files import StreamCounter

AHEAD_OF_IT: Final = {
    Priority.CHAT: "another chat is before this one",
    Priority.TASK: "a title, tags or the like are being written",
    Priority.BACKGROUND: "an earlier part of a conversation is being summarised",
    None: "it reads a prompt to its end that was stopped",
}
"""What is before a request that waits, by the rank of that."""
ANOTHERS_TURN: Final = "Waiting for the model: another of your tasks goes on first, which it has in its memory."


@dataclass(slots=True)
class Sending:
    """Sends the history of `manager`, that `fit` makes fit, to the model of `recovery`; `stream` reads the replies.

    `pool_key` is that of the context which the requests share with others of the model, `name` the same as one word.
    `talk` returns the keys of the conversation, by which its last prompt is found. `leaves` tells whether another
    machine has room, None where there is none. The step `began` at this time.

    After a request, `size` is that of its prompt, None where the reply took more than one, and `watch` has watched the
    reply, None where nothing may stop it. `used` are the tokens that each request has used, also one that was answered
    in part, and `generated` those of all replies but the last.
    """

    target: Target
    pool_key: PoolKey
    name: str
    recovery: Recovery
    manager: AgentContextManager
    fit: PromptFit
    stream: ReplyStream
    shared: Shared
    tell: Sink
    talk: Callable[[], Talk]
    leaves: Leaving | None = None
    began: float = field(default_factory=time.monotonic)
    size: PromptSize | None = None
    watch: StreamWatch | None = None
    used: list[StepUsage] = field(default_factory=list)
    generated: int = 0
    is_limited_by_client: bool = False
    _answering: "StreamWatch | Unwatched | None" = None
    _was_sent: bool = False
    _prompt: SentPrompt | None = None
    _kept: tuple[Kept, float] | None = None
    _waits: bool = False

    @property
    def reported(self) -> StepUsage | None:
        """Return the engine's own report on the last request; None where it sent none."""
        return self.used[-1] if self.used and not self.used[-1].is_counted else None

    @property
    def visible(self) -> int:
        """Return how many pieces of words and thoughts have come."""
        return len(self.stream.reply.text) + len(self.stream.reply.reasoning)

    @property
    def left_for_client(self) -> float:
        """Return how many tokens the client still wants, infinity where it sets no limit."""
        asked = self.fit.prompt.shape.max_tokens
        return inf if asked is None else asked - self.generated

    def answered(self, reply: Message) -> int:
        """Return the most tokens that the conversation may have with this reply; each has at least a byte."""
        if (used := self.reported) is not None:
            return max(used.total, self.manager.prompt + used.output)
        return self.manager.prompt + size_in_bytes(text_of(reply))

    def fill(self) -> ContextFill | None:
        """Return how full the window is now, with the answer that grows; None before a prompt was measured."""
        return fill_now(self.manager, self._answering.generated if self._answering is not None else 0)

    def question(self, body: Mapping[str, Any], prompt: int) -> Question:
        """Return the question that is asked with a prompt of the conversation, which has at most so many tokens."""
        window, conversation = self.manager.budget.window, tuple(self.talk().kept)
        return Question(self.target.provider, self.recovery.info, body, prompt, window, conversation=conversation)

    async def send_uncounted(self) -> None:
        """Send a prompt of unknown size, which holds the whole window."""
        body = await self.fit.prompt.body(self.manager.history.messages)
        window = self.manager.budget.window
        await ask(
            self.question(body, window),
            self.stream,
            self.shared.admission,
            held=window,
            on_wait=self._tell_waiting,
            leaves=self.leaves,
            ended=partial(self._end, None, body),
        )

    async def send(self, size: PromptSize) -> bool:
        """Send a prompt as soon as there is room for it beside others, and read the reply.

        Return False where it was not sent, since the window has become smaller. Raises what the engine fails with.
        """
        self._was_sent, self.watch, self._prompt, self._kept = False, None, None, None
        ahead, body = self._reply_limit(size), {**size.body}
        if self._can_stop:  # and so it takes more later
            ahead = min(ahead, self.manager.budget.reserve(size.count.at_most), AHEAD)
        try:
            await ask(
                self.question(body, size.count.at_most),
                self.stream,
                self.shared.admission,
                held=size.count.at_most + ahead,
                on_wait=self._tell_waiting,
                leaves=None if self.visible else self.leaves,
                admitted=partial(self._begin, size, body),
                reading=self._tell_reading,
                ended=partial(self._end, size, body),
            )
        except ElbowroomError as error:
            if self._was_sent:
                self._note_failure(error)
            raise
        if self._kept is not None and self._kept[0].before is not None:
            await self._note_loss(*self._kept, body["messages"])
        return self._was_sent

    @property
    def _can_stop(self) -> bool:
        return not self.fit.prompt.shape.is_constrained and self.manager.can_restart

    def _reply_limit(self, size: PromptSize) -> int:
        """Return the upstream's max_tokens: the rest of the window, or of what the client asked for."""
        budget = self.manager.budget
        limit = budget.reply_limit(size.count.within(budget.window))
        return limit if self.left_for_client == inf else max(1, min(limit, int(self.left_for_client)))

    async def _begin(self, size: PromptSize, body: dict[str, Any], ticket: Ticket | None) -> ModelInfo | None:
        """Prepare to send a prompt of this size; return the model as it is now, None where the prompt has to shrink."""
        if self._waits:
            await self._tell_waited()
        if await self.recovery.has_shrunk() and not self.recovery.fits(size.count.at_most):
            if self.manager.can_restart:
                return None
            if size.count.at_least >= self.manager.budget.window:
                raise await self.fit.overflow()
        self._was_sent = True
        self.stream.reply.drop_calls()  # those of a reply that goes on, in which the model makes them again
        self.manager.sent(size.count.at_most)
        if self.stream.live is not None:
            self.stream.live.prompt = size.count.tokens
        self.size = None if self.generated else size
        window = self.manager.budget.window
        self.is_limited_by_client = self.left_for_client <= window - size.count.within(window)
        counter = StreamCounter(self.fit.prompt.running.tokenizer)
        watch = StreamWatch(self.manager, counter, "".join(self.stream.reply.text), ticket) if self._can_stop else None
        self._answering = watch or Unwatched(lambda: self.stream.pieces, counter)
        self.watch = self.stream.watch = watch
        self.stream.may_be_empty = not self.recovery.is_near_edge(size.count.at_most)
        body["max_tokens"] = self._reply_limit(size)
        self._prompt = self._digested(body)
        if ticket is not None:
            ticket.reads = await self._to_read(size, self._prompt, body["messages"])
        return self.recovery.info

    async def _to_read(self, size: PromptSize, prompt: SentPrompt, sent: Sequence[Message]) -> int:
        """Return how many tokens of a prompt its engine has to read, by what it has read of the conversation."""
        before = self.shared.prompts.there(self.talk(), prompt, self.recovery.info.slots or 1)
        if before is None:
            return size.count.tokens
        shared = prompt.shared_with(before)
        goes_on = shared == len(before.messages)
        there = before.tokens + before.answer if goes_on else await self.fit.prompt.beginning(sent, shared)
        return max(1, size.count.tokens - there)

    def _note_failure(self, failure: ElbowroomError) -> None:
        self.shared.observations.upstream_failed(self.target.provider.id, type(failure).__name__)
        if isinstance(failure, ContextOverflow):
            self.shared.observations.overflowed(self.name)

    def _end(self, size: PromptSize | None, body: Mapping[str, Any], ticket: Ticket | None) -> None:
        """Note what the last request has used, and its prompt where that was read; without a `size` it is guessed."""
        self._answering = None
        prompt = size.count.tokens if size is not None else rough_prompt(body)
        if (used := self.stream.used(prompt, self.fit.prompt.text)) is not None:
            self.used.append(used)
            self.manager.filled = used.total
            if not used.is_counted and size is not None:
                self.shared.observations.prompt_counted(self.name, prompt, used.prompt)
        if self._prompt is not None and ticket is not None and ticket.read_in is not None:
            tokens = self.reported.prompt if self.reported is not None else prompt
            answer = used.output if used is not None else 0
            kept = self.shared.prompts.keep(self.talk(), replace(self._prompt, tokens=tokens, answer=answer))
            self._kept = kept, ticket.read_in

    def note_prompt(self, body: Mapping[str, Any], tokens: int) -> None:
        """Remember a prompt of the conversation that the engine has read, which no answer followed."""
        self.shared.prompts.keep(self.talk(), replace(self._digested(body), tokens=tokens))

    def _digested(self, body: Mapping[str, Any]) -> SentPrompt:
        """Return the digests of a prompt of the conversation.

        The beginning of an answer with the order to go on is left out: the whole answer will stand in its place.
        """
        if self.manager.history.is_stopped:
            body = {**body, "messages": body["messages"][:-2]}
        recalled = self.fit.recall.keeping.replaces
        compacted = (recalled.key if recalled is not None else "", self.manager.history.changes)
        return SentPrompt.of(self.name, self.recovery.info.loaded_context, body, template_arguments(body), compacted)

    async def _note_loss(self, kept: Kept, read_in: float, sent: Sequence[Message]) -> None:
        """Tell what the engine had to read again of the prompt before, and why."""
        told = cached_of(self.stream.usage, self.stream.reply.engine)
        if kept.before is None or not kept.may_lack(told, self.recovery.info.slots or 1):
            return
        change = change_between(kept.before, kept.now)
        cached = told if told is not None else await self.fit.prompt.beginning(sent, alike_in_cache(kept, change))
        loss = loss_of(kept, change, cached, is_measured=told is not None, seconds=read_in)
        if loss is not None:
            self.stream.lost = loss.as_json()
            self.shared.observations.cache_lost(self.name, loss.reason, loss.tokens, loss.seconds)
            request_facts().lost(self.stream.lost)

    async def _tell_waiting(self, before: Sequence[Priority]) -> None:
        self._waits = True
        what = f"{len(before)} requests are before this one" if len(before) > 1 else AHEAD_OF_IT.get((*before, None)[0])
        await self.tell([Notice("waiting", f"Waiting for the model: {what}.")])

    async def tell_of_turn(self) -> None:
        """Tell the person that the engine goes on with another chat of theirs for a moment."""
        self._waits = True
        await self.tell([Notice("waiting", ANOTHERS_TURN)])

    async def _tell_reading(self, ticket: Ticket) -> None:
        """Tell how much is being read, and how long that takes yet, until this is cancelled."""
        told = ""
        try:
            while True:
                if (left := ticket.reading_left) is not None and (told or left >= LEAST_TOLD):
                    told, progress = reading_told(ticket, left), Progress(seconds_left=round(left))
                    await self.tell([Notice("reading", told, is_done=False, progress=progress)])
                await asyncio.sleep(SECONDS_BETWEEN)
        finally:
            if told:
                await self.tell([Notice("reading", "", is_hidden=True)])

    async def _tell_waited(self) -> None:
        """Take the line away that told of the wait."""
        self._waits = False
        await self.tell([Notice("waited", "The model is free.", is_hidden=True)])


def reading_told(ticket: Ticket, left: float) -> str:
    """Return what the model is reading, and about how long it takes yet, in words."""
    reading = ticket.reading
    tokens = reading.total - reading.cached if reading is not None else ticket.reads
    return f"Reading {tokens:,} tokens" + (f", about {seconds} s left" if (seconds := round(left)) else "")


def fill_now(manager: AgentContextManager, generated: int) -> ContextFill | None:
    """Return how full the window is while an answer of so many tokens grows; None before a prompt was measured."""
    return ContextFill.of(manager.filled + generated, manager.budget) if manager.filled else None


class Unwatched:
    """Counts an answer that nothing may stop: `pieces` returns all its text so far, and each piece is counted once."""

    def __init__(self, pieces: Callable[[], Sequence[str]], counter: StreamCounter) -> None:
        self._pieces = pieces
        self._counter = counter
        self._counted = 0

    @property
    def generated(self) -> int:
        """Return how many tokens have come."""
        pieces = self._pieces()
        for text in pieces[self._counted :]:
            self._counter.feed(text)
        self._counted = len(pieces)
        return self._counter.value
