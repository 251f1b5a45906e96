"""What a streaming model says, one value per piece, whatever the upstream's dialect."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer; `logprobs` as the upstream sent them, where the client asked for them."""

    text: str
    logprobs: Any = None


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's thinking, under the field name that its upstream uses."""

    text: str
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content"


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call: the first piece of an index has the name, the others more of the arguments."""

    index: int
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The upstream's finish_reason: stop, length, tool_calls or content_filter."""

    reason: str


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The upstream's usage object, unchanged; its numbers are tokens."""

    usage: dict[str, Any]


StreamEvent = TextDelta | ReasoningDelta | ToolCallDelta | Finished | UsageReport
