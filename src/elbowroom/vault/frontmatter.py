"""Reads a note's frontmatter, and changes one key of it without changing another line. Pure.

It understands what Obsidian writes: texts, numbers, lists in both forms. Other YAML stays as it is.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from elbowroom.vault.names import VaultError, fold
from elbowroom.vault.note import Note

KEY: Final = re.compile(
    r"""(?:"([^"]+)"|'([^']+)'|([^\s#"'\[\]{},&*!|>%@`-][^:]*|-[^\s:][^:]*)):(?=[ \t]|$)[ \t]*(.*)$"""
)
ITEM: Final = re.compile(r"[ \t]*-(?:[ \t]+(.*))?$")
PLAIN: Final = re.compile(r"[^\s#&*!|>'\"%@`\[\]{},?:-][^#:\n]*")
LIKE_ANOTHER_TYPE: Final = re.compile(r"(?:true|false|yes|no|on|off|null|~|[-+.\d][\d._eE+:xo-]*)", re.IGNORECASE)
QUOTED: Final = re.compile(r"""\[?(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""")
NOT_A_TEXT: Final = ("|", ">", "&", "*", "!", "{")
"""What a value begins with that is a block of text, an anchor, a type or a mapping."""
Value = str | list[str]


def read_frontmatter(note: Note) -> dict[str, Value]:
    """Return the top-level keys with their values: texts, or lists of texts."""
    found: dict[str, Value] = {}
    for key, start, end in _spans(note):
        match = KEY.match(note.bare[start])
        rest = match[4] if match else ""
        items = [item[1] or "" for line in note.bare[start + 1 : end] if (item := ITEM.match(line))]
        if _without_comment(rest):
            found[key] = _value(_without_comment(rest))
        elif items:
            found[key] = [_scalar(_without_comment(item)) for item in items]
        else:
            found[key] = " ".join(line.strip() for line in note.bare[start + 1 : end]).strip()
    return found


def texts(value: Value | None) -> list[str]:
    """Return a value as a list of texts; a text is split at commas, as Obsidian does with tags."""
    if value is None:
        return []
    parts = value if isinstance(value, list) else re.split(r"[,\s]+", value)
    return [part for part in parts if part]


def with_key(note: Note, key: str, value: Value) -> str:
    """Return the note's text with a key set; every other line stays. Missing frontmatter is added.

    Raises VaultError for a text that cannot be a key.
    """
    if not key or key != key.strip() or not PLAIN.fullmatch(key):
        raise VaultError(f"{key!r} cannot be a key of the frontmatter: letters, digits, blanks and dashes can.")
    key = next((found for found, _, _ in _spans(note) if fold(found) == fold(key)), key)
    end = note.line_end
    new = [line + end for line in _written(key, value)]
    if not note.frontmatter:
        mark = "\ufeff" if note.lines and note.lines[0].startswith("\ufeff") else ""
        body = "".join(note.lines).removeprefix(mark)
        return "".join([mark, f"---{end}", *new, f"---{end}", body])
    span = _span(note, key)
    start, stop = span or (note.frontmatter - 1, note.frontmatter - 1)
    return "".join([*note.lines[:start], *new, *note.lines[stop:]])


def without_key(note: Note, key: str) -> str:
    """Return the note's text without a key; raises VaultError if the note does not have it."""
    start, stop = _span(note, key) or _no_key(note, key)
    return "".join([*note.lines[:start], *note.lines[stop:]])


def with_items(note: Note, key: str, items: Sequence[str]) -> str:
    """Return the note's text with items added to a list, each once; a missing list is created.

    The items of the list stay as they are. Raises VaultError if the value is not a plain list or one text.
    """
    span = _span(note, key)
    if span is None:
        return with_key(note, key, list(dict.fromkeys(items)))
    start, stop = span
    match = KEY.match(note.bare[start])
    written = _without_comment(match[4]) if match else ""
    old = read_frontmatter(note)[next(found for found, _, _ in _spans(note) if fold(found) == fold(key))]
    there = old if isinstance(old, list) else [old] if old else []
    new = [_quoted(item) for item in dict.fromkeys(items) if item not in there]
    below = [line for line in note.bare[start + 1 : stop] if line.strip() and not line.lstrip().startswith("#")]
    if not new:
        return "".join(note.lines)
    if not written and all(ITEM.match(line) and not KEY.match(_item(line)) for line in below):
        indent = below[-1][: len(below[-1]) - len(below[-1].lstrip())] if below else "  "
        lines = [f"{indent}- {item}{note.line_end}" for item in new]
        return "".join([*note.lines[:stop], *lines, *note.lines[stop:]])
    if below or written.startswith(NOT_A_TEXT) or (written.startswith("[") and not isinstance(old, list)):
        raise VaultError(f"{key!r} is not a plain list or text, so nothing can be added. Ask the user to change it.")
    lines = [f"{note.bare[start][: match.start(4)].rstrip()}" if match else ""]
    kept = [_quoted(item) for item in there] if isinstance(old, list) else [written] if written else []
    lines += [f"  - {item}" for item in [*kept, *new]]
    return "".join([*note.lines[:start], *(line + note.line_end for line in lines), *note.lines[stop:]])


def _item(line: str) -> str:
    match = ITEM.match(line)
    return (match[1] or "") if match else ""


def parsed_value(written: str) -> Value:
    """Return the value that a model wrote: a list if it is a JSON list or lines that begin with `- `, else a text."""
    text = written.strip()
    if text.startswith("["):
        return _value(text)
    lines = text.splitlines()
    if lines and all(ITEM.match(line) for line in lines):
        return [_scalar(line.strip().removeprefix("-").strip()) for line in lines]
    return " ".join(line.strip() for line in lines)


def _no_key(note: Note, key: str) -> tuple[int, int]:
    there = ", ".join(repr(found) for found, _, _ in _spans(note)) or "none"
    raise VaultError(f"There is no key {key!r} in the frontmatter. The keys are: {there}.")


def _span(note: Note, key: str) -> tuple[int, int] | None:
    found = [(name, start, end) for name, start, end in _spans(note) if fold(name) == fold(key)]
    if len(found) > 1:
        raise VaultError(f"The frontmatter has {key!r} more than once. Ask the user to put that right.")
    return (found[0][1], found[0][2]) if found else None


def _spans(note: Note) -> list[tuple[str, int, int]]:
    """Return each key with its first line and the line after its last; lines between keys belong to none."""
    last = note.frontmatter - 1
    starts = [
        (number, match[1] or match[2] or match[3].rstrip())
        for number in range(1, last)
        if (match := KEY.match(note.bare[number]))
    ]
    spans: list[tuple[str, int, int]] = []
    for index, (start, key) in enumerate(starts):
        stop = starts[index + 1][0] if index + 1 < len(starts) else last
        while stop > start + 1 and (not note.bare[stop - 1].strip() or note.bare[stop - 1].startswith("#")):
            stop -= 1
        spans.append((key, start, stop))
    return spans


def _written(key: str, value: Value) -> list[str]:
    if isinstance(value, list):
        return [f"{key}:", *(f"  - {_quoted(item)}" for item in value)] if value else [f"{key}: []"]
    return [f"{key}: {_as_scalar(value)}".rstrip()]


def _as_scalar(value: str) -> str:
    """Return a value as YAML: numbers, dates and truth values stay unquoted, since they are meant as such."""
    return value if LIKE_ANOTHER_TYPE.fullmatch(value) else _quoted(value)


def _quoted(text: str) -> str:
    if text == text.strip() and PLAIN.fullmatch(text) and not LIKE_ANOTHER_TYPE.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=False)


def _value(text: str) -> Value:
    if text.startswith("[") and text.endswith("]") and not text.startswith("[["):
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):
            items = _split_list(text[1:-1])
        return [item if isinstance(item, str) else json.dumps(item) for item in items]
    return _scalar(text)


def _split_list(text: str) -> list[str]:
    """Return the items of a list in brackets; commas in quotes do not separate items."""
    items, start, quote, is_begun = list[str](), 0, "", False
    for number, character in enumerate(text):
        if character == "," and not quote:
            items.append(text[start:number])
            start, is_begun = number + 1, False
        elif quote == character:
            quote = ""
        elif not is_begun and character in "\"'":
            quote, is_begun = character, True
        else:
            is_begun = is_begun or not character.isspace()
    return [_scalar(part.strip()) for part in [*items, text[start:]] if part.strip()]


def _scalar(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        try:
            read: Mapping[str, str] | str = json.loads(text)
        except ValueError:
            return text[1:-1]
        return read.encode(errors="replace").decode() if isinstance(read, str) else text[1:-1]
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def _without_comment(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("#"):
        return ""
    start = 0
    if (match := QUOTED.match(stripped)) is not None:
        start = match.end()
    at = stripped.find(" #", start)
    return stripped if at < 0 else stripped[:at].rstrip()
