"""Reads answers as language models write them: JSON amid prose, with slips of syntax or cut off, or tags and headings.

JSON that is right is read as it is. What is wrong with any other a library mends: comments, commas too many or too few,
quotes of any kind, bare keys, Python's constants, raw line breaks and quotes in strings, missing brackets.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

DEEPEST: Final = 64
"""Levels of JSON that are read; deeper ones would take the library long, and go beyond Python's own stack."""
MOST_BROKEN: Final = 16
"""Values that are found broken, after which no sound one is looked for."""
START = re.compile(r"""(?:\[\s*+)?\{(?=\s*+["'“„‘\w/}])""")
DECODER = json.JSONDecoder(strict=False)
STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
DEPTH_OF: Final = {"[": 1, "{": 1, "]": -1, "}": -1}
END: Final = "\ue000"
"""Stands behind a text while it is read, more often than in it: the string with so many is that in which it ends."""
ESCAPED_END: Final = ascii(END).strip("'")
IN_APOSTROPHES: Final = re.compile(r"[\[\s]*+\{\s*+'")
DOUBLED: Final = re.compile(r"(?<=\w)''(?=\w)")
"""An apostrophe in a string between apostrophes, as some languages write it."""

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
    """Yield each object, and each array that begins with an object, in order; what is broken comes last, as one.

    What is nested deeper than `DEEPEST` is left out.
    """
    at, broken = 0, list[int]()
    while len(broken) < MOST_BROKEN and (start := START.search(text, at)):
        try:
            value, at = DECODER.raw_decode(text, start.start())
            if not _is_too_deep(text[start.start() : at]):
                yield Found(_sendable(value), is_whole=True, is_cut=False)
        except (ValueError, RecursionError):
            at = start.start() + 1
            broken.append(start.start())
    if broken:
        yield from _mended(text[broken[0] :])


def _mended(text: str) -> Iterator[Found]:
    """Yield what broken JSON means, without the string in which it ends, if it does."""
    if _is_too_deep(text):
        return
    if IN_APOSTROPHES.match(text):
        text = DOUBLED.sub("'", text)
    from json_repair import repair_json

    with suppress(ValueError, RecursionError):
        end = END * (1 + text.count(END) + text.casefold().count(ESCAPED_END))
        value = _sendable(repair_json(text + end, return_objects=True, skip_json_loads=True))
        is_cut = depths_in(text)[-1:] > [0]
        yield Found(_without_end(value, end), not is_cut, is_cut, _open_field(value, end))


def _is_too_deep(text: str) -> bool:
    return max(depths_in(text), default=0) > DEEPEST


def depths_in(text: str) -> list[int]:
    """Return how deep the values of JSON, sound or broken, are nested after each of its strings and brackets."""
    return list(accumulate(DEPTH_OF.get(found[0], 0) for found in STRING_OR_BRACKET.finditer(text)))


def _without_end(value: Any, end: str) -> Any:
    if isinstance(value, dict):
        items = value.items()
        return {key: _without_end(item, end) for key, item in items if end not in key and not _is_open(item, end)}
    return [_without_end(item, end) for item in value if not _is_open(item, end)] if isinstance(value, list) else value


def _open_field(value: Any, end: str, key: str = "") -> tuple[str, str] | None:
    """Return the key of the string in which a text ends, and what there is of it."""
    if _is_open(value, end):
        return key, value.rpartition(end)[0]
    items = (
        value.items() if isinstance(value, dict) else ((key, each) for each in value) if isinstance(value, list) else ()
    )
    return next((found for name, item in items if (found := _open_field(item, end, name)) is not None), None)


def _is_open(value: Any, end: str) -> bool:
    return isinstance(value, str) and end in value


def _sendable(value: Any) -> Any:
    """Return a value without halves of characters, which no other program could read."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item) for key, item in value.items()}
    return [_sendable(item) for item in value] if isinstance(value, list) else value


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
