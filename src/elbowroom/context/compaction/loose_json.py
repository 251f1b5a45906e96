"""Reads answers as language models write them: JSON amid prose, with slips of syntax or cut off, or tags and headings.

Tolerated in JSON are comments, trailing and missing commas, single and typographic quotes, bare keys, Python's
constants, raw line breaks and unescaped quotes in strings, and unknown escapes. The time is linear in the length of the
text, and nesting is followed to a fixed depth only.
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

OPENING = re.compile(r"\s*+(?:<(think|thinking|thought|reasoning|seed:think)>|\[(THINK)\]|◁(think)▷)", re.IGNORECASE)
CLOSING = re.compile(r"</(think|thinking|thought|reasoning|seed:think)>|\[/(THINK)\]|◁/(think)▷", re.IGNORECASE)
CHANNEL = re.compile(r"<\|channel\|>(\w{1,20})[^<]{0,40}<\|message\|>")
SPECIAL_TOKENS = re.compile(r"(?:<\|[\w ]{1,40}\|>|</s>|<(?:end_of_turn|eos)>)")
TAG = re.compile(r"<(/?)(retain|summary|keep)(?:\s[^<>]{0,100})?>", re.IGNORECASE)
NAMES = {
    "retain": "retain",
    "retained": "retain",
    "what must hold": "retain",
    "summary": "summary",
    "what happened": "summary",
    "zusammenfassung": "summary",
    "résumé": "summary",
    "resumen": "summary",
    "resumo": "summary",
    "riassunto": "summary",
    "要約": "summary",
    "总结": "summary",
    "摘要": "summary",
    "keep": "keep",
}
HEADING = re.compile(
    rf"^[ \t]{{0,3}}(?P<mark>#{{1,6}}[ \t]*|\*\*|__)?(?:\d[.)][ \t]*)?(?P<name>{'|'.join(sorted(NAMES, reverse=True))})"
    r"(?!\w)(?P<end>[ \t:：*_]{0,8})(?P<rest>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
SENTENCE_ENDS = tuple(".!?…。！？)]}>`\"'”*")


@dataclass(frozen=True, slots=True)
class Found:
    """A value in a text; one that is not `is_whole` was broken off, and holds what was complete before that."""

    value: Any
    is_whole: bool
    is_cut: bool
    """Whether it was broken off by the end of the text."""
    open_field: tuple[str, str] | None = None
    """The key of the string in which the text ends, and what there is of it."""


def find_values(text: str) -> Iterator[Found]:
    """Yield each object, and each array that begins with an object, in order; never one within another."""
    at, restarts = 0, 0
    while start := START.search(text, at):
        reader = _Reader(text, start.start())
        value = reader.value(0, "")
        is_cut = reader.is_broken and reader.at >= len(text)
        rest = _unescaped(text[reader.open_string :]) if is_cut and reader.open_string else None
        yield Found(value, not reader.is_broken, is_cut, None if rest is None else (reader.open_key, rest))
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
        self.open_key = ""

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
                key = self.open_key = self._key()
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


def spoken(text: str) -> str:
    """Return the answer without the thinking before it; an empty text where it is all thinking."""
    channels = list(CHANNEL.finditer(text))
    if channels:
        return _bare(text[channels[-1].end() :]) if channels[-1][1] == "final" else ""
    start = 0
    while opening := OPENING.match(text, start):
        closing = CLOSING.search(text, opening.end())
        if closing is None:
            return ""
        start = closing.end()
    rest = text[start:].lstrip()
    if rest.startswith(("{", "[", "```", "<", "#")):
        return _bare(rest)
    # Some templates open the thinking in the prompt, so that the answer holds only its end.
    orphans = list(CLOSING.finditer(rest))
    return _bare(rest[orphans[-1].end() :] if orphans else rest)


@dataclass(frozen=True, slots=True)
class Sections:
    """The parts of an answer that is no JSON; `is_cut` where the last one is open and stops in mid-sentence."""

    retain: str = ""
    summary: str = ""
    keep: str = ""
    is_cut: bool = False


def sections_of(text: str) -> Sections | None:
    """Return the texts in `<retain>`, `<summary>`, `<keep>`, else below headings of these names; None without any."""
    return _tagged(text) or _headed(text)


def _tagged(text: str) -> Sections | None:
    """Read tags; one that is not closed ends where another begins."""
    found: dict[str, list[str]] = {}
    open_name, start = "", 0
    for tag in TAG.finditer(text):
        closes, name = bool(tag[1]), tag[2].lower()
        if open_name and closes == (name == open_name):
            found.setdefault(open_name, []).append(text[start : tag.start()].strip())
            open_name = ""
        if not closes and not open_name:
            open_name, start = name, tag.end()
    rest = _bare(text[start:])
    if open_name and rest:
        found.setdefault(open_name, []).append(rest)
    is_cut = bool(open_name and rest) and not rest.endswith(SENTENCE_ENDS)
    return _sections(found, is_cut=is_cut)


def _headed(text: str) -> Sections | None:
    """Read headings: in Markdown, in bold, or a name with a colon."""
    found: dict[str, list[str]] = {}
    headings = [heading for heading in HEADING.finditer(text) if heading["mark"] or set(heading["end"]) & {":", "："}]
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    for heading, end in zip(headings, ends, strict=False):
        is_title = not set(heading["end"]) & set(":：*_")
        below = text[heading.end() : end]
        body = below if is_title else heading["rest"] + below
        found.setdefault(NAMES[heading["name"].lower()], []).append(_bare(body).removesuffix("```").strip())
    return _sections(found, is_cut=False)


def _sections(found: dict[str, list[str]], *, is_cut: bool) -> Sections | None:
    retain, summary, keep = ("\n".join(found.get(name, ())).strip() for name in ("retain", "summary", "keep"))
    return Sections(retain, summary, keep, is_cut) if retain or summary else None


def _bare(text: str) -> str:
    """Return the text without white space around it and the special tokens that some engines leave at its end."""
    text = text.strip()
    for _ in range(3):
        last = text.rfind("<")
        if last == -1 or not SPECIAL_TOKENS.fullmatch(text, last):
            break
        text = text[:last].rstrip()
    return text
