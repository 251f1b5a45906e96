"""Turns what a model says into chunks of a stream, or into one whole message."""

from typing import Any, assert_never

from elbowroom.demo import wire
from elbowroom.demo.perform import CallContinued, CallOpened, Finished, Said


def delta_of(event: Said | CallOpened | CallContinued) -> dict[str, Any]:
    """Return the delta that carries the event, without its role."""
    match event:
        case Said(field, text):
            return {field: text}
        case CallOpened(index, call_id, name):
            return wire.call_opened(index, call_id, name)
        case CallContinued(index, arguments):
            return wire.call_continued(index, arguments)
        case _:
            assert_never(event)


class WholeMessage:
    """The message of an answer that is not streamed, as it grows."""

    def __init__(self, reasoning_field: str) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._reasoning_field = reasoning_field
        self._calls: list[tuple[CallOpened, list[str]]] = []
        self.finish_reason: str | None = None

    def add(self, event: Said | CallOpened | CallContinued | Finished) -> None:
        """Take in the next event."""
        match event:
            case Said("content", text):
                self._content.append(text)
            case Said(_, text):
                self._reasoning.append(text)
            case CallOpened():
                self._calls.append((event, []))
            case CallContinued(_, arguments):
                self._calls[-1][1].append(arguments)
            case Finished(reason):
                self.finish_reason = reason
            case _:
                assert_never(event)

    def as_json(self) -> dict[str, Any]:
        """Return the message; its content is null where there are only tool calls."""
        content = "".join(self._content)
        calls = [
            {
                "type": "function",
                "id": opened.id,
                "function": {"name": opened.name, "arguments": "".join(pieces)},
            }
            for opened, pieces in self._calls
        ]
        return {
            "role": "assistant",
            "content": None if calls and not content else content,
            self._reasoning_field: "".join(self._reasoning),
            "tool_calls": calls,
        }
