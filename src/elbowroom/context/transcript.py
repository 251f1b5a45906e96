"""Messages and the groups that must not be split: their text, their parts, their calls."""

import json
import math
import operator
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

Message = Mapping[str, Any]
"""An OpenAI chat message. It is never changed; a copy is."""
CallState = Literal["pending", "running", "completed", "error"]
"""How far a tool's call is: it waits for the client, runs or ran when its turn was cut, or has a result."""

MARK = "elbowroom_summary"
"""The key by which a message that is kept outside of this process says that it is a summary of ours."""
SYSTEM_ROLES = frozenset({"system", "developer"})
Kind = Literal["system", "user", "assistant", "tools"]

BLANK_LINE = "\n\n"

KINDS = {"image_url": "image", "input_image": "image", "input_audio": "audio", "input_file": "file"}

MALFORMED = "malformed_arguments"
"""The key under which arguments that are no JSON object are kept as text."""

UNKNOWN_TOOL = "unknown_tool"


class Summary(dict[str, Any]):
    """The message that a compaction has put in place of others: known by what it is, whatever anybody writes."""


def kept_form(message: Message) -> dict[str, Any]:
    """Return a message as it is kept where nobody else writes: a summary has a mark, which no other message has."""
    plain = {name: value for name, value in message.items() if name != MARK}
    return {**plain, MARK: True} if isinstance(message, Summary) else plain


def out_of_kept_form(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message that was kept, as it was."""
    return Summary(kept_form(message)) if message.get(MARK) is True else message


@dataclass(frozen=True, slots=True)
class Group:
    """An atom of a conversation: one message, or an assistant message with all its tool calls and their results."""

    messages: tuple[Message, ...]
    is_pinned: bool = False
    """A person wants it never to be summarised."""
    note: str = ""
    """What came back unasked with the person's message, at its end: not the person's words."""
    unshortened: tuple[Message, ...] = ()
    """Its messages before results in them were shortened; empty where none was."""

    @property
    def kind(self) -> Kind:
        """Return the kind of the group: `tools` for an assistant message with calls, else by its role."""
        first = self.messages[0]
        role = first.get("role")
        if role in SYSTEM_ROLES:
            return "system"
        if role == "assistant":
            return "tools" if first.get("tool_calls") else "assistant"
        return "user"

    @property
    def text(self) -> str:
        """Return all text in the group, messages separated by line breaks, without what came back unasked."""
        said = "\n".join(filter(None, (text_of(message) for message in self.messages)))
        return said.removesuffix(self.note).rstrip() if self.note else said


@dataclass(frozen=True, slots=True)
class Transcript:
    """A whole conversation, in order."""

    groups: tuple[Group, ...]

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "Transcript":
        """Group messages; results stand right after their calls, as `repair` leaves them."""
        groups: list[list[Message]] = []
        for message in messages:
            if message.get("role") == "tool" and groups and groups[-1][0].get("tool_calls"):
                groups[-1].append(message)
            else:
                groups.append([message])
        return cls(tuple(Group(tuple(group)) for group in groups))

    @property
    def messages(self) -> list[Message]:
        """Return the messages of all groups, in order."""
        return messages_of(self.groups)


def messages_of(groups: Sequence[Group]) -> list[Message]:
    """Return the messages of these groups, in order."""
    return [message for group in groups for message in group.messages]


def text_of(message: Message) -> str:
    """Return the text of a message: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def is_blank(content: object) -> bool:
    """Tell whether content says nothing: null, white space, or text parts of it; any other part says something."""
    if isinstance(content, str):
        return not content.strip()
    if not isinstance(content, list):
        return True
    return all(is_text(part) and is_blank(text_in(part)) for part in content)


def is_text(part: object) -> bool:
    """Tell whether a part of content is text."""
    return isinstance(part, str) or (isinstance(part, Mapping) and isinstance(part.get("text"), str))


def text_in(part: object) -> str:
    """Return the text of a text part."""
    return str(part["text"]) if isinstance(part, Mapping) else str(part)


def parts_of(content: object) -> list[Any]:
    """Return content as a list of parts, which is empty for empty content."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else []


def joined(first: object, second: object) -> str | list[Any]:
    """Join the contents of two messages with a blank line between their texts; media stay parts."""
    if not isinstance(first, list) and not isinstance(second, list):
        return BLANK_LINE.join(text for text in (first, second) if isinstance(text, str) and text)
    before, after = parts_of(first), parts_of(second)
    if before and after and is_text(before[-1]) and is_text(after[0]):
        text = BLANK_LINE.join(filter(None, (text_in(before.pop()), text_in(after.pop(0)))))
        before.append({"type": "text", "text": text})
    return before + after


def flattened(content: object) -> object:
    """Return content of text parts alone as one text, a line each; any other content as it is."""
    if isinstance(content, list) and all(is_text(part) for part in content):
        return "\n".join(text_in(part) for part in content)
    return content


def with_text(message: Message, text: str) -> Message:
    """Return a message with another text; its parts that are no text stay."""
    media = [part for part in parts_of(message.get("content")) if not is_text(part)]
    return with_content(message, [*parts_of(text), *media] if media else text)


def with_content(message: Message, content: Any) -> Message:
    """Return a message with this content, the same object where it has it already; a summary stays one."""
    if content is message.get("content"):
        return message
    changed = {**message, "content": content}
    return Summary(changed) if isinstance(message, Summary) else changed


def as_dicts(messages: Iterable[Message]) -> tuple[dict[str, Any], ...]:
    """Return messages as dictionaries, which nearly all are; a summary stays one."""
    return tuple(message if isinstance(message, dict) else dict(message) for message in messages)


def merged(first: Message, second: Message) -> Message:
    """Return both messages as one; a key other than the texts has the second's value where both have it."""
    message = {**first, **second, "content": joined(first.get("content"), second.get("content"))}
    thoughts = [message.get("reasoning_content") for message in (first, second)]
    if any(thoughts):
        message["reasoning_content"] = BLANK_LINE.join(str(thought) for thought in thoughts if thought)
    return message


def readable(message: Message) -> str:
    """Return the text of a message, with the name of each part that is no text in its place, as "[image]"."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, (text_in(part) if is_text(part) else _named(part) for part in parts_of(content))))


def _named(part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return f"[{KINDS.get(kind, kind)}]" if isinstance(kind, str) else ""


def called(message: Message) -> Iterator[tuple[str, str]]:
    """Yield name and arguments of the calls in a message, as text whatever they are."""
    for call in message.get("tool_calls") or ():
        function: Any = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            arguments = function.get("arguments") or ""
            as_text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            yield str(function.get("name") or "a tool"), as_text


def written(message: Message, text: str | None = None) -> str:
    """Return a message as a reader sees it: the role, its text or another one, and calls with their arguments."""
    told = called(message) if message.get("tool_calls") else ()
    calls = "".join([f"\n(calls {name} with {arguments})" for name, arguments in told])
    return f"{message.get('role')}: {readable(message) if text is None else text}{calls}"


def written_size(message: Message) -> int:
    """Return how many bytes a message has as a reader sees it; its text, or its parts, are not copied for that."""
    content = message.get("content")
    if isinstance(content, str):
        return size_in_bytes(content) + size_in_bytes(written(message, ""))
    if not isinstance(content, list):
        return size_in_bytes(written(message))
    parts = sum(size_in_bytes(readable({"content": [part]})) + 1 for part in content)
    return size_in_bytes(written(message, "")) - 1 + parts


def written_out(group: Group) -> str:
    """Return a group's messages, written out."""
    return "\n".join(written(message) for message in group.messages)


def calls_of(message: Message) -> list[Mapping[str, Any]]:
    """Return the tool calls of an assistant message; none for any other."""
    calls = message.get("tool_calls")
    if message.get("role") != "assistant" or not isinstance(calls, list | tuple):
        return []
    return [call for call in calls if isinstance(call, Mapping)]


def says_nothing(message: Message) -> bool:
    """Tell whether a message is an answer without a word or a call."""
    return message.get("role") == "assistant" and is_blank(message.get("content")) and not calls_of(message)


@dataclass(frozen=True, slots=True)
class Use:
    """A `call` of a tool, and the `text` of the result right after its message, empty where there is none.

    `name` is the tool's, `arguments` are text whatever they are. `caller` and `result` are the places of their
    messages, `position` is that of the call in its own.
    """

    call: Mapping[str, Any]
    name: str
    arguments: str
    caller: int
    position: int
    result: int | None
    text: str


def uses_in(messages: Sequence[Message]) -> Iterator[Use]:
    """Yield the calls of functions in messages, from old to new.

    Ids of clients may be anything: calls of one message with the same id have its results in their order.
    """
    for caller, message in enumerate(messages):
        if not (calls := calls_of(message)):
            continue
        results: dict[str, deque[int]] = {}
        at = caller + 1
        while at < len(messages) and messages[at].get("role") == "tool":
            results.setdefault(str(messages[at].get("tool_call_id")), deque()).append(at)
            at += 1
        for position, call in enumerate(calls):
            places = results.get(str(call.get("id")))
            result = places.popleft() if places else None
            if isinstance(function := call.get("function"), Mapping):
                name, arguments = str(function.get("name") or UNKNOWN_TOOL), function.get("arguments") or ""
                arguments = arguments if isinstance(arguments, str) else as_json(arguments)
                text = "" if result is None else text_of(messages[result])
                yield Use(call, name, arguments, caller, position, result, text)


def with_safe_calls(message: Message) -> Message:
    """Return the message if its calls are sound, else a copy with sound calls, or without an empty list of calls."""
    if "tool_calls" not in message:
        return message
    calls = calls_of(message)
    if not calls:
        return without_calls(message)
    return with_calls(message, list(map(_safe_call, calls)))


def without_calls(message: Message) -> dict[str, Any]:
    """Return the message without its calls."""
    return {key: value for key, value in message.items() if key != "tool_calls"}


def with_calls(message: Message, calls: list[Mapping[str, Any]]) -> Message:
    """Return the message with these calls; the same object where it has them already."""
    present = message["tool_calls"]
    if len(present) == len(calls) and all(map(operator.is_, present, calls)):
        return message
    return {**message, "tool_calls": calls}


def with_arguments(message: Message, position: int, arguments: str) -> Message:
    """Return the message with other arguments of the call at a position."""
    calls = calls_of(message)
    function = {**calls[position]["function"], "arguments": arguments}
    calls[position] = {**calls[position], "function": function}
    return with_calls(message, calls)


def _safe_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the call itself if name and arguments are sound, else a copy that keeps all of their text."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        function = {}
    name, arguments = function.get("name"), function.get("arguments")
    sound_name = name if isinstance(name, str) and name else UNKNOWN_TOOL
    sound_arguments = _safe_arguments(arguments)
    if sound_name == name and sound_arguments == arguments:
        return call
    return {"type": "function", **call, "function": {**function, "name": sound_name, "arguments": sound_arguments}}


def _safe_arguments(arguments: object) -> str:
    """Return arguments as the text of a JSON object, unchanged where they are that already.

    No arguments are `{}`, and a mapping is written as JSON. Any other text is kept under the key `MALFORMED`.
    """
    if isinstance(arguments, str):
        if is_json_object(arguments):
            return arguments
        return as_json({MALFORMED: arguments}) if arguments.strip() else "{}"
    if arguments is None:
        return "{}"
    text = as_json(arguments)
    return text if is_json_object(text) else as_json({MALFORMED: text})


def as_json(value: object) -> str:
    """Write a value as JSON, with characters beyond ASCII as they are."""
    return json.dumps(value, ensure_ascii=False, default=str)


def object_in(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None for any other text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_json_object(text: str) -> bool:
    """Tell whether every JSON parser takes the text for an object; Python's own is more generous than most."""
    try:
        value = STRICT.decode(text)
        (as_json(value) if "\\u" in text else text).encode("utf-8")  # half a character can hide in an escape
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def finite(text: str) -> float:
    """Read a number; raises ValueError for one that is too large for a float."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=finite)
"""Reads what every JSON parser reads."""


def size_in_bytes(text: str) -> int:
    """Return how many bytes a text has in UTF-8; it may contain lone surrogates."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def uses_tools(messages: Iterable[Message]) -> bool:
    """Tell whether a history has calls or results of tools."""
    return any("tool_calls" in message or message.get("role") == "tool" for message in messages)
