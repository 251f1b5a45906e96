"""An answer as clients of the Responses API read it: one object, and the events of a stream."""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from elbowroom.agents.answer import Answer, AnswerEvent, Notice
from elbowroom.context.notice_line import notice_line
from elbowroom.errors import ContextOverflow, ElbowroomError, TooManyRequests, UpstreamBusy
from elbowroom.providers.events import TextDelta
from elbowroom.server.encode import comment, to_json
from elbowroom.server.responses_items import Event, OutputItems
from elbowroom.settings.model import Notices

RESPONSE: Final = "resp_"
TURN: Final = "turn_"
INCOMPLETE: Final[Mapping[str, str]] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why an answer is not complete, by the finish_reason of a chat."""


def response_id_of(turn: str) -> str:
    """Return the id of the response that a turn gives."""
    return RESPONSE + turn.removeprefix(TURN)


def turn_of(response_id: str) -> str:
    """Return the id of the turn that has given a response."""
    return TURN + response_id.removeprefix(RESPONSE)


class ResponseEncoder:
    """Encodes one answer: `echo` is what the response repeats of its request, `notices` how the person is told things.

    Its id is one that nobody knows until `began` names the turn that can be asked for again.
    """

    def __init__(self, model: str, echo: Mapping[str, Any], notices: Notices = "auto") -> None:
        self._model = model
        self._echo = echo
        self._notices = notices
        self._created = int(time.time())
        self._written = 0
        self._words_of = -1
        self._before_words = ""
        self.id = RESPONSE + secrets.token_hex(12)
        self._items = OutputItems(self.id)

    def began(self, turn: str) -> None:
        """Take the id of the turn that answers; called before anything is said."""
        self.id = response_id_of(turn)
        self._items = OutputItems(self.id)

    def events(self, events: Sequence[AnswerEvent]) -> bytes:
        """Return the frames for what has just been said; none where nothing of it is for this client."""
        frames: list[str] = []
        for event in events:
            if isinstance(event, TextDelta) and self._items.goes_on(event):
                frames.append(self._words(event.text))
            elif not isinstance(event, Notice):
                frames += self._frames(self._items.take(event))
            elif self._notices == "content" and event.progress is None:
                frames += self._frames(self._items.take(TextDelta(notice_line(event.text))))
            elif self._notices in ("auto", "comment"):
                frames += [*self._beginning(), comment(event.text)]
        return "".join(frames).encode("ascii")

    def end(self, answer: Answer) -> bytes:
        """Return the last frames: what is open is closed, and the whole response follows."""
        closing = list(self._frames(self._items.close()))
        response = self.response(answer)
        kind = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
        return "".join([*closing, *self._frames([(kind, {"response": response})])]).encode("ascii")

    def failure(self, error: ElbowroomError) -> bytes:
        """Return the frames that end a stream which cannot be finished."""
        closing = list(self._frames(self._items.close("incomplete")))
        why = {"code": error.code, "message": error.message, "param": error.param}
        failed = {**self._described("failed"), "error": {"code": _code(error), "message": error.message}}
        return "".join([*closing, *self._frames([("error", why), ("response.failed", {"response": failed})])]).encode(
            "ascii"
        )

    def response(self, answer: Answer) -> dict[str, Any]:
        """Return the whole response. One that a person has stopped is cancelled: what was said until then stands."""
        for _ in self._items.close():
            pass
        if answer.is_interrupted:
            response = self._described("cancelled")
            if not answer.tool_calls:  # those that were not handed out are never to be run
                response["output"] = [item for item in response["output"] if item["type"] != "function_call"]
        elif reason := INCOMPLETE.get(answer.finish_reason):
            response = {**self._described("incomplete"), "incomplete_details": {"reason": reason}}
        else:
            response = {**self._described("completed"), "completed_at": int(time.time())}
        return {**response, "usage": usage_of(answer.usage)} if answer.usage is not None else response

    def _described(self, status: str) -> dict[str, Any]:
        return {**described(self.id, self._model, self._created, status, self._items.done), **self._echo}

    def _beginning(self) -> list[str]:
        if self._written:
            return []
        response = self._described("in_progress")
        begun = ("response.created", "response.in_progress")
        return [self._frame(kind, {"response": response}) for kind in begun]

    def _frames(self, events: Iterable[Event]) -> Iterable[str]:
        for kind, fields in events:
            yield from self._beginning()
            yield self._frame(kind, fields)

    def _words(self, text: str) -> str:
        """Return the frame of words that follow others, all but these and its number made once for each message."""
        if self._words_of != len(self._items.done):
            kind, fields = self._items.delta_of_words()
            self._words_of = len(self._items.done)
            self._before_words = f'event: {kind}\ndata: {to_json({"type": kind, **fields})[:-1]},"delta":'
        self._written += 1
        return f'{self._before_words}{encode_basestring_ascii(text)},"sequence_number":{self._written - 1}}}\n\n'

    def _frame(self, kind: str, fields: Mapping[str, Any]) -> str:
        data = to_json({"type": kind, **fields, "sequence_number": self._written})
        self._written += 1
        return f"event: {kind}\ndata: {data}\n\n"


def described(
    response_id: str, model: str, created: int, status: str, output: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a response of which nothing else is known."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": list(output),
    }


def usage_of(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat's usage as responses have it; what elbowroom says beside it stays."""
    read, written = _tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens")
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    found = {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": _tokens(prompt, "cached_tokens"),
            "cache_write_tokens": _tokens(prompt, "cache_write_tokens"),
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": _tokens(completion, "reasoning_tokens")},
        "total_tokens": read + written,
    }
    return {**found, "elbowroom": usage["elbowroom"]} if "elbowroom" in usage else found


def _tokens(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _code(error: ElbowroomError) -> str:
    """Return what OpenAI's list of codes has for an error; `error.code` itself stands in the event before."""
    if isinstance(error, TooManyRequests | UpstreamBusy):
        return "rate_limit_exceeded"
    return "invalid_prompt" if isinstance(error, ContextOverflow) else "server_error"
