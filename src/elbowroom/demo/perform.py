"""Plays a script token by token, at the model's pace and within its limits, and encodes what it says for a route."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, assert_never

from elbowroom.demo import wire
from elbowroom.demo.models import ReasoningField
from elbowroom.demo.residency import Generation, GenerationError
from elbowroom.demo.script import Cut, Error, Pause, Raw, Reasoning, Reply, Script, Step, Text, ToolCall, WaitFor

TOGETHER: Final = 8
"""After so many tokens of a text an engine without a pace lets others go on; of a call, after each."""


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of content or of thoughts."""

    field: Literal["content"] | ReasoningField
    text: str


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A tool call begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallContinued:
    """A piece of a tool call's arguments."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class Hangup:
    """The socket is closed here."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer has ended, for this reason; None if the script sends none."""

    reason: str | None


Event = Said | CallOpened | CallContinued | Raw | Hangup | Finished


@dataclass(frozen=True, slots=True)
class Limits:
    """How fast and how far an answer goes; no `max_tokens` is no limit, 0 tokens a second is at once.

    `grow` is told before every delta how many tokens it brings; it raises GenerationError when that is too
    much, and returns False where the answer is to end there with `length`.
    """

    grow: Callable[[int], bool]
    split: Callable[[str], list[str]]
    tokens_per_second: float = 0.0
    max_tokens: int | None = None
    reasoning_field: ReasoningField = "reasoning_content"


async def perform(script: Script, generation: Generation, limits: Limits) -> AsyncGenerator[Event, None]:
    """Yield the events of an answer at the pace of the model; raise GenerationError if it fails."""
    calls = 0
    for step in script.steps:
        async with aclosing(_play(step, calls, generation, limits)) as events:
            async for event in events:
                yield event
                if isinstance(event, Finished):
                    return
        calls += isinstance(step, ToolCall)
    reason = "tool_calls" if calls else "stop"
    yield Finished(reason if script.finish_reason == "auto" else script.finish_reason)


async def _play(step: Step, calls: int, generation: Generation, limits: Limits) -> AsyncGenerator[Event, None]:
    match step:
        case Text() | Reasoning():
            field = "content" if isinstance(step, Text) else limits.reasoning_field
            pieces = [step.text] if step.whole else limits.split(step.text)
            thinking = isinstance(step, Reasoning)
            told = _generate(pieces, generation, limits, together=TOGETHER, thinking=thinking)
            async with aclosing(told) as generated:
                async for piece in generated:
                    yield piece if isinstance(piece, Finished) else Said(field, piece)
        case ToolCall():
            yield CallOpened(calls, step.id if step.id is not None else str(calls), normalised(step.name))
            async with aclosing(_generate(_argument_pieces(step, limits), generation, limits)) as generated:
                async for piece in generated:
                    yield piece if isinstance(piece, Finished) else CallContinued(calls, piece)
        case Raw():
            yield step
        case Pause():
            await generation.pause(step.seconds)
        case WaitFor():
            await generation.until(step.event.wait)
        case Error():
            raise GenerationError(step.message)
        case Cut():
            yield Hangup()
        case Reply():
            raise ValueError("A Reply answers before the model is asked.")
        case _:
            assert_never(step)


async def _generate(
    pieces: list[str], generation: Generation, limits: Limits, *, together: int = 1, thinking: bool = False
) -> AsyncGenerator[str | Finished, None]:
    for piece in pieces:
        tokens = limits.split(piece)
        room = len(tokens) if limits.max_tokens is None else limits.max_tokens - generation.completion_tokens
        text = "".join(tokens[: max(0, room)])
        count = min(len(tokens), max(0, room))
        if limits.tokens_per_second:
            await generation.pause(count / limits.tokens_per_second)
        elif generation.completion_tokens % together < count:
            await generation.pause(0)
        goes_on = count == 0 or limits.grow(count)
        generation.completion_tokens += count
        generation.reasoning_tokens += count if thinking else 0
        if text:
            yield text
        if count < len(tokens) or not goes_on:
            yield Finished("length")
            return


def _argument_pieces(call: ToolCall, limits: Limits) -> list[str]:
    if call.pieces is not None:
        return list(call.pieces)
    text = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
    return limits.split(text)


def normalised(name: str) -> str:
    """Return a tool's name in the form that LM Studio gives the model and its calls."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)


def stopped_at(script: Script, stop: Any) -> Script:
    """Return the script with its content ended before the first of the stop strings."""
    strings = [stop] if isinstance(stop, str) else [one for one in stop or () if one]
    steps: list[Step] = []
    for step in script.steps:
        if isinstance(step, Text) and (found := [step.text.find(one) for one in strings if one in step.text]):
            steps.append(Text(step.text[: min(found)], step.whole))
            break
        steps.append(step)
    return Script(
        *steps,
        finish_reason=script.finish_reason,
        usage=script.usage,
        done=script.done,
        cut_after=script.cut_after,
    )


Visible = Said | CallOpened | CallContinued | Finished


class Encoding(Protocol):
    """The JSON of one answer on its route."""

    def chunk(self, event: Visible) -> dict[str, Any]:
        """Return the chunk that carries the event."""

    def usage_chunk(self, usage: Any) -> dict[str, Any]:
        """Return the chunk that carries the usage alone."""

    def whole(self, events: Sequence[Visible], usage: Any) -> dict[str, Any]:
        """Return the answer in one piece."""


class ChatEncoding:
    """`chat.completion` and its chunks."""

    def __init__(self, heading: wire.Heading, reasoning_field: str) -> None:
        self._heading = heading
        self._reasoning_field = reasoning_field

    def chunk(self, event: Visible) -> dict[str, Any]:
        """Return the chunk that carries the event."""
        match event:
            case Said(field, text):
                return wire.chunk(self._heading, {field: text})
            case CallOpened(index, call_id, name):
                return wire.chunk(self._heading, wire.call_opened(index, call_id, name))
            case CallContinued(index, arguments):
                return wire.chunk(self._heading, wire.call_continued(index, arguments))
            case Finished(reason):
                return wire.chunk(self._heading, {}, reason)

    def usage_chunk(self, usage: Any) -> dict[str, Any]:
        """Return the chunk that carries the usage alone."""
        return wire.usage_chunk(self._heading, usage)

    def whole(self, events: Sequence[Visible], usage: Any) -> dict[str, Any]:
        """Return the answer in one piece; its content is null where there are only tool calls."""
        content, calls = _said(events, "content"), _calls(events)
        message = {
            "role": "assistant",
            "content": None if calls and not content else content,
            self._reasoning_field: _said(events, self._reasoning_field),
            "tool_calls": calls,
        }
        return wire.completion(self._heading, message, _finish_reason(events), usage)


class TextEncoding:
    """`text_completion`, the same for chunks and whole."""

    def __init__(self, heading: wire.Heading) -> None:
        self._heading = heading

    def chunk(self, event: Visible) -> dict[str, Any]:
        """Return the chunk that carries the event."""
        text = event.text if isinstance(event, Said) else ""
        reason = event.reason if isinstance(event, Finished) else None
        return wire.text_completion(self._heading, text, reason)

    def usage_chunk(self, usage: Any) -> dict[str, Any]:
        """Return the chunk that carries the usage alone."""
        return wire.text_completion(self._heading, None, None) | {"usage": usage}

    def whole(self, events: Sequence[Visible], usage: Any) -> dict[str, Any]:
        """Return the answer in one piece."""
        whole = wire.text_completion(self._heading, _said(events, "content"), _finish_reason(events))
        return whole | {"usage": usage, "stats": {}}


def _said(events: Sequence[Visible], field: str) -> str:
    return "".join(event.text for event in events if isinstance(event, Said) and event.field == field)


def _calls(events: Sequence[Visible]) -> list[dict[str, Any]]:
    calls = []
    for opened in events:
        if isinstance(opened, CallOpened):
            arguments = "".join(
                event.arguments for event in events if isinstance(event, CallContinued) and event.index == opened.index
            )
            function = {"name": opened.name, "arguments": arguments}
            calls.append({"type": "function", "id": opened.id, "function": function})
    return calls


def _finish_reason(events: Sequence[Visible]) -> str | None:
    return next((event.reason for event in events if isinstance(event, Finished)), None)
