"""Reads JSON as language models write it: amid prose, with slips of syntax, cut off at the end.

Tolerated are comments, trailing and missing commas, single and typographic quotes, bare keys, Python's constants, raw
line breaks and unescaped quotes in strings, and unknown escapes. The time is linear in the length of the text, and
nesting is followed to a fixed depth only.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DEEPEST = 64
LONGEST_KEY = 400
MOST_RESTARTS = 4
START = re.compile(r"""(?:\[\s*+)?\{(?=\s*+["'“„‘\w/}])""")
BLANK = re.compile(r"(?:\s++|//[^\n]{0,200}+(?:\n|\Z)|/\*(?:[^*]|\*(?!/)){0,200}+\*/)*+")
NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][-+]?\d{1,3})?(?![\w.])")
BARE_WORD = re.compile(rf"\w[\w.-]{{0,60}}+(?={BLANK.pattern}[,\]}}])")
BARE_KEY = re.compile(r"\w{1,60}+(?=\s*+:)")
CONSTANTS = {"true": True, "false": False, "null": None, "none": None, "nan": None, "undefined": None}
CLOSERS = {'"': '"', "'": "'", "“": "”", "„": "“", "‘": "’"}
INNER = {closer: re.compile(rf"(?:[^\\{closer}]|\\.)*+", re.DOTALL) for closer in CLOSERS.values()}
NEXT_KEY = r"""(?:"(?:[^"\\]|\\.)*+"|'[^'\\]{1,60}+'|“[^”]{1,60}+”|„[^“]{1,60}+“)\s*+:"""
CUT_KEY = r"""["'“„](?:\w{0,60}+)["'“”]?\s*+\Z"""
AFTER_STRING = {
    "}": re.compile(
        rf"{BLANK.pattern}(?:\}}|\Z|,{BLANK.pattern}(?:{NEXT_KEY}|{CUT_KEY}|\w{{1,60}}+\s*+:|\}}|\Z)|{NEXT_KEY})",
        re.DOTALL,
    ),
    "]": re.compile(rf"{BLANK.pattern}(?:[\],]|\Z)"),
    ":": re.compile(rf"{BLANK.pattern}:"),
}
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?|.)", re.DOTALL)
ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/", "\n": "\n"}


@dataclass(frozen=True, slots=True)
class Found:
    """A value in a text; not `is_whole` where it was broken off, and then it holds what was whole before that."""

    value: Any
    is_whole: bool
    is_cut: bool
    """Whether it was broken off by the end of the text."""


def find_values(text: str) -> Iterator[Found]:
    """Yield each object, and each array that begins with an object, in order; never one within another."""
    at, restarts = 0, 0
    while start := START.search(text, at):
        reader = _Reader(text, start.start())
        value = reader.value(0, "")
        yield Found(value, not reader.is_broken, reader.is_broken and reader.at >= len(text))
        at = max(reader.at, start.end())
        if reader.open_string and restarts < MOST_RESTARTS:
            at, restarts = reader.open_string, restarts + 1


class _Broken(Exception):
    """The text is not JSON from here on, by any tolerance."""


class _Reader:
    """Reads one value from a place in a text; `at` is how far it got."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.is_broken = False
        self.open_string = 0
        """Where the string begins that never ends, if there is one."""

    def value(self, depth: int, closer: str) -> Any:
        """Read any value inside a container with this closer; a container holds what came before a break."""
        self._skip_blank()
        char = self.text[self.at : self.at + 1]
        if char in CLOSERS:
            return self._string(closer, len(self.text))
        if char in ("{", "[") and depth < DEEPEST:
            return self._object(depth + 1) if char == "{" else self._array(depth + 1)
        return self._literal()

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        try:
            while not self._closes("}"):
                key = self._key()
                found[key] = self.value(depth, "}")
                if self.is_broken:
                    break
        except _Broken:
            self.is_broken = True
        return found

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        try:
            while not self._closes("]"):
                found.append(self.value(depth, "]"))
                if self.is_broken:
                    break
        except _Broken:
            self.is_broken = True
        return found

    def _closes(self, closer: str) -> bool:
        """Pass over commas; then tell whether the container ends here, and pass its end."""
        self._skip_blank()
        while self.text.startswith(",", self.at):
            self.at += 1
            self._skip_blank()
        if not self.text.startswith(closer, self.at):
            return False
        self.at += 1
        return True

    def _key(self) -> str:
        if self.text[self.at : self.at + 1] in CLOSERS:
            key = self._string(":", self.at + LONGEST_KEY)
        elif bare := BARE_KEY.match(self.text, self.at):
            key, self.at = bare[0], bare.end()
        else:
            raise _Broken
        self._skip_blank()
        if not self.text.startswith(":", self.at):
            raise _Broken
        self.at += 1
        return key

    def _string(self, closer: str, limit: int) -> str:
        """Read to the first quote that JSON could go on after: a quote within the text is not one."""
        quote = CLOSERS[self.text[self.at]]
        start = end = self.at + 1
        while match := INNER[quote].match(self.text, end, limit):
            end = match.end()
            if self.text[end : end + 1] != quote:
                break
            if AFTER_STRING[closer].match(self.text, end + 1):
                self.at = end + 1
                return _unescaped(self.text[start:end])
            end += 1
        self.open_string = start
        self.at = min(end, limit)
        raise _Broken

    def _literal(self) -> Any:
        if number := NUMBER.match(self.text, self.at):
            self.at = number.end()
            return json.loads(number[0])
        if word := BARE_WORD.match(self.text, self.at):
            self.at = word.end()
            return CONSTANTS.get(word[0].casefold(), word[0])
        raise _Broken

    def _skip_blank(self) -> None:
        blank = BLANK.match(self.text, self.at)
        self.at = blank.end() if blank else self.at


def _unescaped(raw: str) -> str:
    """Resolve escapes; unknown ones, as in Windows paths, stay as they are, and halves of characters go."""
    if "\\" not in raw:
        return raw
    return ESCAPE.sub(_character, raw)


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 1:
        return ESCAPED.get(code, match[0])
    units = b"".join(int(unit, 16).to_bytes(2, "little") for unit in re.findall(r"u(....)", code))
    return units.decode("utf-16-le", "replace")
