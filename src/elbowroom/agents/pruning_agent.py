"""Asks a model to plan what stays of a conversation; whatever else it answers is a PrunerFailed, never a summary."""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elbowroom.agents.admission import Ticket
from elbowroom.agents.gate import Gate
from elbowroom.agents.history_counter import HistoryCounter
from elbowroom.agents.learned_windows import LearnedWindows
from elbowroom.agents.prune_reply import PruneReply
from elbowroom.agents.request_body import with_instructions
from elbowroom.agents.template_facts import NO_THINKING
from elbowroom.context.ladder import PrunerFailed
from elbowroom.context.progress import Progress
from elbowroom.context.transcript import Message
from elbowroom.errors import ContextOverflow, ElbowroomError, UpstreamRejected
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.events import StreamEvent

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
