"""Answers as OpenAI clients read them: the frames of a stream, and the one object without streaming."""

import json
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from json.encoder import encode_basestring_ascii
from typing import Any, Final
from urllib.parse import quote

import msgspec

from elbowroom.agents.answer import Answer, AnswerEvent, Compacted, Notice, ToolCall
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.context.seam import notice_line
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ReasoningDelta, TextDelta
from elbowroom.settings.model import Notices

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": elbowroom\n\n"
THOUGHTS: Final = "reasoning_content"
"""The field of a chat message for the assistant's thoughts, for servers that know it."""
STOPPABLE = " Stop ends it."
"""Ends the line of a compaction, which may stay as it is: nobody can change it once a person has stopped."""
REFERENCE = re.compile(r"\[\d")
"""The beginning of what Open WebUI draws as a button in an answer that has sources, and leaves out beyond the last."""
NO_FINISH = ',"finish_reason":null}]}\n\n'
AFTER_WORDS = "}" + NO_FINISH


class FrameEncoder:
    """Encodes one streamed answer: one id, model and time in all its frames, the role in the first only.

    `notices` chooses how the person learns what happens beside the answer; with `auto`, a client that
    `shows_text_only` also gets it as a line of text. Such clients are Obsidian's plugins, each of which reads streams
    in its own way: none of them may stumble over a comment, miss an error or wait for an end that does not come. Open
    WebUI reads the usage at the `finish_reason`, and shows the last status of an answer for ever, as it came: where a
    person stops the answer nobody can close that any more, so none is left open. Its browser reaches elbowroom's page
    at `page`.
    """

    def __init__(
        self,
        model: str,
        notices: Notices = "auto",
        *,
        wants_usage: bool = False,
        shows_text_only: bool = False,
        is_open_webui: bool = False,
        page: str = "",
    ) -> None:
        self._notices = notices
        self._shows_text_only = shows_text_only
        self._wants_usage = wants_usage
        self._is_open_webui = is_open_webui
        self._page = page
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        opened = to_json({**self._head, "choices": []})
        self._prefix = "data: " + opened.removesuffix("]}") + '{"index":0,"delta":'
        self._before_words = self._prefix + '{"content":'
        self._calls = 0
        self._open: Notice | None = None
        self._compacted: Notice | None = None
        self._conversation = ""
        self._beginning = self._frame('{"role":"assistant","content":""}')

    def events(self, events: Sequence[AnswerEvent]) -> bytes:
        """Return the frames for these events; none where the client is not to see them."""
        frames: list[str] = []
        for event in events:
            match event:
                case TextDelta():
                    frames.append(self._text(event))
                case ReasoningDelta():
                    frames.append(self._thought(event))
                case ToolCall():
                    frames.append(self._tool_call(event))
                case Notice():
                    frames.append(self._notice(event))
                case Compacted():
                    pass  # no chat asks for it
        said = "".join(frames)
        if said and self._beginning:
            said, self._beginning = self._beginning + said, ""
        return said.encode("ascii")

    def end(self, answer: Answer) -> bytes:
        """Return the last frames: the finish_reason, the usage where it is wanted, and [DONE].

        A notice that is open is closed first, here and in `failure`.
        """
        finish: dict[str, Any] = {
            **self._head,
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": answer.finish_reason}],
            **answer.engine,
        }
        frames, self._beginning = [self._beginning, self._closing() if self._open else ""], ""
        if self._compacted is not None:
            frames.append(self._source(answer, self._compacted))
        if self._is_open_webui and not self._wants_usage and answer.usage is not None:
            finish["usage"] = answer.usage
        frames.append(f"data: {to_json(finish)}\n\n")
        if self._wants_usage and answer.usage is not None:
            frames.append(f"data: {to_json({**self._head, 'choices': [], 'usage': answer.usage, **answer.engine})}\n\n")
        return "".join(frames).encode("ascii") + DONE

    def failure(self, error: ElbowroomError) -> bytes:
        """Return the last frames of a stream that has failed: the error, which clients raise or show.

        A client that shows nothing but text may know neither errors nor an end without [DONE]: it gets both in words.
        """
        closing, frame = self._closing(), _error_frame(error)
        if not self._shows_text_only:
            return closing.encode("ascii") + frame
        line = "" if self._notices in ("off", "comment") else self._line(error.message)
        said, self._beginning = self._beginning + closing + line, ""
        return said.encode("ascii") + frame + DONE

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the whole answer as a `chat.completion` object."""
        text = "".join(answer.text)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        if answer.reasoning:
            message["reasoning_content"] = message["reasoning"] = "".join(answer.reasoning)
        if answer.tool_calls:
            message |= {"content": text or None, "tool_calls": [call.as_openai() for call in answer.tool_calls]}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": _joined(answer.logprobs),
            "finish_reason": answer.finish_reason,
        }
        completion = {**self._head, "object": "chat.completion", "choices": [choice], **answer.engine}
        return completion if answer.usage is None else {**completion, "usage": answer.usage}

    def began(self, turn: TurnRecorder) -> None:
        """Take the turn that answers, whose conversation the source of an answer leads to."""
        self._conversation = turn.conversation

    def keep_alive(self) -> bytes:
        """Return a frame that fills a silence: a comment, or an empty text where a client takes every line for JSON."""
        if not self._shows_text_only:
            return KEEP_ALIVE
        said, self._beginning = self._beginning + self._frame('{"content":""}'), ""
        return said.encode("ascii")

    def _frame(self, delta: str) -> str:
        if self._shows_text_only:
            # Smart Connections cuts frames at every "data: ", in the middle of a text too.
            delta = delta.replace("data: ", r"data:\u0020")
        return self._prefix + delta + NO_FINISH

    def _text(self, event: TextDelta) -> str:
        if event.logprobs is None and not self._shows_text_only:  # nearly all frames
            return self._before_words + encode_basestring_ascii(event.text) + AFTER_WORDS
        delta = '{"content":' + encode_basestring_ascii(event.text) + "}"
        if event.logprobs is not None:
            delta += f',"logprobs":{to_json(event.logprobs)}'
        return self._frame(delta)

    def _thought(self, event: ReasoningDelta) -> str:
        """Return the frame of a thought, under both names that servers use and clients know one of."""
        thought = encode_basestring_ascii(event.text)
        return self._frame(f'{{"content":"","reasoning_content":{thought},"reasoning":{thought}}}')

    def _closing(self) -> str:
        return self._notice(replace(self._open, text="Stopped.", is_done=True)) if self._open else ""

    def _notice(self, notice: Notice) -> str:
        """Return a notice in the chosen form; some are never written as a line, as they would fill the text."""
        if notice.progress is None:
            self._open = None if notice.is_done else notice
        if notice.kind == "compacted":
            self._compacted = notice
        if self._notices in ("auto", "event"):
            line = self._line(notice.text) if self._shows_text_only and not notice.is_status_only else ""
            return self._statuses(notice) + line
        line, beside = told_of(notice, self._notices)
        return self._text(TextDelta(line)) if line else beside

    def _line(self, text: str) -> str:
        return self._text(TextDelta(notice_line(text)))

    def _statuses(self, notice: Notice) -> str:
        """Return the status of a notice; for Open WebUI an open one is closed at once."""
        if notice.is_done or not self._is_open_webui:
            return self._status(notice)
        end = STOPPABLE if notice.kind == "compacting" else ""
        if notice.progress is not None:
            return self._status(replace(notice, text=notice.text + end, is_done=True))
        closed, size = replace(notice, is_done=True), "" if notice.before is None else f" ({notice.before:,} tokens)"
        return self._status(notice) + self._status(replace(closed, text=notice.text + size + end))

    def _status(self, notice: Notice) -> str:
        """Return the chunk of a status."""
        told: dict[str, Any] = {}
        for key in ("before", "after", "seconds"):
            if (value := getattr(notice, key)) is not None:
                told[key] = value
        if notice.progress is not None:
            told |= {key: value for key, value in asdict(notice.progress).items() if value}
        if notice.passages:
            told["passages"] = [{"role": each.role, "text": each.text, "at": each.at} for each in notice.passages]
        hidden = {"hidden": True} if notice.is_hidden else {}
        data = {"description": notice.text, "done": notice.is_done, **hidden}
        return self._event("status", data, elbowroom={"kind": notice.kind, **told})

    def _source(self, answer: Answer, made: Notice) -> str:
        """Return the chunk from which Open WebUI makes a link to the last compaction of an answer, on the page.

        It is a source whose name is no address, as Open WebUI asks a foreign host for the icon of an address, here
        and in a status with links. The only text of it is the address: words would be added to the link. An answer
        that goes on after its calls, or that has references, would have them lead to the wrong place.
        """
        is_known = self._page and self._conversation and self._notices in ("auto", "event")
        if not is_known or answer.tool_calls or REFERENCE.search("".join(answer.text)):
            return ""
        freed = (made.before or 0) - (made.after or 0)
        url = f"{self._page}#/conversations/{quote(self._conversation)}?freed={freed}"
        name = f"elbowroom: {freed:,} tokens freed"
        # `url` is what 0.12.4 links, `source_url` what newer ones link without an icon.
        about = {"source": f"elbowroom {freed}", "name": name, "source_url": url}
        return self._event("source", {"source": {"name": name, "url": url}, "document": [url], "metadata": [about]})

    def _event(self, kind: str, data: Mapping[str, Any], **told: Any) -> str:
        """Return an empty choice, which any client can read, with an event that Open WebUI shows."""
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": None}
        chunk = {**self._head, "choices": [choice], "event": {"type": kind, "data": data}, **told}
        return f"data: {to_json(chunk)}\n\n"

    def _tool_call(self, call: ToolCall) -> str:
        index = self._calls
        self._calls += 1
        opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        arguments = {"index": index, "function": {"arguments": call.arguments}}
        return "".join(self._frame(to_json({"content": "", "tool_calls": [delta]})) for delta in (opening, arguments))


class PassedEncoder:
    """Hands on frames that are written already; `last` ends them, and `failure` returns the frame of an error."""

    def __init__(self, last: bytes = DONE, failure: Callable[[ElbowroomError], bytes] | None = None) -> None:
        self._last = last
        self.failure = failure or _error_frame

    def events(self, frames: Sequence[bytes]) -> bytes:
        """Return the frames as they are."""
        return b"".join(frames)

    def end(self, _: None) -> bytes:
        """Return the last frame."""
        return self._last


def _error_frame(error: ElbowroomError) -> bytes:
    """Return the frame from which OpenAI's clients raise an error."""
    return f"data: {to_json(error.as_openai())}\n\n".encode("ascii")


def told_of(notice: Notice, notices: Notices) -> tuple[str, str]:
    """Return a notice as a line of the text, and as a comment beside it, for clients that know no chunks of their own.

    At most one of the two is not empty.
    """
    if notices == "content":
        return "" if notice.is_status_only else notice_line(notice.text), ""
    return "", comment(notice.text) if notices in ("auto", "comment") else ""


def comment(text: str) -> str:
    """Return a comment frame, which no client takes for a part of the answer, on one line of ASCII."""
    return f": {' '.join(text.split()).encode('ascii', 'backslashreplace').decode()}\n\n"


def tokens_of(usage: Any, name: str) -> int:
    """Return a number of tokens from a usage object, or a part of one; 0 where it has none."""
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _joined(logprobs: list[Any]) -> Any:
    """Join the pieces' logprobs into one object; each piece has lists of tokens under the same keys."""
    if not logprobs:
        return None
    joined: dict[str, Any] = {}
    for piece in logprobs:
        for key, tokens in piece.items() if isinstance(piece, dict) else ():
            joined[key] = [*(joined.get(key) or []), *tokens] if isinstance(tokens, list) else joined.get(key)
    return joined


def to_json(value: Any) -> str:
    """Return a value as compact JSON in ASCII; infinite numbers and NaN, which JSON does not have, become null."""
    with suppress(TypeError, ValueError, OverflowError, RecursionError):
        if (written := msgspec.json.encode(value)).isascii():  # nearly always, and ten times as fast
            return written.decode("ascii")
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
