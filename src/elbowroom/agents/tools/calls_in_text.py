"""Finds tool calls that a model has written into its text, since its server did not recognise them.

Each family of models has forms of its own, which servers turn into calls only where they know the model's template. A
call counts only where it names a tool that was offered; all else stays the text that it is.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from elbowroom.agents.broken_json import repaired_json
from elbowroom.agents.request import tool_name
from elbowroom.agents.tools.reader import CallAtTheEnd, NoCall, NotYet, Reader
from elbowroom.providers.base import ToolCallDelta

FIRST_INDEX: Final = 1000
"""The index of the first call found in the text; those that the server recognises have lower ones."""
MOST_HELD: Final = 2**20
"""Characters of a call that never ends, after which it is text."""
MAY_BEGIN: Final = re.compile(r"[<\[`]")
"""A piece without any of these signs begins no call, but at the beginning of a reply."""
MAY_END: Final = re.compile(r"[}>\]｜`]")
"""A piece without any of these signs ends no call."""
NAME: Final = r"[^\s<>{}\[\]\"'`:=|｜]{1,128}"
PARAMETER: Final = re.compile(r"\s*<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>", re.DOTALL)
ARGUMENT: Final = re.compile(r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)
HARMONY: Final = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>(?:commentary|analysis) to=(?:functions\.)?"
    rf"(?P<name>{NAME}) ?(?:<\|constrain\|>\w+)?<\|message\|>"
)
TO_HARMONY: Final = ("<|start|>assistant<|channel|>", "<|channel|>")
DEEPSEEK: Final = re.compile(
    rf"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?(?P<name>{NAME})(?:<｜tool▁sep｜>|\s*```json)\s*(?=\{{)"
)
BARE: Final = re.compile(r'\{\s*"(?:type"\s*:\s*"function"|name"\s*:\s*"(?P<name>[^"]*)")')
"""How an object begins that is a whole reply and may be a call."""
LONGEST_BARE: Final = 160
"""Characters after which that is known."""
FENCE: Final = "```"
LABEL: Final = re.compile(r"[\w-]*\s*")
"""What may stand between the beginning of a fence and a call in it."""
OPENERS: Final = (
    "<tool_call>",
    "<function=",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    *TO_HARMONY,
    FENCE,
)
OPENING: Final = re.compile("|".join(map(re.escape, OPENERS)))
Call = tuple[str, str]
"""The name of a tool and its arguments as JSON."""


class CallsInText:
    """Parts the text of one reply into what is to be shown and the calls in it, piece by piece.

    `tools` are those that the request offers. What may be the beginning of a call is held back until it is known.
    """

    def __init__(self, tools: Iterable[Mapping[str, Any]]) -> None:
        self._schemas = {name: tool["function"].get("parameters") for tool in tools if (name := tool_name(dict(tool)))}
        self._held = ""
        self._is_opened = False
        self._has_said = False
        self._is_after_call = False
        self._found = 0

    @property
    def is_inside(self) -> bool:
        """Tell whether text is held back that may be a call."""
        return bool(self._held)

    def feed(self, text: str) -> tuple[str, list[ToolCallDelta]]:
        """Take a piece; return what to show of it and of what was held back, and the calls that it ends."""
        if (
            not self._held and self._has_said and not self._is_after_call and not MAY_BEGIN.search(text)
        ):  # nearly always
            return text, []
        self._held += text
        if self._is_opened and not MAY_END.search(text):
            return "", []
        return self._parted(is_whole=False)

    def end(self) -> tuple[str, list[ToolCallDelta]]:
        """Return what is left at the end of the reply."""
        shown, calls = self._parted(is_whole=True)
        rest, self._held = self._held, ""
        return shown + rest, calls

    def _parted(self, *, is_whole: bool) -> tuple[str, list[ToolCallDelta]]:
        shown: list[str] = []
        calls: list[ToolCallDelta] = []
        while self._held:
            start = self._start(is_whole=is_whole)
            self._show(start, shown)
            if not self._held:
                break
            reader = Reader(self._held, is_whole)
            try:
                found = [self._known(call) for call in self._read(reader)]
            except NotYet as waiting:
                if len(self._held) <= MOST_HELD:
                    self._is_opened = not isinstance(waiting, CallAtTheEnd)
                    break
                found = []
            except NoCall:
                found = []
            self._is_opened = False
            if not found:
                self._show(1, shown)
                continue
            self._held = self._held[reader.at :]
            calls += [ToolCallDelta(FIRST_INDEX + self._found + number, *call) for number, call in enumerate(found)]
            self._found += len(found)
            self._is_after_call = True
        return "".join(shown), calls

    def _show(self, end: int, shown: list[str]) -> None:
        """Move the beginning of what is held to what is shown; white space after a call is of no use."""
        text, self._held = self._held[:end], self._held[end:]
        if self._is_after_call:
            text = text.lstrip()
        if text:
            shown.append(text)
            self._is_after_call = False
            self._has_said = self._has_said or bool(text.strip())

    def _start(self, *, is_whole: bool) -> int:
        """Return where in the held text a call may begin; its length where none does."""
        text = self._held
        if not self._has_said and text.lstrip().startswith("{"):
            return len(text) - len(text.lstrip())
        if found := OPENING.search(text):
            return found.start()
        if is_whole:
            return len(text)
        longest = max(map(len, OPENERS))
        for at in range(max(0, len(text) - longest), len(text)):
            if MAY_BEGIN.match(text, at) and any(opener.startswith(text[at:]) for opener in OPENERS):
                return at
        if not self._has_said and not text.strip():
            return 0
        return len(text)

    def _known(self, call: Call) -> Call:
        """Return a call of a tool that was offered; raises NoCall for others."""
        if call[0] not in self._schemas:
            raise NoCall
        return call

    def _read(self, reader: Reader) -> Sequence[Call]:
        """Return the calls at the beginning of the held text. Raises NotYet or NoCall."""
        for opener, read in FORMS.items():
            if reader.takes(opener):
                calls = read(reader, self._schemas)
                if not calls:
                    raise NoCall
                return calls
        if (bare := BARE.match(self._held)) and (bare["name"] is None or bare["name"] in self._schemas):
            return _bare(reader)
        if bare is None and len(self._held) < LONGEST_BARE and not reader.is_whole:
            raise NotYet
        raise NoCall


Schemas = Mapping[str, Any]


def _as_call(value: Any) -> Call:
    """Return a call that is written as an object with a name and arguments."""
    match value:
        case {"function": dict() as inner} | {"type": "function", "function": dict() as inner}:
            return _as_call(inner)
        case {"name": str() as name, "arguments": given} | {"name": str() as name, "parameters": given}:
            pass
        case {"type": "function", "function": str() as name, "parameters": given}:
            pass
        case {"name": str() as name}:
            given = {}
        case _:
            raise NoCall
    if isinstance(given, str):
        return name, given
    if not isinstance(given, dict):
        raise NoCall
    return name, json.dumps(given, ensure_ascii=False)


def _tagged(reader: Reader, schemas: Schemas) -> list[Call]:
    """Read what follows `<tool_call>`: JSON, a function with parameters, or a name with arguments."""
    reader.skip_space()
    if reader.text.startswith("{", reader.at):
        calls = [_as_call(_tagged_object(reader))]
    elif reader.takes("<function="):
        calls = _function(reader, schemas)
    else:
        return [_with_arguments(reader.up_to("</tool_call>"), schemas)]
    reader.takes_after_space("</tool_call>")
    return calls


def _tagged_object(reader: Reader) -> Any:
    """Take the object before `</tool_call>`; at the end of the reply also one that lacks its last brackets."""
    before = reader.at
    try:
        return reader.json()
    except NoCall:
        if not reader.is_whole:
            raise
        reader.at = before
        return repaired_json(reader.up_to("</tool_call>"))


def _with_arguments(inside: str, schemas: Schemas) -> Call:
    name = inside[: inside.find("<arg_key>")] if "<arg_key>" in inside else inside
    name = name.strip()
    given = {found["key"].strip(): found["value"] for found in ARGUMENT.finditer(inside)}
    return name, _typed(given, schemas.get(name))


def _function(reader: Reader, schemas: Schemas) -> list[Call]:
    """Read what follows `<function=`: a name, and parameters or an object up to the end of the function."""
    name = reader.up_to(">").strip()
    reader.skip_space()
    if reader.text.startswith("{", reader.at):
        given = reader.json()
        reader.takes_after_space("</function>")
        return [_as_call({"name": name, "arguments": given})]
    inside = reader.up_to("</function>")
    given = {found["key"].strip(): found["value"] for found in PARAMETER.finditer(inside)}
    return [(name, _typed(given, schemas.get(name)))]


def _typed(given: Mapping[str, str], schema: Any) -> str:
    """Return arguments that came as texts as JSON, each in the type that the tool's schema names for it."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    kinds = properties if isinstance(properties, Mapping) else {}
    return json.dumps({key: _value(text, kinds.get(key)) for key, text in given.items()}, ensure_ascii=False)


def _value(text: str, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _python_tag(reader: Reader, _: Schemas) -> list[Call]:
    calls = list(_objects(reader))
    if not reader.takes("<|eom_id|>"):
        reader.takes("<|eot_id|>")
    return calls


def _bare(reader: Reader) -> list[Call]:
    """Read objects that are the whole reply; text after them says that they are none."""
    calls = list(_objects(reader))
    _check_end(reader)
    return calls


def _check_end(reader: Reader) -> None:
    """Take white space up to the end of the reply. Raises NoCall where something else stands there."""
    if reader.text[reader.at :].strip():
        raise NoCall
    if not reader.is_whole:
        raise CallAtTheEnd
    reader.at = len(reader.text)


def _fenced(reader: Reader, schemas: Schemas) -> list[Call]:
    """Read a block of code at the end of the reply that holds a call, or a list of calls, and nothing else."""
    calls: list[Call] = []
    while True:
        reader.matched(LABEL, "")
        is_list = reader.takes("[")
        reader.skip_space()
        bare = BARE.match(reader.text, reader.at)
        if bare is not None and bare["name"] is not None and bare["name"] not in schemas:
            raise NoCall
        if bare is None:
            is_short = len(reader.text) - reader.at < LONGEST_BARE
            raise NotYet if is_short and not reader.is_whole and FENCE not in reader.text[reader.at :] else NoCall
        calls += _objects(reader, ",") if is_list else [_as_call(reader.json())]
        if (is_list and not reader.takes_after_space("]")) or not reader.takes_after_space(FENCE):
            raise NoCall
        if not reader.takes_after_space(FENCE):
            _check_end(reader)
            return calls


def _objects(reader: Reader, between: str = ";") -> Iterator[Call]:
    """Yield calls that are written as objects, one after the other."""
    while True:
        yield _as_call(reader.json())
        reader.takes_after_space(between)
        before = reader.at
        reader.skip_space()
        if not reader.text.startswith("{", reader.at):
            reader.at = before
            return


def _mistral(reader: Reader, _: Schemas) -> list[Call]:
    """Read what follows `[TOOL_CALLS]`: a list of objects, or names with arguments."""
    reader.skip_space()
    if reader.text.startswith("[", reader.at):
        listed = reader.json()
        return [_as_call(each) for each in listed]
    calls: list[Call] = []
    while True:
        found = reader.matched(MISTRAL, "{")
        calls.append(_as_call({"name": found["name"], "arguments": reader.json()}))
        if not reader.takes_after_space("[TOOL_CALLS]"):
            return calls


MISTRAL: Final = re.compile(rf"\s*(?P<name>{NAME})(?:\[CALL_ID\]{NAME})?(?:\[ARGS\])?\s*(?=\{{)")


def _deepseek(reader: Reader, _: Schemas) -> list[Call]:
    """Read calls with DeepSeek's signs; those that open and close the list may be missing."""
    reader.takes("<｜tool▁calls▁begin｜>")
    calls: list[Call] = []
    while True:
        reader.skip_space()
        found = reader.matched(DEEPSEEK, "{")
        calls.append(_as_call({"name": found["name"], "arguments": reader.json()}))
        reader.takes_after_space("```")
        reader.takes_after_space("<｜tool▁call▁end｜>")
        if reader.takes_after_space("<｜tool▁calls▁end｜>"):
            return calls
        before = reader.at
        reader.skip_space()
        if not reader.text.startswith("<｜tool▁call▁begin｜>", reader.at):
            if not reader.is_whole and "<｜tool▁call▁begin｜>".startswith(reader.text[reader.at :]):
                raise NotYet
            reader.at = before
            return calls


def _harmony(reader: Reader, _: Schemas) -> list[Call]:
    reader.at = 0
    found = reader.matched(HARMONY, "<|message|>")
    calls = [_as_call({"name": found["name"], "arguments": reader.json()})]
    reader.takes("<|call|>")
    return calls


def _from_the_start(read: Callable[[Reader, Schemas], list[Call]]) -> Callable[[Reader, Schemas], list[Call]]:
    """Return a reader that reads its opener again, since the opener is a part of each call."""

    def again(reader: Reader, schemas: Schemas) -> list[Call]:
        reader.at = 0
        return read(reader, schemas)

    return again


FORMS: Final[Mapping[str, Callable[[Reader, Schemas], list[Call]]]] = {
    "<tool_call>": _tagged,
    "<function=": _function,
    "<|python_tag|>": _python_tag,
    "[TOOL_CALLS]": _mistral,
    "<｜tool▁calls▁begin｜>": _from_the_start(_deepseek),
    "<｜tool▁call▁begin｜>": _from_the_start(_deepseek),
    **dict.fromkeys(TO_HARMONY, _from_the_start(_harmony)),
    FENCE: _fenced,
}
