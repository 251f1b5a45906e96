"""A TOML file as blocks of text: each table with its header, the comment above it, its keys, and what follows them."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
"""All in a valid file that says where a line begins a table."""
ESCAPED = {'"': '\\"', "\\": "\\\\"}


@dataclass(slots=True, eq=False)
class Block:
    """One table's text. `lead` is the comment right above the header, `tail` blank lines and comments after the keys.

    `path` are the header's keys, none for what stands before the first header; `is_row` tells `[[path]]` from `[path]`.
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


def left_behind(blocks: Sequence[Block]) -> list[Block]:
    """Return what is to stay of tables that go: the comments below them that belong to no table."""
    tails = "".join(block.tail for block in blocks)
    return [Block(tail=tails)] if "#" in tails else []


def _chunks(text: str) -> list[str]:
    """Cut the text in front of each header; the first chunk is what stands before all of them, perhaps nothing."""
    if text and not text.endswith("\n"):
        text += "\n"
    cuts = [0, *_headers(text), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]


def _headers(text: str) -> Iterator[int]:
    """Yield where each line with a header begins: one with a bracket that stands in no list and no long text."""
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
