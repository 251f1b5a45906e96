"""The output items of a response as they grow: thoughts, messages, calls of functions."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from elbowroom.agents.answer import BETWEEN_STEPS, AnswerEvent, Notice, ToolCall
from elbowroom.providers.events import ReasoningDelta, TextDelta

Event = tuple[str, dict[str, Any]]
"""The type of an event of a stream, and its fields but for the sequence number."""
Kind = Literal["message", "reasoning"]
PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
TEXTS: Final = {"message": "output_text", "reasoning": "reasoning_text"}


class OutputItems:
    """The items of one response, each with an id made of the response's and its place: the same whenever it is made.

    Only the last item is open. `done` are those that are closed.
    """

    def __init__(self, response_id: str) -> None:
        self._key = response_id.partition("_")[2]
        self._open: Kind | None = None
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self.done: list[dict[str, Any]] = []

    def take(self, said: AnswerEvent) -> Iterator[Event]:
        """Yield the events for what is said: thoughts, words and calls each begin an item where another was open.

        Notices are no part of a response.
        """
        match said:
            case ToolCall():
                yield from self.close()
                yield from self._call(said)
            case TextDelta():
                yield from self._grow("message", said.text, {"logprobs": _logprobs(said.logprobs)})
            case ReasoningDelta():
                is_new = self._open != "reasoning"  # what parts it from earlier thoughts is the item's beginning then
                yield from self._grow("reasoning", said.text.removeprefix(BETWEEN_STEPS) if is_new else said.text, {})
            case Notice():
                pass

    def goes_on(self, said: TextDelta) -> bool:
        """Take words that follow others, which are nearly all; tell whether these are such."""
        if self._open != "message" or said.logprobs is not None:
            return False
        self._text.append(said.text)
        return True

    def delta_of_words(self) -> Event:
        """Return the event for words that follow others, without these."""
        return "response.output_text.delta", {**self._place(), "content_index": 0, "logprobs": []}

    def close(self, status: Literal["completed", "incomplete"] = "completed") -> Iterator[Event]:
        """Yield the events that end the open item, if there is one."""
        if self._open is None:
            return
        kind, text, place = TEXTS[self._open], "".join(self._text), {**self._place(), "content_index": 0}
        part = _part(kind, text, self._logprobs)
        item = {**self._item(self._open, [part]), "status": status}
        fields = {"logprobs": self._logprobs} if self._open == "message" else {}
        yield f"response.{kind}.done", {**place, "text": text, **fields}
        yield "response.content_part.done", {**place, "part": part}
        yield "response.output_item.done", {"output_index": len(self.done), "item": item}
        self.done.append(item)
        self._open, self._text, self._logprobs = None, [], []

    def _grow(self, kind: Kind, text: str, fields: Mapping[str, Any]) -> Iterator[Event]:
        if self._open != kind:
            yield from self.close()
            yield from self._begin(kind)
        self._text.append(text)
        self._logprobs += fields.get("logprobs", ())
        place = {**self._place(), "content_index": 0}
        yield f"response.{TEXTS[kind]}.delta", {**place, "delta": text, **fields}

    def _begin(self, kind: Kind) -> Iterator[Event]:
        self._open = kind
        item = {**self._item(kind, []), "status": "in_progress"}
        yield "response.output_item.added", {"output_index": len(self.done), "item": item}
        part = _part(TEXTS[kind], "", [])
        yield "response.content_part.added", {**self._place(), "content_index": 0, "part": part}

    def _call(self, call: ToolCall) -> Iterator[Event]:
        head = {"id": self._id("function_call"), "type": "function_call", "call_id": call.id, "name": call.name}
        place = {"item_id": head["id"], "output_index": len(self.done)}
        item = {**head, "arguments": call.arguments, "status": "completed"}
        added = {**head, "arguments": "", "status": "in_progress"}
        yield "response.output_item.added", {"output_index": len(self.done), "item": added}
        yield "response.function_call_arguments.delta", {**place, "delta": call.arguments}
        yield "response.function_call_arguments.done", {**place, "name": call.name, "arguments": call.arguments}
        yield "response.output_item.done", {"output_index": len(self.done), "item": item}
        self.done.append(item)

    def _item(self, kind: Kind, content: list[dict[str, Any]]) -> dict[str, Any]:
        item = {"id": self._id(kind), "type": kind, "content": content}
        return {**item, "role": "assistant"} if kind == "message" else {**item, "summary": []}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id(self._open or "message"), "output_index": len(self.done)}

    def _id(self, kind: str) -> str:
        return f"{PREFIXES[kind]}_{self._key}_{len(self.done)}"


def _part(kind: str, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    part = {"type": kind, "text": text}
    return {**part, "annotations": [], "logprobs": logprobs} if kind == "output_text" else part


def _logprobs(said: Any) -> list[dict[str, Any]]:
    """Return a chat's logprobs of a piece as responses have them; what is of another form is left out."""
    tokens = said.get("content") if isinstance(said, dict) else None
    found = [_logprob(token) for token in tokens] if isinstance(tokens, list) else []
    return [token for token in found if token is not None]


def _logprob(token: Any) -> dict[str, Any] | None:
    text, value = (token.get("token"), token.get("logprob")) if isinstance(token, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(value, int | float):
        return None
    top, given = token.get("top_logprobs"), token.get("bytes")
    others = [_logprob(other) for other in top] if isinstance(top, list) else []
    alike = [{key: other[key] for key in ("token", "logprob", "bytes")} for other in others if other]
    letters = given if isinstance(given, list) else list(text.encode("utf-8", "surrogatepass"))
    return {"token": text, "logprob": value, "bytes": letters, "top_logprobs": alike}
