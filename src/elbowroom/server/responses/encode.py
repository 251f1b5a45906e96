"""Encodes an answer for clients of the Responses API: as one object, and as the events of a stream."""

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal

from elbowroom.agents.answer import BETWEEN_STEPS, Answer, AnswerEvent, Compacted, Notice, ToolCall
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.context.compaction import Seal
from elbowroom.errors import ContextOverflow, ElbowroomError, TooManyAtOnce, TooManyRequests, UpstreamBusy
from elbowroom.providers.base import ReasoningDelta, TextDelta
from elbowroom.server.encode import KEEP_ALIVE, to_json, tokens_of, told_of
from elbowroom.server.responses.tools import CALLS, Toolset
from elbowroom.server.responses.tools import PREFIXES as CALL_PREFIXES
from elbowroom.settings.model import Notices

Event = tuple[str, dict[str, Any]]
"""The type of an event of a stream, and its fields but for the sequence number."""
Kind = Literal["message", "reasoning"]
PREFIXES: Final = {"message": "msg", "reasoning": "rs"}
TEXTS: Final = {"message": "output_text", "reasoning": "reasoning_text"}
RESPONSE: Final = "resp_"
TURN: Final = "turn_"
BACKGROUND_END: Final = "bg"
"""The end of the id of a response that is answered in the background; ids of others have hexadecimal digits alone."""
GROWS: Final[Mapping[str, tuple[str, str]]] = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
"""The calls whose text comes in events of its own: the field with the text, and the name of the events."""
INCOMPLETE: Final[Mapping[str, str]] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete, by the finish_reason of the chat."""


class OutputItems:
    """The items of one response; the id of each is made of the response's id and its place, so it never changes.

    Only the last item is open; `done` holds the closed ones. Compactions, which are no part of what is kept of a
    response, are made with a `seal` and counted apart: other items have the same ids without them.
    """

    def __init__(self, response_id: str, tools: Toolset | None = None, seal: Seal | None = None) -> None:
        self._key = response_id.partition("_")[2]
        self._tools = tools or Toolset()
        self._seal = seal
        self._compactions = 0
        self._is_compacting = False
        self._open: Kind | None = None
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self.done: list[dict[str, Any]] = []

    def take(self, said: AnswerEvent) -> Iterator[Event]:
        """Yield the events for what is said; thoughts, words and calls stand in items of their own.

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
            case Compacted():
                yield from self.close()
                yield from self._compacted(said)
            case Notice():
                pass

    def compacting(self) -> Iterator[Event]:
        """Yield the events that tell a client which waits for nothing but a compaction that it is being made."""
        if not self._is_compacting:
            self._is_compacting = True
            item = {"id": self._compaction_id, "type": "compaction", "encrypted_content": ""}
            yield "response.output_item.added", {"output_index": len(self.done), "item": item}
        place = {"item_id": self._compaction_id, "output_index": len(self.done)}
        yield "response.compaction.compacting", place

    def _compacted(self, said: Compacted) -> Iterator[Event]:
        if self._seal is None:
            return
        if not self._is_compacting:
            yield from self.compacting()
        text = self._seal.sealed(said.key, said.messages)
        item = {"id": self._compaction_id, "type": "compaction", "encrypted_content": text}
        yield "response.output_item.done", {"output_index": len(self.done), "item": item}
        self.done.append(item)
        self._compactions += 1
        self._is_compacting = False

    @property
    def _compaction_id(self) -> str:
        return f"cmp_{self._key}_{self._compactions}"

    @property
    def _number(self) -> int:
        """Return the number of the next item among those that are kept."""
        return len(self.done) - self._compactions

    def append_to_message(self, said: TextDelta) -> bool:
        """Append words to the open item where it is a message, as nearly always; tell whether it is."""
        if self._open != "message" or said.logprobs is not None:
            return False
        self._text.append(said.text)
        return True

    def delta_of_words(self) -> Event:
        """Return the event for words in an open item, without the words."""
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
        kind = self._tools.kind_of(call)
        item = self._tools.item_of(call, f"{CALL_PREFIXES[kind]}_{self._key}_{self._number}")
        place = {"item_id": item["id"], "output_index": len(self.done)}
        if kind != "custom":  # whose items have no status
            item["status"] = "completed"
        grows = GROWS.get(item["type"])
        added = {**item, **({"status": "in_progress"} if "status" in item else {}), **({grows[0]: ""} if grows else {})}
        yield "response.output_item.added", {"output_index": len(self.done), "item": added}
        if grows is not None:
            field, event = grows
            named = {"name": item["name"]} if kind == "function" else {}
            yield f"response.{event}.delta", {**place, "delta": item[field]}
            yield f"response.{event}.done", {**place, **named, field: item[field]}
        yield "response.output_item.done", {"output_index": len(self.done), "item": item}
        self.done.append(item)

    def _item(self, kind: Kind, content: list[dict[str, Any]]) -> dict[str, Any]:
        item = {"id": self._id(kind), "type": kind, "content": content}
        return {**item, "role": "assistant"} if kind == "message" else {**item, "summary": []}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id(self._open or "message"), "output_index": len(self.done)}

    def _id(self, kind: str) -> str:
        return f"{PREFIXES[kind]}_{self._key}_{self._number}"


def _part(kind: str, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    part = {"type": kind, "text": text}
    return {**part, "annotations": [], "logprobs": logprobs} if kind == "output_text" else part


def _logprobs(said: Any) -> list[dict[str, Any]]:
    """Return a piece's logprobs in the form of responses; values of an unknown form are left out."""
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


def response_id_of(turn: str) -> str:
    """Return the id of a turn's response."""
    return RESPONSE + turn.removeprefix(TURN)


def turn_of(response_id: str) -> str:
    """Return the id of a response's turn."""
    return TURN + response_id.removeprefix(RESPONSE)


class ResponseEncoder:
    """Encodes one answer: `echo` holds the request's fields to repeat, `notices` the form of notices, `tools` those of
    the request. With a `seal` the client gets compactions as items; where it asked for nothing else, `only_compacts`,
    it is told of their progress by events.

    Its id is a random one unless `began` names the turn, by which the response can be found later.
    """

    def __init__(
        self,
        model: str,
        echo: Mapping[str, Any],
        notices: Notices = "auto",
        tools: Toolset | None = None,
        seal: Seal | None = None,
        *,
        only_compacts: bool = False,
    ) -> None:
        self._model = model
        self._echo = echo
        self._notices = notices
        self._created = int(time.time())
        self._written = 0
        self._unsaid: Sequence[str] = ("response.created", "response.in_progress")
        self._words_of = -1
        self._before_words = ""
        self._tools = tools
        self._seal = seal
        self._only_compacts = only_compacts
        self.id = RESPONSE + secrets.token_hex(12)
        self._items = OutputItems(self.id, tools, seal)

    def began(self, turn: TurnRecorder) -> None:
        """Take the turn that answers, before the first event."""
        self.take_id(turn.id)

    def take_id(self, turn: str) -> None:
        """Take the id of the turn that answers, before the first event."""
        if self.id != response_id_of(turn):
            self.id = response_id_of(turn)
            self._items = OutputItems(self.id, self._tools, self._seal)

    def queued(self) -> bytes:
        """Return the first frames of a response that is answered in the background."""
        self._unsaid = self._unsaid[1:]
        response = self.so_far()
        begun = ("response.created", "response.queued")
        return "".join(self._frame(kind, {"response": response}) for kind in begun).encode("ascii")

    def so_far(self) -> dict[str, Any]:
        """Return the response while it is being given, with the items that are whole."""
        return self._described("queued" if self._unsaid else "in_progress")

    def events(self, events: Sequence[AnswerEvent]) -> bytes:
        """Return the frames for these events; none where the client is not to see them."""
        frames: list[str] = []
        for event in events:
            if isinstance(event, TextDelta) and self._items.append_to_message(event):
                frames.append(self._words(event.text))
            elif not isinstance(event, Notice):
                frames += self._frames(self._items.take(event))
            elif self._only_compacts and event.kind == "compacting":
                frames += self._frames(self._items.compacting())
            else:
                line, beside = told_of(event, self._notices)
                frames += self._frames(self._items.take(TextDelta(line))) if line else ()
                frames += [*self._beginning(), beside] if beside else ()
        return "".join(frames).encode("ascii")

    def end(self, answer: Answer) -> bytes:
        """Return the last frames: the end of the open item, and the whole response."""
        closing = list(self._frames(self._items.close()))
        response = self.whole(answer)
        kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return "".join([*closing, *self._frames([(kind, {"response": response})])]).encode("ascii")

    def failure(self, error: ElbowroomError) -> bytes:
        """Return the last frames of a stream that has failed."""
        closing = list(self._frames(self._items.close("incomplete")))
        why = {"code": error.code, "message": error.message, "param": error.param}
        failed = {**self._described("failed"), "error": {"code": _code(error), "message": error.message}}
        return "".join([*closing, *self._frames([("error", why), ("response.failed", {"response": failed})])]).encode(
            "ascii"
        )

    def keep_alive(self) -> bytes:
        """Return a comment, which fills a silence."""
        return KEEP_ALIVE

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the whole response; a stopped one has the status `cancelled` and keeps the text it has."""
        for _ in self._items.close():
            pass
        if answer.is_interrupted:
            response = self._described("cancelled")
            if not answer.tool_calls:  # those that were not handed out are never to be run
                response["output"] = [item for item in response["output"] if item["type"] not in CALLS]
        elif reason := INCOMPLETE.get(answer.finish_reason):
            response = {**self._described("incomplete"), "incomplete_details": {"reason": reason}}
        else:
            response = {**self._described("completed"), "completed_at": int(time.time())}
        return {**response, "usage": usage_of(answer.usage)} if answer.usage is not None else response

    def _described(self, status: str) -> dict[str, Any]:
        return {**described(self.id, self._model, self._created, status, self._items.done), **self._echo}

    def _beginning(self) -> list[str]:
        if not self._unsaid:
            return []
        begun, self._unsaid = self._unsaid, ()
        response = self._described("in_progress")
        return [self._frame(kind, {"response": response}) for kind in begun]

    def _frames(self, events: Iterable[Event]) -> Iterable[str]:
        for kind, fields in events:
            yield from self._beginning()
            yield self._frame(kind, fields)

    def _words(self, text: str) -> str:
        """Return the frame of words in an open item; all but the words and its number is made once for each item."""
        if self._words_of != len(self._items.done):
            kind, fields = self._items.delta_of_words()
            self._words_of = len(self._items.done)
            self._before_words = f'event: {kind}\ndata: {to_json({"type": kind, **fields})[:-1]},"delta":'
        self._written += 1
        return f'{self._before_words}{encode_basestring_ascii(text)},"sequence_number":{self._written - 1}}}\n\n'

    def _frame(self, kind: str, fields: Mapping[str, Any]) -> str:
        self._written += 1
        return _frame(kind, fields, self._written - 1)


class KeptEncoder:
    """Encodes the events of a kept response of which a client has had those up to the number `after`.

    Its numbers are not those of its first stream, whose words came in more pieces. Whatever number a client names, the
    last event comes, which has the whole response.
    """

    def __init__(self, after: int) -> None:
        self._after = after
        self._told = 0

    def events(self, events: Sequence[Event]) -> bytes:
        """Return the frames of the events that the client has not had."""
        numbered = enumerate(events, self._told)
        frames = [_frame(kind, fields, number) for number, (kind, fields) in numbered if number > self._after]
        self._told += len(events)
        return "".join(frames).encode("ascii")

    def end(self, response: Mapping[str, Any]) -> bytes:
        """Return the last frame."""
        kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return _frame(kind, {"response": response}, max(self._told, self._after + 1)).encode("ascii")

    def failure(self, error: ElbowroomError) -> bytes:
        """Return the frame of an error."""
        why = {"code": error.code, "message": error.message, "param": error.param}
        return _frame("error", why, max(self._told, self._after + 1)).encode("ascii")


def _frame(kind: str, fields: Mapping[str, Any], number: int) -> str:
    return f"event: {kind}\ndata: {to_json({'type': kind, **fields, 'sequence_number': number})}\n\n"


def described(
    response_id: str, model: str, created: int, status: str, output: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a response with nothing but these fields."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "completed_at": None,
        "status": status,
        "background": response_id.endswith(BACKGROUND_END),
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": list(output),
        "service_tier": "default",
        "usage": None,
    }


def usage_of(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat's usage in the form of responses; elbowroom's own fields stay."""
    read, written = tokens_of(usage, "prompt_tokens"), tokens_of(usage, "completion_tokens")
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    found = {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": tokens_of(prompt, "cached_tokens"),
            "cache_write_tokens": tokens_of(prompt, "cache_write_tokens"),
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": tokens_of(completion, "reasoning_tokens")},
        "total_tokens": read + written,
    }
    return {**found, "elbowroom": usage["elbowroom"]} if "elbowroom" in usage else found


def _code(error: ElbowroomError) -> str:
    """Return the code of OpenAI's list for an error; the event before has `error.code` itself."""
    if isinstance(error, TooManyRequests | TooManyAtOnce | UpstreamBusy):
        return "rate_limit_exceeded"
    return "invalid_prompt" if isinstance(error, ContextOverflow) else "server_error"
