"""Changes the text of a JSON file; comments, order and formatting of the rest stay."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

GAP: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
REST_OF_LINE: Final = re.compile(r"[ \t]*(?://[^\r\n]*)?(?=\r?\n)")
"""What may follow an entry in its line, with the comment on it."""
FIRST_INDENT: Final = re.compile(r"\n([ \t]+)\S")
IDENTITY: Final = "id"
MISSING: Final = object()


@dataclass(slots=True)
class Node:
    """A value with its place in the text; `entries` has the values in an object by name, in a list by number.

    `last_end` is where the last entry ends, its comma included.
    """

    start: int
    value: Any = None
    end: int = 0
    entries: dict[Any, "Node"] = field(default_factory=dict)
    last_end: int = 0


def with_values(text: str, values: Mapping[str, Any]) -> str:
    """Return the text of a JSON object with these values merged in, comments and trailing commas allowed.

    Objects are merged, and so are lists: objects in them by their `id`, other items are added once. Raises ValueError,
    which names the line.
    """
    if not GAP.sub("", text):
        return f"{text.rstrip()}\n{_laid_out(text, values, '')}\n".lstrip("\n")
    for path, value in _leaves(parsed(text).value, values, ()):
        text = _with_value(text, path, value)
    return text


def with_item(text: str, item: str) -> str:
    """Return the text of a JSON list with this item at its end, where it is not in it yet. Raises ValueError."""
    root = _root(text)
    return text if item in root.value else _added(text, root, len(root.entries), item)


def without_item(text: str, item: str) -> str:
    """Return the text of a JSON list without this item. Raises ValueError."""
    root = _root(text)
    if item not in root.value:
        return text
    at, ends = root.value.index(item), [root.start + 1, *(node.end for node in root.entries.values())]
    if at + 1 < len(root.entries):
        start, end = root.entries[at].start, root.entries[at + 1].start
    else:
        start, end = ends[at], root.last_end if at else root.end - 1
    return without_item(text[:start] + text[end:], item)


def parsed(text: str) -> Node:
    """Return the object that a text holds. Raises ValueError, which names the line."""
    root = _root(text)
    if not isinstance(root.value, dict):
        raise _wrong(text, root.start, "an object in braces is expected")
    return root


def _root(text: str) -> Node:
    root = _value(text, _after_gap(text, 0))
    end = _after_gap(text, root.end)
    if end < len(text):
        raise _wrong(text, end, "nothing more is expected")
    return root


def _leaves(old: Any, new: Any, path: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    """Return what differs, each with the path at which it is set."""
    if isinstance(old, dict) and isinstance(new, Mapping):
        return [leaf for key, value in new.items() for leaf in _leaves(old.get(key, MISSING), value, (*path, key))]
    if isinstance(old, list) and isinstance(new, list):
        places = [_place_of(old, item, number) for number, item in enumerate(new)]
        found = [old[place] if place < len(old) else MISSING for place in places]
        return [leaf for at, item in enumerate(new) for leaf in _leaves(found[at], item, (*path, places[at]))]
    return [] if _is_same(old, new) else [(path, new)]


def _place_of(old: list[Any], item: Any, number: int) -> int:
    """Return the place of the same item or of the object with the same id, else one after the end."""
    name = item.get(IDENTITY) if isinstance(item, Mapping) else None
    is_it = [
        _is_same(known, item) or (name is not None and isinstance(known, dict) and known.get(IDENTITY) == name)
        for known in old
    ]
    return is_it.index(True) if True in is_it else len(old) + number


def _is_same(old: Any, new: Any) -> bool:
    """Tell whether two values are one in JSON, where 1 is not true."""
    return old is not MISSING and json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _with_value(text: str, path: tuple[Any, ...], value: Any) -> str:
    """Return the text with a value at a path, of which all but the last part is there."""
    node = parsed(text)
    for key in path[:-1]:
        node = node.entries[key]
    known = node.entries.get(path[-1])
    return _replaced(text, known, value) if known else _added(text, node, path[-1], value)


def _replaced(text: str, node: Node, value: Any) -> str:
    return text[: node.start] + _laid_out(text, value, _indent_at(text, node.start)) + text[node.end :]


def _added(text: str, node: Node, key: Any, value: Any) -> str:
    """Return the text with one more entry at the end of an object or a list."""
    name = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(node.value, dict) else ""
    outer, line_end = _indent_at(text, node.start), _line_end(text)
    inner = outer + _unit(text)
    line = f"{line_end}{inner}{name}{_laid_out(text, value, inner)}"
    if not node.entries:
        return f"{text[: node.start + 1]}{line}{line_end}{outer}{text[node.start + 1 :].lstrip()}"
    at = node.last_end
    comma = "" if text[at - 1] == "," else ","
    if "\n" not in text[node.start : node.end]:
        return f"{text[:at]}{comma} {name}{json.dumps(value, ensure_ascii=False)}{text[at:]}"
    rest = REST_OF_LINE.match(text, at)
    line_after = rest.end() if rest else at
    return text[:at] + comma + text[at:line_after] + line + text[line_after:]


def _laid_out(text: str, value: Any, indent: str) -> str:
    """Return a value in the style of the text, its first line excepted indented like the line that it begins in."""
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return f"{_line_end(text)}{indent}".join(lines)


def _indent_at(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    found = FIRST_INDENT.search(text)
    return found[1] if found else "  "


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _after_gap(text: str, at: int) -> int:
    gap = GAP.match(text, at)
    return gap.end() if gap else at


def _value(text: str, at: int) -> Node:
    """Return the value that begins here. Raises ValueError."""
    if text[at : at + 1] == "{":
        return _container(text, Node(at, {}), "}")
    if text[at : at + 1] == "[":
        return _container(text, Node(at, []), "]")
    return _scalar(text, at)


def _scalar(text: str, at: int) -> Node:
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except ValueError:
        raise _wrong(text, at, "a value is expected") from None
    return Node(at, value, end)


def _container(text: str, node: Node, close: str) -> Node:
    at = _after_gap(text, node.start + 1)
    while text[at : at + 1] != close:
        key, at = _name(text, at) if close == "}" else (len(node.entries), at)
        inner = _value(text, at)
        node.entries[key] = inner
        node.last_end = inner.end
        at = _after_gap(text, inner.end)
        if text[at : at + 1] == ",":
            node.last_end = at + 1
            at = _after_gap(text, at + 1)
        elif text[at : at + 1] != close:
            raise _wrong(text, at, f"a comma or {close} is expected")
    node.end = at + 1
    values = {key: inner.value for key, inner in node.entries.items()}
    node.value = values if close == "}" else list(values.values())
    return node


def _name(text: str, at: int) -> tuple[str, int]:
    """Return the name that begins here, and where its value begins. Raises ValueError."""
    name = _scalar(text, at)
    colon = _after_gap(text, name.end)
    if not isinstance(name.value, str) or text[colon : colon + 1] != ":":
        raise _wrong(text, at, "a name in quotes and a colon are expected")
    return name.value, _after_gap(text, colon + 1)


def _wrong(text: str, at: int, what: str) -> ValueError:
    return ValueError(f"line {text.count(chr(10), 0, at) + 1}: {what}")
