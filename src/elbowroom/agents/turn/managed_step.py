"""One model step inside a window: what does not fit is compacted first, and an answer that fills it up goes on."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from elbowroom.agents.admission import Job, PoolKey, Ticket
from elbowroom.agents.answer import Reply
from elbowroom.agents.prompt import PromptSize, StepCounter, StepRequest, step_usage_of
from elbowroom.agents.turn.fit import Fitting
from elbowroom.agents.turn.history import History
from elbowroom.agents.turn.recovery import Recovery
from elbowroom.agents.turn.stream import Step, StreamWatch, size_in_bytes
from elbowroom.context.budget import Compact, Decision, Refuse, Send
from elbowroom.context.compaction import Cannot
from elbowroom.context.conversation import ContextFill, StepUsage
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.observations import Observations
from elbowroom.context.transcript import as_json
from elbowroom.errors import ContextOverflow, ElbowroomError, EmptyReply, ModelUnavailable
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.tokens.files import StreamCounter


class Growing(Protocol):
    """An answer that is being read."""

    @property
    def generated(self) -> int:
        """Return how many tokens have come."""
        ...


class Unwatched:
    """An answer that nobody may stop: `pieces` returns all that has come of it. Each piece is counted once."""

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


class LiveFill:
    """Knows what the window of `manager` holds: what is known to be in it, and the answer that is being read."""

    def __init__(self, manager: AgentContextManager) -> None:
        self._manager = manager
        self._answer: Growing | None = None

    def begin(self, answer: Growing) -> None:
        """Let this answer grow behind the prompt that was sent."""
        self._answer = answer

    def end(self) -> None:
        """Let the answer be over."""
        self._answer = None

    def now(self) -> ContextFill | None:
        """Return how full the window is at this moment; None before the first prompt is measured."""
        if not self._manager.filled:
            return None
        budget = self._manager.budget
        generated = self._answer.generated if self._answer is not None else 0
        return ContextFill(self._manager.filled + generated, budget.window, budget.trigger, budget.stop_at)


log = logging.getLogger(__name__)
PIECES_OF_WINDOW = 8
THOUGHTS_KEPT = 1500  # characters
AHEAD = 2048
"""Tokens of a large window that an answer holds at most before it has come: it takes more while it grows."""


@dataclass(slots=True)
class ManagedStep:
    """Asks for one reply and keeps it within the window by the three checks of `manager`.

    `fitting` has the history; `job` is a compaction of this very conversation that is under way since its last answer.
    After `run`, `size` is that of the last prompt, None where the reply took more than one request; `used` is what each
    request has used that was answered, be it in part.
    """

    provider: Provider
    info: ModelInfo
    fitting: Fitting
    step: Step
    job: Job | None = None
    size: PromptSize | None = None
    used: list[StepUsage] = field(default_factory=list)
    _generated: int = 0
    _refusal: ContextOverflow | None = None
    _is_limited_by_client: bool = False
    _lacks_room: bool = False
    _recovery: Recovery = field(init=False)
    fill: LiveFill = field(init=False)

    def __post_init__(self) -> None:
        windows = self.fitting.compactor.settings.shared.windows
        self.fill = LiveFill(self.manager)
        self._recovery = Recovery(self.provider, self.info, self.manager, windows, self.fitting.compactor.tell)

    @property
    def shape(self) -> StepRequest:
        """Return the request but for its history."""
        return self.fitting.shape

    @property
    def counter(self) -> StepCounter:
        """Return what counts prompts and texts."""
        return self.fitting.counter

    @property
    def history(self) -> History:
        """Return the conversation as the model gets it."""
        return self.fitting.history

    @property
    def manager(self) -> AgentContextManager:
        """Return what decides."""
        return self.fitting.manager

    @property
    def _observed(self) -> Observations:
        return self.fitting.compactor.settings.shared.observations

    @property
    def name(self) -> str:
        """Return the model's name with its provider's in front."""
        return f"{self.provider.id}/{self.info.id}"

    async def run(self) -> Reply:
        """Return the whole reply; raises ContextOverflow where not even the smallest prompt fits the window."""
        self.manager.begin_step()
        if self.job is not None:
            await self.fitting.catch_up(self.job)
        try:
            decision = await self.fitting.first_decision()
        except Exception as error:  # a chat must not fail for its count: the engine may judge
            log.warning("The prompt for %s could not be counted: %s", self.info.id, error, exc_info=error)
            body = self.shape.body(self.counter.sent(self.history.messages))
            window = self.manager.budget.window
            async with self._entered(window, window) as ticket:
                try:
                    await self.step.attempt(self.provider, body, self.info, ticket=ticket)
                finally:
                    self._note_use(size_in_bytes(as_json(body)) // 4, is_guess=True)
            return await self.step.close()
        await self.fitting.tell_if_tight(decision, self.info.id)
        fits = await self._fit(decision)
        while fits and await self._ask() and (self._lacks_room or self.manager.may_restart()):
            self._note_where_it_stopped()
            fits = await self._fit(await self.fitting.next_decision(must_shrink=not self._lacks_room))
        if not fits or self._has_filled_the_window():
            await self.fitting.compactor.tell_cut(self.manager.budget.window)
            self.step.end_for_length()
        return await self.step.close()

    @property
    def pool_key(self) -> PoolKey:
        """Return whose context the step's requests share."""
        return self.provider.id, self.info.id

    async def _ask(self) -> bool:
        """Send the prompt as it is now; return whether the reply has to go on in another request."""
        self._lacks_room = False
        body = self.shape.body(self.counter.sent(self.history.messages))
        size = await self.counter.size(body)
        body["max_tokens"] = self._reply_limit(size.at_most)
        said = self._visible
        attempt = await self._attempted(body, size)
        if attempt is None:
            return True
        watch, failure = attempt
        has_said = self._visible > said
        if failure is None or isinstance(failure, EmptyReply):
            was_truncated = await self._recovery.was_truncated(size, self.step.usage)
            if was_truncated:
                self._observed.truncated(self.name)
            if was_truncated and not has_said and self.manager.can_restart:
                return True
        if failure is not None and has_said:
            self._recovery.after_words(failure, size.at_most + (watch.generated if watch else 0))
            raise failure
        if failure is not None:
            return await self._go_on_after(failure, size)
        return watch is not None and self._goes_on_behind(watch)

    async def _attempted(
        self, body: Mapping[str, Any], size: PromptSize
    ) -> tuple[StreamWatch | None, ElbowroomError | None] | None:
        """Send a prompt as soon as there is room for it beside others, and read the reply.

        Return what has watched over it, and how it failed if it has; None where it was not sent, since the window
        is a smaller one by now.
        """
        budget, watch = self.manager.budget, None
        can_stop = not self.shape.is_constrained and self.manager.can_restart
        ahead = min(body["max_tokens"], budget.reserve(size.at_most), AHEAD) if can_stop else body["max_tokens"]
        try:
            async with self._entered(size.at_most, size.at_most + ahead) as ticket:
                if await self._has_outgrown_window(size):
                    return None
                body = {**body, "max_tokens": self._reply_limit(size.at_most)}  # the window may be another one by now
                self.manager.sent(size.at_most)
                self.size = None if self._generated else size
                self._is_limited_by_client = self._left_for_client <= self.manager.budget.window - size.at_most
                if can_stop:
                    watch = StreamWatch(self.manager, self.counter.running.fresh(), self._said, ticket)
                self.fill.begin(watch or Unwatched(lambda: self.step.pieces, self.counter.running.fresh()))
                may_be_empty = not self._recovery.is_near_edge(size.at_most)
                try:
                    await self.step.attempt(self.provider, body, self.info, watch, ticket, may_be_empty=may_be_empty)
                except ElbowroomError as failure:
                    self._note_failure(failure)
                    raise
                finally:
                    self._note_use(size.count.tokens)
        except ElbowroomError as failure:
            return watch, failure
        return watch, None

    def _note_use(self, prompt: int, *, is_guess: bool = False) -> None:
        """Note what the last request has used, whose prompt has so many tokens by our count, or by a guess."""
        self.fill.end()
        if self.step.usage is not None or self.step.generated:
            used = step_usage_of(self.step.usage, prompt, self.step.generated, self.counter.text)
            self.used.append(used)
            self.manager.filled = used.total
            if not used.is_counted and not is_guess:
                self._observed.prompt_counted(self.name, prompt, used.prompt)

    def _note_failure(self, failure: ElbowroomError) -> None:
        self._observed.upstream_failed(self.provider.id, type(failure).__name__)
        if isinstance(failure, ContextOverflow):
            self._observed.overflowed(self.name)

    def _entered(self, prompt: int, tokens: int) -> AbstractAsyncContextManager[Ticket | None]:
        compactor, window = self.fitting.compactor, self.manager.budget.window
        return compactor.gate.entered(
            self.provider, self.info, window=window, prompt=prompt, tokens=tokens, on_wait=compactor.tell_waiting
        )

    def _goes_on_behind(self, watch: StreamWatch) -> bool:
        """Tell whether the reply was stopped, or has run out of room, and the client wants more of it."""
        if not watch.is_stopped and not self.step.was_cut:
            return False
        self._generated += watch.generated
        self._lacks_room = watch.is_stopped and watch.lacks_room
        if self._left_for_client <= 0:
            self.step.end_for_length()
            return False
        return watch.is_stopped or self._ran_out(watch)

    async def _has_outgrown_window(self, size: PromptSize) -> bool:
        """Tell whether the prompt has to shrink first, since its window has; raises ContextOverflow where it cannot."""
        has_shrunk = await self._recovery.has_shrunk()
        self.info = self._recovery.info
        if not has_shrunk or self._recovery.fits(size.at_most):
            return False
        if not self.manager.can_restart and size.at_most >= self.manager.budget.window:
            raise await self.fitting.overflow()
        return self.manager.can_restart

    async def _go_on_after(self, failure: ElbowroomError, size: PromptSize) -> bool:
        """Ask again after a failure before the first word: at once where the prompt fits, else when it has shrunk."""
        if isinstance(failure, ModelUnavailable):  # it was unloaded or has crashed, and reads nothing any more
            self.fitting.compactor.gate.admission.forget(self.pool_key)
        self._refusal = await self._recovery.after(failure, size.at_most)
        if self._refusal is not None and not isinstance(failure, ContextOverflow):
            self._observed.overflowed(self.name)  # it broke down over the prompt
        self.info = self._recovery.info
        if self._refusal is None and self._recovery.fits(size.at_most) and self.manager.may_restart():
            self.step.reply.drop_calls()
            return await self._ask()
        return True

    def _reply_limit(self, prompt: int) -> int:
        """Return the upstream's max_tokens: what is left of the window, and of what the client asked for."""
        limit = self.manager.budget.reply_limit(prompt)
        return limit if self._left_for_client == inf else max(1, min(limit, int(self._left_for_client)))

    def _ran_out(self, watch: StreamWatch) -> bool:
        """Tell whether the window has ended the answer before the watch could, in one large piece for example."""
        filled = self.manager.prompt + watch.generated
        return self.step.was_cut and not self._is_limited_by_client and filled >= self.manager.budget.trigger

    def _has_filled_the_window(self) -> bool:
        """Tell whether the last request has gone to the very end of the window, which the person should know."""
        tokens = (self.step.usage or {}).get("completion_tokens")
        filled = self.manager.prompt + (tokens if isinstance(tokens, int) else 0)
        return self.step.was_cut and not self._is_limited_by_client and filled >= self.manager.budget.stop_at

    def _note_where_it_stopped(self) -> None:
        """Let the answer so far stand at the end of the history, with the order to go on behind it."""
        self.step.reply.drop_calls()
        if not self._said:
            self.history.stop_thinking("".join(self.step.reply.reasoning)[-THOUGHTS_KEPT:])
            return
        share = self.manager.budget.window // PIECES_OF_WINDOW
        self.history.stop_at(self._said, len(self._said) * share // max(1, self.counter.text(self._said)))

    async def _fit(self, decision: Decision) -> bool:
        """Do what was decided; return whether the prompt may be sent. Raises ContextOverflow before any text."""
        if isinstance(decision, Compact):
            outcome = await self.fitting.compact(decision, self.info)
            if not isinstance(outcome, Cannot):
                self._refusal = None
            if outcome is None:
                return await self._fit(await self.fitting.first_decision())
        if self._refusal is None and (  # else the engine has refused the very same prompt
            isinstance(decision, Send) or (not isinstance(decision, Refuse) and await self.fitting.fits_window())
        ):
            return True
        if self._has_said:
            return False
        if self.fitting.memory.leave_away(self.history):
            self._refusal = None
            return await self._fit(await self.fitting.first_decision())
        raise self._refusal or await self.fitting.overflow()

    @property
    def _has_said(self) -> bool:
        return self._visible > 0

    @property
    def _visible(self) -> int:
        return len(self.step.reply.text) + len(self.step.reply.reasoning)

    @property
    def _left_for_client(self) -> float:
        """Return how many tokens the client still wants; it may want any number."""
        asked = self.shape.max_tokens
        return inf if asked is None else asked - self._generated

    @property
    def _said(self) -> str:
        return "".join(self.step.reply.text)
