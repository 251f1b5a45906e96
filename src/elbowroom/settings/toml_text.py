"""Changes values in the text of a TOML file; comments, order and formatting of the rest stay."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Item

from elbowroom.settings.merge import ROW_NAMES, is_same

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
HEADER = re.compile(r"[ \t]*\[")
TOKEN = re.compile(
    r"""
      (?P<passed_over>
        \"{3} (?:[^\\]|\\.)*? \"{3,5}   # a text of several lines, which may end with two quotes of its own
      | '{3} .*? '{3,5}
      | \" (?:[^"\\\n]|\\.)* \"
      | ' [^'\n]* '
      | \# [^\n]*
      )
    | (?P<open> [\[{] ) | (?P<close> [\]}] ) | (?P<line_end> \n )
    """,
    re.DOTALL | re.VERBOSE,
)
"""The tokens of a valid file that decide whether a bracket at the start of a line begins a table header."""
ESCAPED = {'"': '\\"', "\\": "\\\\"}
Path = tuple[str, ...]
Table = Mapping[str, Any]
ABSENT: Final = object()
QUOTES: Final = '"""'


@dataclass(slots=True, eq=False)
class Block:
    """The text of one table. `lead` is the comment above its header, `tail` blank lines and comments after its keys.

    `path` has the header's keys and is empty for the text before the first header; `is_row` tells `[[path]]` from
    `[path]`.
    """

    path: tuple[str, ...] = ()
    is_row: bool = False
    lead: str = ""
    header: str = ""
    body: str = ""
    tail: str = ""
    is_new: bool = False

    @property
    def text(self) -> str:
        """Return the block as it stands in the file."""
        return self.lead + self.header + self.body + self.tail


def new_block(path: tuple[str, ...], *, is_row: bool) -> Block:
    """Return a table without keys."""
    name = ".".join(map(_key, path))
    return Block(path, is_row, header=f"[[{name}]]\n" if is_row else f"[{name}]\n", is_new=True)


def split_blocks(text: str) -> list[Block]:
    r"""Return the blocks of a valid file whose lines end with \n; the first one has no header."""
    blocks: list[Block] = []
    lead = ""
    for chunk in _chunks(text):
        block, lead = _block(chunk, lead, is_first=not blocks)
        blocks.append(block)
    blocks[-1].tail += lead
    return blocks


def join_blocks(blocks: Iterable[Block]) -> str:
    """Return the file, with a blank line around each new table."""
    text, before = "", None
    for block in blocks:
        is_beside_new = block.is_new or (before is not None and before.is_new)
        if is_beside_new and block.header and text and not text.endswith("\n\n"):
            text += "\n"
        text += block.text
        before = block
    return text


def kept_comments(blocks: Sequence[Block]) -> list[Block]:
    """Return the comments that stay when tables are removed: those after their keys."""
    tails = "".join(block.tail for block in blocks)
    return [Block(tail=tails)] if "#" in tails else []


def _chunks(text: str) -> list[str]:
    """Split the text before each header; the first chunk is the text before all headers, and may be empty."""
    if text and not text.endswith("\n"):
        text += "\n"
    cuts = [0, *_headers(text), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]


def _headers(text: str) -> Iterator[int]:
    """Yield the offset of each header: a line with a bracket that is in no list and no text of several lines."""
    if HEADER.match(text):
        yield 0
    depth = 0
    for token in TOKEN.finditer(text):
        match token.lastgroup:
            case "open":
                depth += 1
            case "close":
                depth -= 1
            case "line_end" if not depth and HEADER.match(text, token.end()):
                yield token.end()


def _block(chunk: str, lead: str, *, is_first: bool) -> tuple[Block, str]:
    """Return the block, and the comment at its end that belongs to the header after it."""
    lines = [f"{line}\n" for line in chunk.split("\n")[:-1]]
    header = "" if is_first else lines.pop(0)
    end = len(lines)
    while end and _is_trivia(lines[end - 1]):
        end -= 1
    start = len(lines)
    while start > end and lines[start - 1].strip():
        start -= 1
    path, is_row = _path_of(header)
    block = Block(path, is_row, lead, header, "".join(lines[:end]), "".join(lines[end:start]))
    return block, "".join(lines[start:])


def _is_trivia(line: str) -> bool:
    return not line.strip() or line.lstrip(" \t").startswith("#")


def _path_of(header: str) -> tuple[tuple[str, ...], bool]:
    path: list[str] = []
    table = tomllib.loads(header)
    is_row = False
    while table:
        [(name, below)] = table.items()
        is_row = isinstance(below, list)
        table = below[0] if is_row else below
        path.append(name)
    return tuple(path), is_row


def _key(name: str) -> str:
    if BARE_KEY.fullmatch(name):
        return name
    return f'"{"".join(_escaped(character) for character in name)}"'


def _escaped(character: str) -> str:
    if character in ESCAPED:
        return ESCAPED[character]
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def rewritten(text: str, wanted: Table) -> str:
    """Return the text with the wanted values; everything that need not change stays as it is.

    Raises ValueError where that is not possible.
    """
    lines_end = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n")
    try:
        blocks = _changed_table(split_blocks(plain), (), tomllib.loads(plain), wanted)
        result = join_blocks(blocks)
        if is_same(tomllib.loads(result), dict(wanted)):
            return result.replace("\n", lines_end)
    except (TOMLKitError, LookupError, RecursionError) as error:
        raise ValueError("no way to change this text is known") from error
    raise ValueError("the changed text does not say what is wanted")


def _changed_table(blocks: Sequence[Block], path: Path, old: Table, new: Table) -> list[Block]:
    """Return the blocks of one table, its own first, with the values of `new` instead of `old`."""
    own = next((block for block in blocks if block.path == path), None)
    result, in_body, added = list(blocks), {}, []
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        if before is not ABSENT and after is not ABSENT and is_same(before, after):
            continue
        below = (*path, name)
        mine = [block for block in result if block is not own and block.path[: len(below)] == below]
        if mine:
            result = _with(result, mine, _changed_below(mine, below, before, after))
            if after is ABSENT or _kind(before) is _kind(after):
                continue
            before = ABSENT
        if before is ABSENT and _kind(after) is not None:
            added += _new_blocks(below, after)
        elif _kind(after) is not None and _kind(before) is not _kind(after):
            in_body[name] = ABSENT
            added += _new_blocks(below, after)
        else:
            in_body[name] = after
    if in_body:
        own = own or _put_in_front(result, path)
        if not path and not own.body:  # below the comment that the file begins with
            own.lead, own.tail, own.is_new = own.tail, "", True
        own.body = _changed_body(own.body, in_body)
    return result + added


def _changed_below(blocks: Sequence[Block], path: Path, before: Any, after: Any) -> list[Block]:
    if after is not ABSENT and _kind(before) is _kind(after):
        changed = _changed_table if _kind(after) is dict else _changed_rows
        return changed(blocks, path, before, after)
    return kept_comments(blocks)


def _changed_rows(blocks: Sequence[Block], path: Path, old: Sequence[Table], new: Sequence[Table]) -> list[Block]:
    groups: list[list[Block]] = []
    for block in blocks:
        if block.path == path and block.is_row:
            groups.append([])
        groups[-1].append(block)
    result: list[Block] = []
    places = _places(path, old, new)
    for row, place in zip(new, places, strict=True):
        result += _new_row(path, row) if place is None else _changed_table(groups[place], path, old[place], row)
    for place, group in enumerate(groups):
        if place not in places:
            result += kept_comments(group)
    return result


def _places(path: Path, old: Sequence[Table], new: Sequence[Table]) -> list[int | None]:
    """Return for each new row the index of its old row: that of the same name, else the unnamed one at its index."""
    key = ROW_NAMES.get(path[0], "")
    by_name = {repr(row.get(key, index)): index for index, row in enumerate(old)}
    found = [by_name.pop(repr(row.get(key, index)), None) for index, row in enumerate(new)]
    if len(old) != len(new):
        return found
    return [index if place is None and index not in found else place for index, place in enumerate(found)]


def _new_blocks(path: Path, value: Any) -> list[Block]:
    if isinstance(value, dict):
        return _changed_table([new_block(path, is_row=False)], path, {}, value)
    return [block for row in value for block in _new_row(path, row)]


def _new_row(path: Path, row: Table) -> list[Block]:
    return _changed_table([new_block(path, is_row=True)], path, {}, row)


def _with(blocks: Sequence[Block], before: Sequence[Block], after: Sequence[Block]) -> list[Block]:
    """Return the blocks with `after` instead of `before`, at the index of the first of them."""
    place = blocks.index(before[0])
    rest = [block for block in blocks[place:] if block not in before]
    return [*blocks[:place], *after, *rest]


def _put_in_front(blocks: list[Block], path: Path) -> Block:
    own = new_block(path, is_row=False)
    blocks.insert(0, own)
    return own


def _kind(value: Any) -> type | None:
    """Return dict for a table, list for rows of tables, None for a value that is written after its key."""
    if isinstance(value, dict):
        return dict
    return list if isinstance(value, list) and value and all(isinstance(item, dict) for item in value) else None


def _changed_body(body: str, changes: Table) -> str:
    document = tomlkit.parse(body)
    _change(document, changes)
    text = tomlkit.dumps(document)
    return text if not text or text.endswith("\n") else f"{text}\n"


def _change(container: Any, changes: Table) -> None:
    for name, value in changes.items():
        if value is ABSENT:
            del container[name]
        elif isinstance(value, dict) and isinstance(before := container.get(name), dict):
            gone = {key: ABSENT for key in before if key not in value}
            _change(before, {**gone, **value})
        elif name not in container or not is_same(_plain(container[name]), value):
            container[name] = _item(value, is_in_line=not isinstance(container, Container))


def _plain(value: Any) -> Any:
    return value.unwrap() if isinstance(value, Item) else value


def _item(value: Any, *, is_in_line: bool) -> Item:
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update({name: _item(part, is_in_line=True) for name, part in value.items()})
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        for part in value:
            array.append(_item(part, is_in_line=True))
        return array
    if isinstance(value, str):
        return _text(value, is_in_line=is_in_line)
    item: Item = tomlkit.item(value)
    return item


def _text(value: str, *, is_in_line: bool) -> Item:
    """Return a TOML text, in several lines where it contains line breaks."""
    if "\n" not in value or "\r" in value or is_in_line:
        return tomlkit.string(str(value))
    written = tomlkit.string(str(value), multiline=True).as_string()
    first_line = "" if value.startswith("\n") else "\n"  # one line break after the quotes does not count
    item: Item = tomlkit.value(f"{QUOTES}{first_line}{written.removeprefix(QUOTES)}")
    return item
