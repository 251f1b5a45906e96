"""What one request is answered with, over all steps of its run."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from elbowroom.agents.answer_guard import AnswerGuard
from elbowroom.context.progress import Progress
from elbowroom.providers.events import ReasoningDelta, TextDelta

FINISH_REASONS = frozenset({"stop", "length", "content_filter"})
BETWEEN_STEPS = "\n\n"
COUNTED: Final = {"counted": True}
"""What a usage object says under `elbowroom` where its numbers are none of the upstream's."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call: a fresh id of nine letters and digits, the tool's name, its arguments as JSON text."""

    id: str
    name: str
    arguments: str

    def as_openai(self) -> dict[str, Any]:
        """Return the call as it stands in a message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True, slots=True)
class Notice:
    """A short status for the person beside the answer. What one that is not done has opened, a later one closes.

    `before` and `after` are sizes of the prompt in tokens, `seconds` how long it took to get from one to the other.
    One with `progress` says anew how far that is which an earlier one has opened.
    """

    kind: Literal[
        "loading",
        "loaded",
        "compacting",
        "compacted",
        "not compacted",
        "tight",
        "cut",
        "truncated",
        "waiting",
        "handed over",
        "remembering",
        "remembered",
        "taken in",
        "left out",
        "store",
    ]
    text: str
    is_done: bool = True
    before: int | None = None
    after: int | None = None
    seconds: float | None = None
    progress: Progress | None = None


AnswerEvent = TextDelta | ReasoningDelta | ToolCall | Notice
Sink = Callable[[Sequence[AnswerEvent]], Awaitable[None]]
"""Takes what the client is to see, in order; while it waits, the model is not read on."""


@dataclass(slots=True)
class Answer:
    """The text, thoughts and client tool calls of a run so far, and how each of its model steps ended.

    `usages` holds the upstream's usage objects, and for requests whose upstream reported none those counted here,
    which say so under `elbowroom`. The last is that of the last request. `guard` is what its words have to pass first;
    None where nothing has been read that somebody else wrote.
    """

    text: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    upstream_finish: str = "stop"
    steps: int = 0
    is_stopped: bool = False
    is_interrupted: bool = False
    guard: AnswerGuard | None = None
    _text_before: int = 0
    _reasoning_before: int = 0

    def begin_step(self) -> None:
        """Note that the model is asked once more."""
        self.steps += 1
        self._text_before = len(self.text)
        self._reasoning_before = len(self.reasoning)

    def take(self, event: AnswerEvent) -> AnswerEvent:
        """Keep an event and return it as the client sees it: a later step's words begin after a blank line."""
        match event:
            case TextDelta():
                if 0 < self._text_before == len(self.text):
                    event = TextDelta(BETWEEN_STEPS + event.text, event.logprobs)
                self.text.append(event.text)
                if event.logprobs is not None:
                    self.logprobs.append(event.logprobs)
            case ReasoningDelta():
                if 0 < self._reasoning_before == len(self.reasoning):
                    event = ReasoningDelta(BETWEEN_STEPS + event.text, event.field)
                self.reasoning.append(event.text)
            case ToolCall():
                self.tool_calls.append(event)
            case Notice():
                pass  # it is no part of what was said
        return event

    def stop(self, why: str) -> AnswerEvent:
        """End an answer whose model would go on: a last paragraph says why. Return it as the client sees it."""
        self.is_stopped = True
        self.upstream_finish = "length"
        self._text_before = len(self.text)
        return self.take(TextDelta(why))

    def interrupt(self, *, calls_are_out: bool) -> None:
        """End an answer that a person has stopped: what was said stands, and no tool is to be run for it.

        Calls that the client has got already cannot be taken back.
        """
        self.is_interrupted = True
        if not calls_are_out:
            self.tool_calls.clear()

    @property
    def conclusion(self) -> str:
        """Return what the last step has said; where that was nothing, or the answer was stopped, the whole text."""
        said = "".join(self.text[self._text_before :]).strip()
        return said if said and not self.is_stopped else "".join(self.text).strip()

    def as_message(self) -> dict[str, Any]:
        """Return the answer as the message that a client makes of it."""
        return assistant_message("".join(self.text), self.tool_calls)

    @property
    def finish_reason(self) -> str:
        """Return OpenAI's finish_reason: `tool_calls` where the client has to run tools, else the last step's.

        Of an answer that was interrupted it is `stop`.
        """
        if self.is_interrupted:
            return "stop"
        if self.tool_calls:
            return "tool_calls"
        return self.upstream_finish if self.upstream_finish in FINISH_REASONS else "stop"

    @property
    def usage(self) -> dict[str, Any] | None:
        """Return the usage of the last step, which is what fills the window, and the sums where there were more."""
        if not self.usages:
            return None
        if self.steps == 1:
            return self.usages[-1]
        sums = {key: sum(_count(usage, key) for usage in self.usages) for key in ("prompt_tokens", "completion_tokens")}
        counted = COUNTED if any(usage.get("elbowroom") == COUNTED for usage in self.usages) else {}
        return {**self.usages[-1], "elbowroom": {"steps": self.steps, **sums, **counted}}


def assistant_message(text: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Return what the assistant says as a message of the conversation."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    return {**message, "tool_calls": [call.as_openai() for call in calls]} if calls else message


def _count(usage: dict[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0
