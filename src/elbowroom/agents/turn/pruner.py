"""The pruning agent: the model that is asked for the plan of a compaction, and the choice of that model."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from elbowroom.agents.admission import Job, PoolKey, Priority, Ticket
from elbowroom.agents.ask import Question, ReplyReader, ask, beside
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import HistoryCounter, with_instructions, without_answer_fields
from elbowroom.agents.turn.state import RunSettings, Shared
from elbowroom.context.compaction import (
    CALLED,
    CUT_OFF,
    EMPTY,
    ONLY_THOUGHT,
    Unusable,
    Wishes,
    find_values,
    read_prune_answer,
    spoken,
)
from elbowroom.context.conversation import StepUsage
from elbowroom.context.costs import ORDER, Engine, seconds_left
from elbowroom.context.effects import Progress, PrunerFailed
from elbowroom.context.reuse import Talk
from elbowroom.context.transcript import Message, size_in_bytes
from elbowroom.errors import ContextOverflow, ElbowroomError, UpstreamRejected
from elbowroom.providers.base import ModelInfo, Provider, StreamEvent
from elbowroom.settings.model import CompactionSettings

log = logging.getLogger(__name__)
PLANS: Final = Talk(("plans",), ("plans",))
"""Stands for a conversation in which a model has answered with plans only."""
SAME: Final = "same"
"""The name, in the settings, of the conversation's own model."""
TEMPERATURE: Final = 0.2
SILENT_SECONDS: Final = 30.0
"""How long an agent that works in the background may send nothing beyond the time that reading its prompt takes."""
TOO_LONG: Final = "took too long"
SILENT: Final = "sent nothing"
SLOW_READING: Final = 100
"""Tokens a second that a server is expected to read at least, where its own speed is not measured."""
REFUSED_FIELDS: Final = (400, 422)
STREAMED: Final[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}
PLAN_FORMAT: Final[Mapping[str, Any]] = {
    "type": "json_schema",
    "json_schema": {
        "name": "plan",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "retain": {"type": "string"},
                "summary": {"type": "string"},
                "to_do": {"type": "array", "items": {"type": "string"}},
                "done": {"type": "array", "items": {"type": "string"}},
                "keep": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["retain", "summary", "to_do", "done", "keep"],
            "additionalProperties": False,
        },
    },
}


def wishes_of(settings: CompactionSettings, instructions: str = "", focus: str = "") -> Wishes:
    """Return what the person wants the pruning agent to be told, or in its place the client's instructions."""
    return Wishes(
        instructions or settings.summary_prompt,
        tuple(settings.summary_directives),
        settings.retain_prompt,
        tuple(settings.retain_directives),
        focus,
    )


class PruneReply(ReplyReader):
    """Gathers a pruning agent's reply, and stops it after `limit` tokens, thoughts included, or at a tool call.

    `silence` is the time-out that holds until something has come.
    """

    def __init__(self, size_of: Callable[[str], int], limit: int, silence: asyncio.Timeout) -> None:
        super().__init__()
        self._silence: asyncio.Timeout | None = silence
        self._size_of = size_of
        self._limit = limit
        self._is_endless = False
        self._bytes = 0
        self._counted_at = limit

    @property
    def tokens(self) -> int:
        """Return how many tokens have come, thoughts included."""
        return self._size_of("".join(self.reply.reasoning)) + self._size_of("".join(self.reply.text))

    async def take(self, events: list[StreamEvent]) -> None:
        """Take what has arrived, and measure it."""
        if self._silence is not None and events:
            self._silence.reschedule(None)
            self._silence = None
        before = len(self.pieces)
        self.gather(events)
        self._bytes += sum(map(size_in_bytes, self.pieces[before:]))
        if self._bytes > self._counted_at:
            self._is_endless = self._is_over_limit()
        self.has_enough = self.has_calls or self._is_endless

    def _is_over_limit(self) -> bool:
        """Count the tokens; as each has at least one byte, the next count can wait for as many bytes as are left."""
        tokens = self.tokens
        self._counted_at = self._bytes + max(1, self._limit - tokens)
        return tokens > self._limit

    def judged(self, *, is_late: bool = False) -> str:
        """Return the answer, of one that `is_late` what has come. Raises PrunerFailed where there is none of use."""
        text, thoughts = "".join(self.reply.text), "".join(self.reply.reasoning)
        is_cut = self._is_endless or self.was_cut or is_late
        said = text if text.strip() or self.has_calls else thoughts
        if is_usable(said) and not (is_cut and is_broken_off(said)):
            return said
        if self.has_calls:
            raise PrunerFailed(CALLED.reason)
        if self._is_endless:
            raise PrunerFailed("The answer did not end where it had to. Write less.")
        if not text.strip():
            raise PrunerFailed((ONLY_THOUGHT if thoughts.strip() else EMPTY).reason)
        answer = read_prune_answer(text)
        if is_cut and not (isinstance(answer, Unusable) and answer.so_far is not None):
            raise PrunerFailed(CUT_OFF.reason)
        return text  # the ladder, which reads it, says what is wrong with it


def is_usable(text: str) -> bool:
    """Tell whether a plan or a rewritten conversation can be read from a text."""
    return bool(text.strip()) and not isinstance(read_prune_answer(text), Unusable)


def is_broken_off(text: str) -> bool:
    """Tell whether the end of a text breaks off the JSON in it."""
    return any(found.is_cut for found in find_values(spoken(text)))


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request that is about to be sent: its body, its history, and how a history becomes messages to send."""

    body: Mapping[str, Any]
    history: Sequence[Message]
    dress: Callable[[Sequence[Message]], Sequence[Message]]


@dataclass(slots=True)
class PruningAgent:
    """A model that is asked for plans; its requests are no part of the client's stream and usage.

    With a `conversation`, the one that is pruned, it is the conversation's own model (`shares_prefix`): an order that
    follows that conversation's messages is sent with the same bytes before it, which a local engine has read already.
    Without one, and for an order of any other kind, the body is made afresh: `instructions` in front, `sampling` as
    the agent has it, no tools. `known_window` is its window in tokens, as far as it is known. `job` is the background
    work that the requests belong to, if any. `used` are the tokens of each answer, whole or not. `deadline` is the time
    of the event loop at which nobody waits for it any longer. Once it has not answered in time it is asked no more, and
    `late` says why in a few words.
    """

    provider: Provider
    info: ModelInfo
    history: HistoryCounter
    shared: Shared
    known_window: int
    conversation: Conversation | None = None
    job: Job | None = None
    instructions: str = ""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    deadline: float | None = None
    used: list[StepUsage] = field(default_factory=list)
    late: str = ""
    _hearing: tuple[PruneReply, int] | None = field(default=None, init=False)

    @property
    def model(self) -> str:
        """Return its model as its provider names it."""
        return self.info.id

    @property
    def name(self) -> str:
        """Return its model's name after its provider's."""
        return "/".join(self._key)

    @property
    def ways(self) -> list[Any]:
        """Return what its answers depend on besides what it is asked: its name, instructions and sampling."""
        return [self.name, self.instructions, dict(self.sampling)]

    @property
    def window(self) -> int:
        """Return its window in tokens, as far as overflows have not shown that it is smaller."""
        return min(self.known_window, self._shared_window)

    @property
    def shares_prefix(self) -> bool:
        """Tell whether it is the conversation's own model."""
        return self.conversation is not None

    def can_write(self, result: int) -> int | None:
        """Return how many tokens it writes in the time left; None where that or its speed is unknown.

        In a person's pause the engine reads so many tokens of the `result` too.
        """
        pool, pause = self.shared.admission.pool(self._key), self.job.usual_pause if self.job is not None else None
        if pool is None or not pool.writing.is_known:
            return None
        engine = self.shared.admission.engine(self._key)
        if self.deadline is not None:
            return engine.can_write(self.deadline - pool.clock.time(), ORDER)
        return engine.can_write(pause, ORDER + result) if pause is not None else None

    def with_written(self, progress: Progress) -> Progress:
        """Return the progress with what there is of the answer to the last order, and how long that takes."""
        if self._hearing is None:
            return progress
        reply, limit = self._hearing
        written = min(reply.tokens, limit)
        left = seconds_left(engine_of(self.shared, self._key), written, limit)
        return replace(progress, written=written, limit=limit, seconds_left=left)

    async def ask(self, messages: Sequence[Message], cap: int) -> str:
        """Return its answer of at most `cap` tokens besides thoughts; of one that takes too long what has come.

        Raises PrunerFailed with a reason in words.
        """
        self._hearing = None
        if self.late:
            raise PrunerFailed(f"The pruning agent {self.late}.")
        try:
            async with asyncio.timeout_at(self.deadline):
                reply = await self._reply(await self._question(messages, cap))
        except TimeoutError as error:
            has_begun = self._hearing is None or self._hearing[0].pieces
            failure = self._too_late(TOO_LONG if has_begun else SILENT)
            with suppress(PrunerFailed):
                if self._hearing is not None:
                    return self._hearing[0].judged(is_late=True)
            raise failure from error
        except ContextOverflow as overflow:
            self._learn(overflow)
            raise self._failed("The request did not fit the pruning agent's window", overflow) from overflow
        except ElbowroomError as error:
            self.shared.places.failed(self._key, error)
            raise self._failed("The pruning agent could not answer", error) from error
        return reply.judged()

    def _too_late(self, why: str) -> PrunerFailed:
        """Note that the agent is asked no more; return the failure."""
        self.late = why
        return PrunerFailed(f"The pruning agent {why}.")

    def _failed(self, what: str, error: ElbowroomError) -> PrunerFailed:
        """Log what the engine says, which may quote the conversation; return the failure."""
        log.info("%s: %s: %s", self.info.id, what, error.message)
        return PrunerFailed(f"{what}: {error.message}", f"{what} ({type(error).__name__}).")

    async def _question(self, messages: Sequence[Message], cap: int) -> Question:
        """Return the request for an order, behind the conversation where that begins as the order does."""
        told, keeps_prefix = self.conversation, False
        if told is not None and messages and messages[0] == told.history[0]:
            keeps_prefix = True
            body = {**without_answer_fields(told.body), "messages": told.dress(messages), "temperature": TEMPERATURE}
        else:
            own = with_instructions([dict(message) for message in messages], self.instructions)
            body = {"model": self.info.id, "temperature": TEMPERATURE, **self.sampling, "messages": own}
        body |= {**STREAMED, "max_tokens": cap}
        window = self.window
        question = await beside(self.provider, self.info, window, self.history, body, keeps_prefix=keeps_prefix)
        if not question.has_room:
            raise PrunerFailed(
                f"The request takes up to {question.prompt} of the {window} tokens that the pruning agent can read."
            )
        optional = dict(question.optional)
        if not body.get("tools") and (optional or not self.history.facts.may_think):
            # A grammar beside tools is refused by some engines, and forbids a model to think first.
            optional["response_format"] = PLAN_FORMAT
        is_refused = self._key in self.shared.notes.refusing
        return replace(question, window=self._shared_window, optional={} if is_refused else optional)

    async def _reply(self, question: Question) -> PruneReply:
        """Ask, and where the server refuses the request for its optional fields, once more without them."""
        try:
            return await self._heard(question)
        except UpstreamRejected as refusal:
            if not question.optional or refusal.status not in REFUSED_FIELDS:
                raise
            reply = await self._heard(replace(question, optional={}))
            log.info("%s is not asked for JSON by schema any more: %s", self.info.id, refusal.message)
            self.shared.notes.refusing.add(self._key)
            return reply

    async def _heard(self, question: Question) -> PruneReply:
        """Return the reply. A person waits for its first word as long as for the rest, as the settings say.

        In the background raises PrunerFailed where nothing comes though the prompt should have been read by then.
        """
        limit, silence = question.body["max_tokens"], asyncio.timeout(None)
        reply = PruneReply(self.history.text, 2 * limit, silence)
        self._hearing = reply, limit

        async def admitted(ticket: Ticket | None) -> ModelInfo:
            if self.job is not None:
                reading = ticket.reading_seconds if ticket is not None else question.rough / SLOW_READING
                silence.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS + reading)
            return question.info

        try:
            async with silence:
                admission, rank = self.shared.admission, self.job or Priority.CHAT
                await ask(question, reply, admission, rank=rank, admitted=admitted)
        except TimeoutError as error:
            if silence.expired():
                raise self._too_late(SILENT) from error
            raise
        finally:
            if (used := reply.used(question.rough, self.history.text)) is not None:
                self.used.append(used)
        return reply

    def _learn(self, overflow: ContextOverflow) -> None:
        windows = self.shared.windows
        if overflow.window is not None:
            windows.learn(self.info, self._said_window, overflow.window)
        else:
            windows.guess(self.info, self._said_window, self.window * 3 // 4)

    @property
    def _said_window(self) -> int:
        """Return the window that the provider tells, or that is assumed where it tells none."""
        return self.info.loaded_context or self.known_window

    @property
    def _shared_window(self) -> int:
        """Return the window that all requests to its model share."""
        return self.shared.windows.at_most(self.info, self._said_window)

    @property
    def _key(self) -> tuple[str, str]:
        return self.provider.id, self.info.id


def engine_of(shared: Shared, key: PoolKey) -> Engine:
    """Return how fast a model reads and writes, and how long its plans are, as measured."""
    engine, plans = shared.admission.engine(key), shared.answers.of(PLANS, "/".join(key)).sizes
    return replace(engine, plan=round(median(plans))) if plans else engine


async def choose_pruner(
    settings: RunSettings,
    target: Target,
    info: ModelInfo,
    conversation: Conversation,
    history: HistoryCounter,
    window: int,
    job: Job | None,
) -> PruningAgent:
    """Return the pruning agent of a conversation, which is about to be sent to `info` and is counted by `history`.

    `window` is the conversation's, in tokens. A person who waits does so no longer than the settings say, the time
    in which another model is loaded included; for a `job` nobody waits. Where the agent of the settings cannot be had,
    the conversation's own model prunes, and the log says so once; the client never hears of it.
    """
    seconds = settings.compaction.max_pruning_seconds
    deadline = asyncio.get_running_loop().time() + seconds if seconds and job is None else None
    try:
        chosen = await _chosen(settings, target)
        if (chosen.provider.id, chosen.model) != (target.provider.id, target.model) or chosen.agent is not None:
            async with asyncio.timeout_at(deadline):
                return await _other(settings.shared, chosen, window, job, deadline)
    except TimeoutError:
        log.info("The pruning agent %s was not ready in time.", settings.compaction.pruning_agent)
    except ElbowroomError as error:
        _complain(settings, error)
    return PruningAgent(
        target.provider,
        info,
        history,
        settings.shared,
        window,
        conversation,
        job,
        deadline=deadline,
    )


async def _chosen(settings: RunSettings, target: Target) -> Target:
    """Return the target that prunes; it has no agent where it is the conversation's own."""
    chosen, agent = settings.compaction, target.agent
    is_own = chosen.pruning_agent == SAME or (
        agent is not None and chosen.pruning_agent in (agent.id, agent.display_name)
    )
    pruner = replace(target, agent=None) if is_own else await settings.catalog.resolve(chosen.pruning_agent)
    pruner = replace(pruner, model=chosen.model) if chosen.model else pruner
    return settings.catalog.beside(target, pruner)


async def _other(
    shared: Shared, pruner: Target, conversation_window: int, job: Job | None, deadline: float | None
) -> PruningAgent:
    """Return another agent or model. Its window is the loaded one, else the largest known, else the conversation's."""

    async def there(bound: Target) -> PruningAgent:
        info, agent = await bound.provider.ready(bound.model), bound.agent
        return PruningAgent(
            bound.provider,
            info,
            await shared.histories.of(bound.provider, info, {}),
            shared,
            info.loaded_context or info.max_context or conversation_window,
            job=job,
            instructions=agent.instructions if agent else "",
            sampling=agent.sampling.as_request_fields() if agent else {},
            deadline=deadline,
        )

    return await shared.places.on_machine(pruner, there)


def _complain(settings: RunSettings, error: ElbowroomError) -> None:
    name, known = settings.compaction.pruning_agent, settings.shared.notes.complaints
    if (complaint := f"{name}: {error.message}") not in known:
        known.add(complaint)
        log.warning(
            "The pruning agent %s cannot be had, so each conversation's own model prunes it: %s", name, error.message
        )
