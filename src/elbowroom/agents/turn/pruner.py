"""Which model prunes a conversation: its own, or the one that the settings name, as long as that can be had."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from elbowroom.agents.admission import Gate, Ticket
from elbowroom.agents.catalog import Catalog, Target
from elbowroom.agents.prompt import NO_THINKING, HistoryCounter, HistoryCounters, LearnedWindows, with_instructions
from elbowroom.context.compaction import (
    CALLED,
    CUT_OFF,
    EMPTY,
    ONLY_THOUGHT,
    Progress,
    PrunerFailed,
    Unusable,
    Wishes,
    find_values,
    read_prune_answer,
    spoken,
)
from elbowroom.context.transcript import Message
from elbowroom.errors import ContextOverflow, ElbowroomError, UpstreamRejected
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


class PruneReply:
    """Gathers one stream; `limit` is how many tokens of it are read, thinking included, whatever was promised."""

    def __init__(self, size_of: Callable[[str], int], limit: int) -> None:
        self.usage: dict[str, Any] | None = None
        self._size_of = size_of
        self._limit = limit
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._finish = ""
        self._has_called = False
        self._is_endless = False
        self._bytes = 0
        self._counted_at = limit

    def take(self, events: Iterable[StreamEvent]) -> bool:
        """Take what has arrived; False where no more of it is wanted."""
        for event in events:
            match event:
                case TextDelta():
                    self._text.append(event.text)
                    self._bytes += len(event.text.encode("utf-8", "replace"))
                case ReasoningDelta():
                    self._thoughts.append(event.text)
                    self._bytes += len(event.text.encode("utf-8", "replace"))
                case ToolCallDelta():
                    self._has_called = True
                case Finished():
                    self._finish = event.reason
                case UsageReport():
                    self.usage = event.usage
        if self._bytes > self._counted_at:
            self._is_endless = self._is_over_limit()
        return not (self._has_called or self._is_endless)

    @property
    def tokens(self) -> int:
        """Return how many tokens have come, thinking included."""
        return self._size_of("".join(self._thoughts)) + self._size_of("".join(self._text))

    def judged(self) -> str:
        """Return the answer. Raises PrunerFailed where there is none."""
        text, thoughts = "".join(self._text), "".join(self._thoughts)
        is_cut = self._is_endless or self._finish == "length"
        said = text if text.strip() or self._has_called else thoughts
        if is_usable(said) and not (is_cut and is_broken_off(said)):
            return said
        if self._has_called:
            raise PrunerFailed(CALLED.reason)
        if self._is_endless:
            raise PrunerFailed("The answer did not end where it had to. Write less.")
        if not text.strip():
            raise PrunerFailed((ONLY_THOUGHT if thoughts.strip() else EMPTY).reason)
        if is_cut:
            raise PrunerFailed(CUT_OFF.reason)
        return text  # it is for whoever reads it to say what is wrong with it

    def _is_over_limit(self) -> bool:
        """Count; a token has at least one byte, so that it need not be done again for some time."""
        tokens = self.tokens
        self._counted_at = self._bytes + max(1, self._limit - tokens)
        return tokens > self._limit


def is_usable(text: str) -> bool:
    """Tell whether a plan or a rewritten conversation can be read from a text."""
    return bool(text.strip()) and not isinstance(read_prune_answer(text), Unusable)


def is_broken_off(text: str) -> bool:
    """Tell whether the end of a text breaks off the JSON in it."""
    return any(found.is_cut for found in find_values(spoken(text)))


log = logging.getLogger(__name__)
TEMPERATURE: Final = 0.2
THINKING_ROOM: Final = 2048
"""Tokens that a model may think for where it cannot be kept from it; the order asks for none."""
MARGIN: Final = 16
"""Tokens left free behind the longest answer: a window that is filled to the brim is an overflow to some engines."""
LEAST_ANSWER: Final = 100
REFUSED_FIELDS: Final = (400, 422)
NOT_FOR_PRUNING: Final = frozenset(
    {"response_format", "grammar", "json_schema", "stop", "logit_bias", "logprobs", "top_logprobs"}
    | {"max_completion_tokens", "n_predict", "continue_final_message", "add_generation_prompt"}
)
"""Fields of a conversation that shape or bound its answers and leave what is read before them as it is."""
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
                "keep": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["retain", "summary", "keep"],
            "additionalProperties": False,
        },
    },
}

ModelKey = tuple[str, str]
"""A provider's id and a model's."""


@dataclass(slots=True)
class LearnedLimits:
    """What models have taught by refusing: fields that they do not take, and windows smaller than they were said to be.

    A model's window is the same whether it prunes or chats: `windows` are those of all its requests.
    """

    without_extras: set[ModelKey] = field(default_factory=set)
    windows: LearnedWindows = field(default_factory=LearnedWindows)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is about to be sent: the body, the history it was made of, and how a history becomes messages to send."""

    body: Mapping[str, Any]
    history: Sequence[Message]
    dress: Callable[[Sequence[Message]], Sequence[Message]]


class PruningAgent:
    """A model that is asked for plans, beside the client's stream and outside its usage.

    With a `conversation`, the one that is pruned, it is the conversation's own model (`shares_prefix`):
    an order that comes behind that conversation's messages is sent with the same bytes before it, so that a local
    engine has read them already. Without one, and for an order of any other kind, the body is made afresh:
    `instructions` in front, `sampling` as the agent has it, no tools.

    `usages` are what the engine has reported for each answer.
    """

    def __init__(
        self,
        provider: Provider,
        info: ModelInfo,
        history: HistoryCounter,
        gate: Gate,
        *,
        window: int,
        learned: LearnedLimits,
        conversation: Conversation | None = None,
        instructions: str = "",
        sampling: Mapping[str, Any] | None = None,
    ) -> None:
        self.usages: list[dict[str, Any]] = []
        self._provider = provider
        self._info = info
        self._history = history
        self._gate = gate
        self._prompt = 0
        self._window = window
        self._learned = learned
        self._conversation = conversation
        self._instructions = instructions
        self._sampling = dict(sampling or {})
        self._hearing: tuple[PruneReply, int] | None = None

    @property
    def model(self) -> str:
        """Return its model as its provider names it."""
        return self._info.id

    @property
    def window(self) -> int:
        """Return its window in tokens, at most what an overflow has taught."""
        return min(self._window, self._learned.windows.at_most(self._info, self._said))

    @property
    def shares_prefix(self) -> bool:
        """Tell whether it is the conversation's own model."""
        return self._conversation is not None

    def with_written(self, progress: Progress) -> Progress:
        """Return the progress with what there is of the answer to the last order."""
        if self._hearing is None:
            return progress
        reply, limit = self._hearing
        return replace(progress, written=min(reply.tokens, limit), limit=limit)

    async def ask(self, messages: Sequence[Message], cap: int) -> str:
        """Return its answer, at most `cap` tokens and its thinking long. Raises PrunerFailed with a reason in words."""
        self._hearing = None
        try:
            body, extras = await self._body(messages, cap)
            reply = await self._reply(body, {} if self._key in self._learned.without_extras else extras)
        except ContextOverflow as overflow:
            self._learn(overflow)
            raise PrunerFailed(f"The request did not fit the pruning agent's window: {overflow.message}") from overflow
        except ElbowroomError as error:
            raise PrunerFailed(f"The pruning agent could not answer: {error.message}") from error
        return reply.judged()

    @property
    def _key(self) -> ModelKey:
        return self._provider.id, self._info.id

    @property
    def _said(self) -> int:
        """Return the window that the model is said to have, or is taken to have."""
        return self._info.loaded_context or self._window

    def _learn(self, overflow: ContextOverflow) -> None:
        if overflow.window is not None:
            self._learned.windows.learn(self._info, self._said, overflow.window)
        else:
            self._learned.windows.guess(self._info, self._said, self.window * 3 // 4)

    async def _body(self, messages: Sequence[Message], cap: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the body, and apart from it what some servers refuse."""
        extras: dict[str, Any] = {}
        conversation = self._conversation
        if conversation is not None and _goes_on(conversation, messages):
            body = self._appended(conversation, messages)
            history, is_thinking_off = self._history, self._history.facts.thinking_switch == "at the end"
        else:
            body = self._fresh(messages)
            history, is_thinking_off = self._history.with_body(body), self._history.facts.thinking_switch != "none"
        if is_thinking_off:
            sent = body.get("chat_template_kwargs")
            extras["chat_template_kwargs"] = {**(sent if isinstance(sent, Mapping) else {}), **NO_THINKING}
        if not body.get("tools") and (is_thinking_off or not history.facts.may_think):
            # A grammar beside tools is refused by some engines, and forbids a model to think first.
            extras["response_format"] = PLAN_FORMAT
        room = cap + (THINKING_ROOM if history.facts.may_think else 0)
        body["messages"] = history.normalised(body["messages"])
        body["max_tokens"] = await self._at_most(room, history, body["messages"])
        return body, extras

    def _appended(self, conversation: Conversation, messages: Sequence[Message]) -> dict[str, Any]:
        return {
            **unshaped(conversation.body),
            "messages": conversation.dress(messages),
            "temperature": TEMPERATURE,
            **STREAMED,
        }

    def _fresh(self, messages: Sequence[Message]) -> dict[str, Any]:
        own = with_instructions([dict(message) for message in messages], self._instructions)
        return {"model": self._info.id, "temperature": TEMPERATURE, **self._sampling, "messages": own, **STREAMED}

    async def _at_most(self, wanted: int, history: HistoryCounter, messages: Sequence[Message]) -> int:
        """Return how long the answer may be; without context management the upstream is asked for nothing but it."""
        if not self._provider.manages_context:
            return wanted
        count = await history.count(messages)
        self._prompt = most = count.tokens + count.error_bound
        room = self.window - most - MARGIN
        if room < min(wanted, LEAST_ANSWER):
            raise PrunerFailed(
                f"The request takes up to {most} of the {self.window} tokens that the pruning agent can read."
            )
        return min(wanted, room)

    async def _reply(self, body: Mapping[str, Any], extras: Mapping[str, Any]) -> PruneReply:
        """Ask, and where the server refuses the request because of the extras, once more without them."""
        try:
            return await self._heard({**body, **extras})
        except UpstreamRejected as refusal:
            if not extras or refusal.status not in REFUSED_FIELDS:
                raise
            reply = await self._heard(body)
            log.info("%s is not asked for JSON by schema any more: %s", self._info.id, refusal.message)
            self._learned.without_extras.add(self._key)
            return reply

    async def _heard(self, body: Mapping[str, Any]) -> PruneReply:
        reply = PruneReply(self._history.text, 2 * body["max_tokens"])
        self._hearing = reply, body["max_tokens"]
        try:
            async with self._entered(body["max_tokens"]) as ticket, self._stream(body) as stream:
                async for events in stream:
                    if ticket is not None and ticket.is_prefilling:
                        ticket.first_token()
                    if not reply.take(events):
                        break
        finally:
            if reply.usage is not None:
                self.usages.append(reply.usage)
        return reply

    def _entered(self, limit: int) -> AbstractAsyncContextManager[Ticket | None]:
        tokens = self._prompt + limit
        return self._gate.entered(self._provider, self._info, window=self.window, prompt=self._prompt, tokens=tokens)

    def _stream(self, body: Mapping[str, Any]) -> "aclosing[AsyncGenerator[list[StreamEvent], None]]":
        return aclosing(self._provider.stream(body, self._info))


STREAMED: Final[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}


def unshaped(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a conversation's body without what shapes or bounds its answers: the engine reads the same before them."""
    rest = {name: value for name, value in body.items() if name not in NOT_FOR_PRUNING}
    if rest.get("tool_choice") not in ("auto", "none"):
        rest.pop("tool_choice", None)
    return rest


def _goes_on(conversation: Conversation, messages: Sequence[Message]) -> bool:
    """Tell whether these messages begin as the conversation does."""
    return bool(messages) and messages[0] == conversation.history[0]


SAME = "same"


class PruningSettings(Protocol):
    """What is read of `[compaction]` here."""

    @property
    def pruning_agent(self) -> str:
        """The agent's id or name; `same` for the conversation's own."""

    @property
    def model(self) -> str:
        """Another model of that agent's provider; empty for the agent's own."""

    @property
    def summary_prompt(self) -> str:
        """What replaces the default order about the summary."""

    @property
    def summary_directives(self) -> tuple[str, ...]:
        """What is added to it."""

    @property
    def retain_prompt(self) -> str:
        """What replaces the default order about what to retain."""

    @property
    def retain_directives(self) -> tuple[str, ...]:
        """What is added to it."""


def wishes_of(settings: PruningSettings) -> Wishes:
    """Return what the person wants the pruning agent to be told."""
    return Wishes(
        settings.summary_prompt,
        tuple(settings.summary_directives),
        settings.retain_prompt,
        tuple(settings.retain_directives),
    )


class PrunerChoice:
    """Chooses pruning agents, and remembers what they have taught and which were complained about.

    One for each event loop; settings and catalog come with each question, since both change while the server runs.
    """

    def __init__(self, histories: HistoryCounters, windows: LearnedWindows | None = None) -> None:
        self._histories = histories
        self._learned = LearnedLimits(windows=windows or LearnedWindows())
        self._complaints: set[str] = set()

    async def choose(
        self,
        settings: PruningSettings,
        catalog: Catalog,
        target: Target,
        info: ModelInfo,
        conversation: Conversation,
        history: HistoryCounter,
        window: int,
        gate: Gate,
    ) -> PruningAgent:
        """Return the pruning agent of a conversation: it is about to be sent to `info`, `history` counts for it.

        `window` is the conversation's, in tokens; the pruning agent's requests go through the `gate`. Where the agent
        of the settings cannot be had, the conversation's own model prunes, and the log says so once; the client never
        hears of it.
        """
        try:
            pruner = await self._target(settings, catalog, target)
            if (pruner.provider.id, pruner.model) != (target.provider.id, target.model) or pruner.agent is not None:
                return await self._other(pruner, window, gate)
        except ElbowroomError as error:
            self._complain(settings.pruning_agent, error)
        return PruningAgent(
            target.provider, info, history, gate, window=window, learned=self._learned, conversation=conversation
        )

    async def _target(self, settings: PruningSettings, catalog: Catalog, target: Target) -> Target:
        """Return what is to prune; without an agent where it is the conversation's own that does."""
        is_own = settings.pruning_agent == SAME or (
            target.agent is not None and settings.pruning_agent in (target.agent.id, target.agent.display_name)
        )
        pruner = replace(target, agent=None) if is_own else await catalog.resolve(settings.pruning_agent)
        return replace(pruner, model=settings.model) if settings.model else pruner

    async def _other(self, pruner: Target, conversation_window: int, gate: Gate) -> PruningAgent:
        """Return another agent or model. Its window is the loaded one, else the largest that is known of.

        Where nothing is known it is taken to be the conversation's, until an overflow teaches better.
        """
        info = await pruner.provider.ready(pruner.model)
        history = await self._histories.of(pruner.provider, info, {})
        return PruningAgent(
            pruner.provider,
            info,
            history,
            gate,
            window=info.loaded_context or info.max_context or conversation_window,
            learned=self._learned,
            instructions=pruner.agent.instructions if pruner.agent else "",
            sampling=pruner.agent.sampling.as_request_fields() if pruner.agent else {},
        )

    def _complain(self, name: str, error: ElbowroomError) -> None:
        complaint = f"{name}: {error.message}"
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            log.warning(
                "The pruning agent %s cannot be had, so each conversation's own model prunes it: %s",
                name,
                error.message,
            )
