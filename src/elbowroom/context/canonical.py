"""The form of a client's message: two messages with the same form are the same message.

Clients send the whole history each time, but not unchanged: answers come back stripped, with or without reasoning, with
other ids, and a question loses the files that stood around it. None of this is part of a form.
"""

import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from elbowroom.caches import Recent
from elbowroom.context.outputs import utf8
from elbowroom.context.transcript import Message, calls_of, finite

VERSION = 1
"""The version of the forms; a change of what counts needs another number."""

FILE_TEMPLATE, CONTEXT_START, CONTEXT_END = "### Task:", "<context>", "</context>"
"""How Open WebUI's template for files begins, and the marks around the files: the question comes after them."""

THOUGHTS_START, THOUGHTS_END = "<think>", "</think>"
"""The marks around thoughts that engines write into an answer's text; clients do not send those back."""

TAGS = {"user": b"u", "assistant": b"a", "tool": b"t"}
LARGEST_EXACT = 2**53
LONG_URL, PIECE, DIGESTS_KEPT = 10_000, 2**18, 1000
_DIGESTS = Recent[tuple[int, int, str], str | None]("image_digests", DIGESTS_KEPT)
URL_SAFE = str.maketrans("-_", "+/", " \t\r\n")

Place = tuple[int, int]
"""Where a tool call stands: the number of its message in the chain, and its position there."""


def form_of(message: Message, answered: Place | None = None) -> tuple[bytes, str]:
    """Return the form of a message that is no system message; `answered` is the call that a tool result answers.

    The form is of two parts, one after the other. No two forms are equal by chance or by imitation: messages that
    differ in role, text, media, calls or in the call answered have different forms.
    """
    role, content = message.get("role"), message.get("content")
    if type(content) is str:  # nearly all messages are plain text
        if role == "user":
            return b"u", question_in(content)
        if role == "assistant" and not message.get("tool_calls") and not message.get("function_call"):
            return b"a", without_thoughts(content).rstrip()
    parts, calls = _parts(role, content), _calls(message)
    tag = TAGS.get(role) if isinstance(role, str) else None
    if tag is None or calls or len(parts) > 1 or not all(isinstance(part, str) for part in parts):
        return b"j", json_form([role, parts, calls, answered])
    place = b"%d,%d:" % answered if answered else b":"
    return tag + (place if role == "tool" else b""), "".join(parts)


def read_ahead(messages: Iterable[Any]) -> None:
    """Hash the texts and images in messages of any kind: both are remembered, and take no time afterwards."""
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in _parts("", content) if isinstance(content, str | list) else ():
            hash(part if isinstance(part, str) else None)


def question_in(text: str) -> str:
    """Return the question in a user's text, without the files that Open WebUI puts before the last one."""
    if not text.startswith(FILE_TEMPLATE):
        return text
    before, _, after = text.rpartition(CONTEXT_END)
    question = after.lstrip("\r\n")
    return question if CONTEXT_START in before and question.strip() else text


def without_thoughts(text: str) -> str:
    """Return an answer without the thoughts at its beginning and the white space after them."""
    text = text.lstrip()
    if not text.startswith(THOUGHTS_START):
        return text
    _, end, said = text.partition(THOUGHTS_END)
    return said.lstrip() if end else text


def json_form(value: object) -> str:
    """Return a JSON value as ASCII that is equal for equal values, whatever the order of their keys."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    except RecursionError:
        return " ".join(_pieces(value))


class OpenCalls:
    """The tool calls of a conversation without a result so far."""

    def __init__(self) -> None:
        self._all: list[Place] = []
        self._by_id: dict[str, list[Place]] = {}
        self._answered: set[Place] = set()

    def add(self, number: int, message: Message) -> None:
        """Take in the calls of the message with this number in the chain."""
        calls = calls_of(message)
        for position in range(len(calls) - 1, -1, -1):  # the first call ends on top
            self._all.append((number, position))
            call_id = calls[position].get("id")
            if isinstance(call_id, str) and call_id:
                self._by_id.setdefault(call_id, []).append((number, position))

    def answered_by(self, result: Message) -> Place | None:
        """Return the call that a result answers: the first open one of its id in the latest message that has one.

        A result without an id answers the first open call of the latest message that has one.
        """
        call_id = result.get("tool_call_id")
        calls = self._by_id.get(call_id, []) if isinstance(call_id, str) and call_id else self._all
        while calls and calls[-1] in self._answered:
            calls.pop()
        return calls[-1] if calls else None

    def close(self, place: Place) -> None:
        """Note that a call has been answered."""
        self._answered.add(place)


def _parts(role: object, content: object) -> list[Any]:
    """Return content as a list of texts (strings) and other things (lists that begin with their kind)."""
    if content is None or isinstance(content, str):
        parts: list[Any] = [content or ""]
    elif isinstance(content, list | tuple):
        parts = [_part(part) for part in content]
    else:
        parts = [["content", content]]
    if role == "assistant":
        parts = _stripped(parts)
    elif role == "user":
        parts = [question_in(part) if isinstance(part, str) else part for part in parts]
    return [] if parts == [""] else parts


def _part(part: object) -> Any:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        kind, text = part.get("type", "text"), part.get("text")
        if kind == "text" and isinstance(text, str):
            return text
        if kind == "image_url":
            return _image(part)
    return ["part", part]


def _image(part: Mapping[str, Any]) -> list[Any]:
    """Return an image by a hash of its bytes where it holds them, else by its address."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else image
    if not isinstance(url, str):
        return ["part", part]
    digest = _digest_of_data(url)
    return ["url", url] if digest is None else ["image", digest]


def _digest_of_data(url: str) -> str | None:
    """Return a hash of the bytes that a data URL holds, None if it is none or a broken one; kept for long ones."""
    comma = url.find(",")
    if comma < 0 or url[:5].lower() != "data:":
        return None
    if not url[:comma].lower().endswith(";base64"):
        return _digest(unquote_to_bytes(utf8(url[comma + 1 :])))
    if len(url) < LONG_URL:
        return _digest_of_base64(url, comma + 1)
    mark = len(url), hash(url), url[-64:]
    if (known := _DIGESTS.get(mark)) is None:
        known = _digest_of_base64(url, comma + 1)
        _DIGESTS.put(mark, known)
    return known


def _digest_of_base64(url: str, start: int) -> str | None:
    """Return a hash of the bytes that are written from this place on, decoded piece by piece."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for at in range(start, len(url), PIECE):
            digest.update(binascii.a2b_base64(url[at : at + PIECE], strict_mode=True))
    except ValueError:
        data = _loosely_decoded(url[start:])
        return None if data is None else _digest(data)
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _loosely_decoded(data: str) -> bytes | None:
    """Decode base64 with line breaks, in the alphabet for URLs, without padding or with its signs escaped."""
    try:
        letters = unquote_to_bytes(data).decode("ascii").translate(URL_SAFE).rstrip("=")
        return binascii.a2b_base64(letters + "=" * (-len(letters) % 4), strict_mode=True)
    except ValueError:
        return None


def _stripped(parts: Sequence[Any]) -> list[Any]:
    """Return parts without the white space at both ends of the whole, and without thoughts at its beginning."""
    stripped = list(parts)
    if stripped and isinstance(stripped[0], str):
        stripped[0] = without_thoughts(stripped[0])
    if stripped and isinstance(stripped[-1], str):
        stripped[-1] = stripped[-1].rstrip()
    return stripped


def _calls(message: Message) -> list[Any]:
    """Return the calls of a message in order: names and arguments, but no ids."""
    calls = [_call(call) for call in calls_of(message)]
    legacy = message.get("function_call")
    return [*calls, ["legacy", *_function(legacy)]] if isinstance(legacy, Mapping) else calls


def _call(call: Mapping[str, Any]) -> list[Any]:
    function = call.get("function")
    if isinstance(function, Mapping):
        return _function(function)
    return ["other", {key: value for key, value in call.items() if key not in ("id", "index")}]


def _function(function: Mapping[str, Any]) -> list[Any]:
    """Return name and arguments; arguments that are no JSON count as plain text."""
    name, arguments = function.get("name"), function.get("arguments")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, str):
        return [name, "json", arguments]
    text = arguments.strip()
    try:
        return [name, "json", json.loads(text, parse_float=_number) if text else {}]
    except (ValueError, RecursionError):
        return [name, "text", text]


def _number(text: str) -> float:
    """Read a number so that 1.0 and 1 are equal, as they are to clients that read and write JSON once more."""
    number = finite(text)
    return int(number) if number.is_integer() and abs(number) < LARGEST_EXACT else number


def _pieces(value: object) -> Iterator[str]:
    """Yield the pieces of a value, each list and object led by its length; depth has no limit."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            yield f"object {len(value)}"
            left.extend(item for key in sorted(value, key=str, reverse=True) for item in (value[key], key))
        elif isinstance(value, list | tuple):
            yield f"list {len(value)}"
            left.extend(value)
        else:
            yield json.dumps(value, default=str)
