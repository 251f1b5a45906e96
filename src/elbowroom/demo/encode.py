"""Turns what a model says into chunks of a stream, or into one whole answer, for each of the two routes."""

from collections.abc import Sequence
from typing import Any, Protocol

from elbowroom.demo import wire
from elbowroom.demo.perform import CallContinued, CallOpened, Finished, Said

Visible = Said | CallOpened | CallContinued | Finished


class Encoding(Protocol):
    """How one answer looks on its route."""

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
