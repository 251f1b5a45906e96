"""Puts together what an upstream splits over the chunks of one answer: pieces of tool calls, halves of characters."""

import json
from typing import Any, Final

from elbowroom.providers.base import ToolCallDelta

FIRST_HALVES: Final = ("\ud800", "\udbff")
"""The first and the last half character that another half has to follow."""


class Halves:
    """Joins characters whose halves come in two pieces of one text, and replaces halves that stay alone."""

    def __init__(self) -> None:
        self.held = ""

    def joined(self, text: str) -> str:
        """Return a piece of the text; half a character at its end waits for the next piece."""
        text, self.held = self.held + text, ""
        if text and FIRST_HALVES[0] <= text[-1] <= FIRST_HALVES[1]:
            text, self.held = text[:-1], text[-1]
        return whole_characters(text)

    def rest(self) -> str:
        """Return what stands for a half that has waited in vain."""
        held, self.held = self.held, ""
        return whole_characters(held)


def whole_characters(text: str) -> str:
    """Join the halves of split characters, and replace halves without the other half, which no encoder takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class CallPieces:
    """Reads the pieces of the tool calls in one answer, and finds the number of a call that a piece does not give."""

    def __init__(self) -> None:
        self._latest = 0
        self._by_id: dict[str, int] = {}

    def read(self, tool_calls: Any, *, is_whole: bool = False) -> list[ToolCallDelta]:
        """Return the pieces in a delta's `tool_calls`, or the calls of a whole answer; what says nothing is none."""
        deltas = []
        for position, call in enumerate(tool_calls if isinstance(tool_calls, list) else []):
            if not isinstance(call, dict):
                continue
            function = call["function"] if isinstance(call.get("function"), dict) else {}
            name = function.get("name") if isinstance(function.get("name"), str) else None
            arguments, call_id = _arguments(function.get("arguments")), call.get("id")
            if name or arguments or call_id:
                self._latest = position if is_whole else self._index_of(call, position, begins=bool(name))
                deltas.append(ToolCallDelta(self._latest, whole_characters(name or "") or None, arguments))
        return deltas

    def _index_of(self, call: dict[str, Any], position: int, *, begins: bool) -> int:
        """Return the number that a piece gives, else that of its id, else its place; a bare piece goes on."""
        index, call_id = call.get("index"), call.get("id")
        if not isinstance(index, int):
            if isinstance(call_id, str) and call_id in self._by_id:
                return self._by_id[call_id]
            index = position if begins or call_id or position else self._latest
            while begins and call_id and index in self._by_id.values():
                index += 1
        if isinstance(call_id, str) and call_id:
            self._by_id[call_id] = index
        return index


def _arguments(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
