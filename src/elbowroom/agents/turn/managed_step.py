"""One model step inside a window: compacts a prompt that does not fit, continues an answer that fills it up."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

from elbowroom.agents.admission import Job, Leaving, PoolKey, Priority, Ticket
from elbowroom.agents.answer import Notice, Reply, Sink
from elbowroom.agents.ask import Question, ask, rough_prompt
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import (
    PromptSize,
    StepCounter,
    StepRequest,
    cached_of,
    template_arguments,
)
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.agents.turn.recovery import Recovery
from elbowroom.agents.turn.state import Shared
from elbowroom.agents.turn.stream import AHEAD, ReplyStream, StreamWatch
from elbowroom.context.budget import Decision, Refuse
from elbowroom.context.conversation import ContextFill, StepUsage
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.planner import BEFORE_REQUEST, IN_ANSWER
from elbowroom.context.reuse import Kept, SentPrompt, Talk, alike_in_cache, change_between, loss_of
from elbowroom.context.transcript import Message, size_in_bytes, text_of
from elbowroom.errors import ContextOverflow, ElbowroomError, EmptyReply, ModelUnavailable
from elbowroom.logs.formats import FIELDS
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.files import StreamCounter

log = logging.getLogger(__name__)
THOUGHTS_KEPT: Final = 1500  # characters
AHEAD_OF_IT: Final = {
    Priority.CHAT: "another chat is before this one",
    Priority.TASK: "a title, tags or the like are being written",
    Priority.BACKGROUND: "an earlier part of a conversation is being summarised",
    None: "it reads a prompt to its end that was stopped",
}
"""What is before a request that waits, by the rank of that."""
FULL: Final = "ask it to go on, or load the model with more context. Its {window:,} tokens are full."
AT_LIMIT: Final = "ask it to go on, or raise max_restarts ({most}). {freed:,} of {window:,} tokens can go."
BEGAN_ANEW: Final = "ask it to go on from its last words. It was full, and has begun the answer anew twice."


@dataclass(slots=True)
class ManagedStep:
    """Asks for one reply and keeps it within the window by the three checks of `manager`.

    `fit` makes the history of `manager` fit the window. `talk` returns the keys of the conversation, by which its last
    prompt is found. `job` is a background compaction of this very conversation that is under way since its last answer.
    `leaves` tells whether another machine has room, None where there is none. After `run`, `size` is that of the last
    prompt, None where the reply took more than one request; `used` are the tokens that each request has used, also
    one that was answered in part. `name` is the model's after its provider's.
    """

    target: Target
    info: ModelInfo
    counter: StepCounter
    manager: AgentContextManager
    fit: PromptFit
    stream: ReplyStream
    shared: Shared
    tell: Sink
    talk: Callable[[], Talk]
    job: Job | None = None
    leaves: Leaving | None = None
    size: PromptSize | None = None
    used: list[StepUsage] = field(default_factory=list)
    name: str = field(init=False)
    _recovery: Recovery = field(init=False)
    _answering: "StreamWatch | Unwatched | None" = None
    _generated: int = 0
    _is_limited_by_client: bool = False
    _lacks_room: bool = False
    _was_sent: bool = False
    _watch: StreamWatch | None = None
    _kept: tuple[Kept, float] | None = None
    _has_insisted: bool = False
    _waits: bool = False

    def __post_init__(self) -> None:
        self.name = f"{self.target.provider.id}/{self.info.id}"
        self._recovery = Recovery(self.target.provider, self.info, self.manager, self.shared.windows, self.tell)

    @property
    def shape(self) -> StepRequest:
        """Return all of the step but its history; a compaction may add a tool."""
        return self.fit.shape

    @property
    def pool_key(self) -> PoolKey:
        """Return the key of the context that the step's requests share with others of the model."""
        return self.target.provider.id, self.info.id

    @property
    def reported(self) -> StepUsage | None:
        """Return the engine's own report on the last request; None where it sent none."""
        return self.used[-1] if self.used and not self.used[-1].is_counted else None

    def answered(self, reply: Message) -> int:
        """Return the most tokens that the conversation may have with this reply; each has at least a byte."""
        if (used := self.reported) is not None:
            return max(used.total, self.manager.prompt + used.output)
        return self.manager.prompt + size_in_bytes(text_of(reply))

    def fill(self) -> ContextFill | None:
        """Return how full the window is now, with the answer that grows; None before a prompt was measured."""
        return fill_now(self.manager, self._answering.generated if self._answering is not None else 0)

    async def run(self) -> Reply:
        """Return the whole reply; raises ContextOverflow where not even the smallest prompt fits the window."""
        if self.job is not None:
            await self.fit.catch_up(self.job)
        try:
            decision = await self.fit.run(self.fit.planner.first_decision())
        except Exception as error:  # a chat must not fail for its count: the engine may judge
            log.warning("The prompt for %s could not be counted: %s", self.info.id, error, exc_info=error)
            await self._ask_uncounted()
            return await self.stream.close()
        if not isinstance(decision, Refuse) and decision.is_tight:
            await self.fit.tell_that_it_is_tight()
        fits = await self._carry_out(decision)
        if (asked := self.shape.request.compaction) is not None:
            if not self.fit.has_handed_out:  # what it has been given before stands for what it has sent
                await self.fit.hand_out(self.fit.recall.begun_with())
            if asked.pauses and self.fit.has_handed_out:
                return await self.stream.close()
        while fits and await self._ask() and (self._lacks_room or self.manager.may_restart()):
            fits = await self._restart()
        if not fits or self._has_filled_the_window():
            await self._end_with(await self._why_it_is_cut(fits=fits))
        return await self.stream.close()

    async def _restart(self) -> bool:
        """Make room for the rest of the reply; tell whether there is some."""
        before, purpose = self.manager.filled, BEFORE_REQUEST if self._lacks_room else IN_ANSWER
        self._note_where_it_stopped()
        fits = await self._carry_out(await self.fit.run(self.fit.planner.next_decision(purpose)))
        if not self._lacks_room:
            self._log_restart(before, await self.counter.prompt(self.manager.history.messages))
        return fits

    def _log_restart(self, before: int, after: int) -> None:
        restart, most = self.manager.restarts, self.manager.max_restarts
        fields = {"event": "restart", "agent": self.target.name, "restart": restart, "most": most}
        log.info(
            "%s: restart %d of %d, with a prompt of %d tokens after %d.",
            self.target.name,
            restart,
            most,
            after,
            before,
            extra={FIELDS: {**fields, "before": before, "after": after}},
        )

    async def _carry_out(self, decision: Decision) -> bool:
        self.fit.info = self.info
        return await self.fit.carry_out(decision, has_said=self._visible > 0)

    async def _ask_uncounted(self) -> None:
        """Send a prompt of unknown size, which holds the whole window."""
        body = self.shape.body(await self.counter.sent(self.manager.history.messages))
        window = self.manager.budget.window
        await ask(
            Question(self.target.provider, self.info, body, window, window),
            self.stream,
            self.shared.admission,
            held=window,
            on_wait=self._tell_waiting,
            leaves=self.leaves,
            ended=partial(self._end, None, body),
        )

    async def _ask(self) -> bool:
        """Send the prompt as soon as there is room for it beside others, and read the reply.

        Return whether the reply has to go on in another request; also where the prompt was not sent, since the window
        has become smaller.
        """
        self._lacks_room = self._was_sent = False
        self._watch = self._kept = None
        body = self.shape.body(await self.counter.sent(self.manager.history.messages))
        size = await self.counter.size(body)
        said, failure = self._visible, None
        try:
            await ask(
                Question(self.target.provider, self.info, body, size.at_most, self.manager.budget.window),
                self.stream,
                self.shared.admission,
                held=size.at_most + self._held_ahead(size.at_most),
                on_wait=self._tell_waiting,
                leaves=None if self._visible else self.leaves,
                admitted=partial(self._begin, size, body),
                ended=partial(self._end, size, body),
            )
        except ElbowroomError as error:
            failure = error
            if self._was_sent:
                self._note_failure(error)
        if failure is None and not self._was_sent:
            return True
        if failure is None and self._kept is not None and self._kept[0].before is not None:
            await self._note_loss(*self._kept, body["messages"])
        return await self._needs_another_request(size, failure, has_said=self._visible > said)

    def _held_ahead(self, prompt: int) -> int:
        """Return how many tokens are held for an answer before it begins; one that can be stopped takes more later."""
        limit = self._reply_limit(prompt)
        return min(limit, self.manager.budget.reserve(prompt), AHEAD) if self._can_stop else limit

    @property
    def _can_stop(self) -> bool:
        return not self.shape.is_constrained and self.manager.can_restart

    def _reply_limit(self, prompt: int) -> int:
        """Return the upstream's max_tokens: the rest of the window, or of what the client asked for."""
        limit = self.manager.budget.reply_limit(prompt)
        return limit if self._left_for_client == inf else max(1, min(limit, int(self._left_for_client)))

    async def _has_outgrown_window(self, prompt: int) -> bool:
        """Tell whether the prompt has to shrink first, since its window has; raises ContextOverflow where it cannot."""
        has_shrunk = await self._recovery.has_shrunk()
        self.info = self._recovery.info
        if not has_shrunk or self._recovery.fits(prompt):
            return False
        if not self.manager.can_restart and prompt >= self.manager.budget.window:
            raise await self.fit.overflow()
        return self.manager.can_restart

    async def _begin(self, size: PromptSize, body: dict[str, Any], ticket: Ticket | None) -> ModelInfo | None:
        """Prepare to send a prompt of this size; return the model as it is now, None where the prompt has to shrink."""
        await self._tell_waited()
        if await self._has_outgrown_window(size.at_most):
            return None
        self._was_sent = True
        self.stream.reply.drop_calls()  # those of a reply that goes on, in which the model makes them again
        self.manager.sent(size.at_most)
        self.stream.sent(size.count.tokens)
        self.size = None if self._generated else size
        self._is_limited_by_client = self._left_for_client <= self.manager.budget.window - size.at_most
        counter = self.counter.running.fresh()
        watch = StreamWatch(self.manager, counter, self._said, ticket) if self._can_stop else None
        self._answering = watch or Unwatched(lambda: self.stream.pieces, counter)
        self._watch = self.stream.watch = watch  # None where nothing may stop the reply
        self.stream.may_be_empty = not self._recovery.is_near_edge(size.at_most)
        body["max_tokens"] = self._reply_limit(size.at_most)
        return self.info

    def _note_failure(self, failure: ElbowroomError) -> None:
        self.shared.observations.upstream_failed(self.target.provider.id, type(failure).__name__)
        if isinstance(failure, ContextOverflow):
            self.shared.observations.overflowed(self.name)

    def _end(self, size: PromptSize | None, body: Mapping[str, Any], ticket: Ticket | None) -> None:
        """Note what the last request has used, and its prompt where that was read; without a `size` it is guessed."""
        self._answering = None
        prompt = size.count.tokens if size is not None else rough_prompt(body)
        if (used := self.stream.used(prompt, self.counter.text)) is not None:
            self.used.append(used)
            self.manager.filled = used.total
            if not used.is_counted and size is not None:
                self.shared.observations.prompt_counted(self.name, prompt, used.prompt)
        if size is not None and ticket is not None and ticket.read_in is not None:
            tokens = self.reported.prompt if self.reported is not None else prompt
            self._kept = self.note_prompt(body, tokens), ticket.read_in

    def note_prompt(self, body: Mapping[str, Any], tokens: int) -> Kept:
        """Remember the digests of a prompt of the conversation that the engine has read.

        The beginning of an answer with the order to go on is left out: the whole answer will stand in its place.
        """
        if self.manager.history.is_stopped:
            body = {**body, "messages": body["messages"][:-2]}
        compacted = (self.fit.recall.recalled_key, self.manager.history.changes)
        window = self.info.loaded_context
        prompt = SentPrompt.of(self.name, window, body, template_arguments(body), compacted, tokens)
        return self.shared.prompts.keep(self.talk(), prompt)

    async def _note_loss(self, kept: Kept, read_in: float, sent: Sequence[Message]) -> None:
        """Tell what the engine had to read again of the prompt before, and why."""
        told = cached_of(self.stream.usage, self.stream.reply.engine)
        if kept.before is None or not kept.may_lack(told, self.info.slots or 1):
            return
        change = change_between(kept.before, kept.now)
        cached = told if told is not None else await self.counter.beginning(sent, alike_in_cache(kept, change))
        loss = loss_of(kept, change, cached, is_measured=told is not None, seconds=read_in)
        if loss is not None:
            self.stream.lost = loss.as_json()
            self.shared.observations.cache_lost(self.name, loss.reason, loss.tokens, loss.seconds)
            request_facts().lost(self.stream.lost)

    async def _needs_another_request(self, size: PromptSize, failure: ElbowroomError | None, *, has_said: bool) -> bool:
        """Tell whether the reply has to go on in another request, after a request that has said something or not.

        Raises the failure where that is to be the end.
        """
        watch = self._watch
        if failure is None or isinstance(failure, EmptyReply):
            was_truncated = await self._recovery.was_truncated(size, self.stream.usage)
            if was_truncated:
                self.shared.observations.truncated(self.name)
            if was_truncated and not has_said and self.manager.can_restart:
                return True
        if failure is not None and has_said:
            self._recovery.after_words(failure, size.at_most + (watch.generated if watch else 0))
            raise failure
        if failure is not None:
            return await self._recovers(failure, size.at_most)
        if self.stream.begins_anew:
            return await self._set_right()
        return watch is not None and self._wants_more(watch)

    async def _recovers(self, failure: ElbowroomError, prompt: int) -> bool:
        """Ask again after a failure before the first word: at once where the prompt fits, else when it has shrunk."""
        if isinstance(failure, ModelUnavailable):  # it was unloaded or has crashed, and reads nothing any more
            self.shared.admission.forget(self.pool_key)
        self.fit.planner.refusal = await self._recovery.after(failure, prompt)
        if self.fit.planner.refusal is not None and not isinstance(failure, ContextOverflow):
            self.shared.observations.overflowed(self.name)  # it broke down over the prompt
        self.info = self._recovery.info
        if self.fit.planner.refusal is None and self._recovery.fits(prompt) and self.manager.may_restart():
            self._log_restart(prompt, prompt)
            return await self._ask()
        return True

    async def _set_right(self) -> bool:
        """Ask more firmly, once, to go on with an answer that the model has begun anew; else the answer ends."""
        if self._has_insisted:
            await self._end_with(BEGAN_ANEW)
            return False
        self._has_insisted = True
        log.info("%s has begun its answer anew and is told to go on with it.", self.info.id)
        self.manager.history = self.manager.history.insisting()
        return await self._ask()

    def _wants_more(self, watch: StreamWatch) -> bool:
        """Tell whether the reply was stopped, or has run out of room, and the client wants more of it."""
        if not watch.is_stopped and not self.stream.was_cut:
            return False
        self._generated += watch.generated
        self._lacks_room = watch.is_stopped and watch.lacks_room
        if self._left_for_client <= 0:
            self.stream.end_for_length()
            return False
        return watch.is_stopped or self._ran_out(watch)

    def _ran_out(self, watch: StreamWatch) -> bool:
        """Tell whether the window has ended the answer before the watch could, in one large piece for example."""
        filled = self.manager.prompt + watch.generated
        return self.stream.was_cut and not self._is_limited_by_client and filled >= self.manager.budget.trigger

    def _note_where_it_stopped(self) -> None:
        """Let the answer so far stand at the end of the history, with the order to go on after it."""
        if not self._said:
            thoughts = "".join(self.stream.reply.reasoning)[-THOUGHTS_KEPT:]
            self.manager.history = self.manager.history.thinking_on(thoughts)
            return
        self.manager.history = self.manager.history.stopped(self._said)
        if self._has_insisted:
            self.manager.history = self.manager.history.insisting()

    def _has_filled_the_window(self) -> bool:
        """Tell whether the last request has gone to the very end of the window, which the person should know."""
        tokens = (self.stream.usage or {}).get("completion_tokens")
        filled = self.manager.prompt + (tokens if isinstance(tokens, int) else 0)
        return self.stream.was_cut and not self._is_limited_by_client and filled >= self.manager.budget.stop_at

    async def _tell_waiting(self, before: Sequence[Priority]) -> None:
        self._waits = True
        what = f"{len(before)} requests are before this one" if len(before) > 1 else AHEAD_OF_IT.get((*before, None)[0])
        await self.tell([Notice("waiting", f"Waiting for the model: {what}.")])

    async def _tell_waited(self) -> None:
        """Take the line away that told of the wait."""
        if self._waits:
            self._waits = False
            await self.tell([Notice("waited", "The model is free.", is_hidden=True)])

    async def _why_it_is_cut(self, *, fits: bool) -> str:
        window, most = self.manager.budget.window, self.manager.max_restarts
        if not fits or self.manager.can_restart or not self.manager.auto:
            return FULL.format(window=window)
        self._note_where_it_stopped()
        freed = await self.fit.run(self.fit.planner.could_be_freed())
        return AT_LIMIT.format(window=window, most=most, freed=freed)

    async def _end_with(self, reason: str) -> None:
        """Tell the person why the answer ends before its end, and end it."""
        text = f"The answer ends here: {reason}"
        log.warning("%s: %s", self.target.name, text)
        await self.tell([Notice("cut", text)])
        self.stream.end_for_length()

    @property
    def _visible(self) -> int:
        return len(self.stream.reply.text) + len(self.stream.reply.reasoning)

    @property
    def _left_for_client(self) -> float:
        """Return how many tokens the client still wants, infinity where it sets no limit."""
        asked = self.shape.max_tokens
        return inf if asked is None else asked - self._generated

    @property
    def _said(self) -> str:
        return "".join(self.stream.reply.text)


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
