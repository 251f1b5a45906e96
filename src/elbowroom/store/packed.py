"""Rows as they are kept: compactions as JSON, outputs compressed piece by piece so that reading can begin anywhere."""

import logging
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.ledger import Entry
from elbowroom.context.outputs import (
    BLOCK_CHARACTERS,
    Block,
    ToolOutputRef,
    pieces,
    ref_to,
    ref_to_media,
    references_in,
    utf8,
)
from elbowroom.context.transcript import Message, kept_form
from elbowroom.store.base import encoded

log = logging.getLogger(__name__)
LEVEL: Final = 1
"""How hard zlib tries; more would take several times as long and save little."""
MOST_SEARCHED: Final = 2**20
"""The most characters of a text in which references are looked for; lists of outputs are far smaller."""
MOST_MEMORIES: Final = 1000
"""How many memories one agent of one owner has."""
OVERHEAD: Final = 500
"""The bytes that an output takes beside its content."""


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """An entry with its messages as JSON.

    `refs` are the ids of outputs that its messages refer to, or those that it was made from. `lease` is the number of
    the lease by which a server made it beside others.
    """

    entry: Entry
    messages: str
    refs: frozenset[str]
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an output, compressed; `line` and `column`, both from 1, are the place of its first character.

    Data that is no text has one line, whose columns count its bytes.
    """

    line: int
    column: int
    content: bytes


@dataclass(frozen=True, slots=True)
class PackedOutput:
    """An output with its owner, its tool, its reference, and the ids of outputs that it names."""

    owner: str
    tool: str
    ref: ToolOutputRef
    chunks: tuple[Chunk, ...]
    names: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Return how many bytes the output takes."""
        return sum(len(chunk.content) for chunk in self.chunks) + OVERHEAD

    def from_place(self, line: int, column: int) -> Sequence[Chunk]:
        """Return the chunks from a place on; one with the place in it is the first."""
        first = bisect_right(self.chunks, (line, column), key=lambda chunk: (chunk.line, chunk.column)) - 1
        return self.chunks[max(0, first) :]


def packed_entry(entry: Entry, made_from: Sequence[Message]) -> PackedEntry | None:
    """Return an entry as it is kept, or None with a warning in the log where JSON cannot hold it."""
    try:
        for text in (entry.key, entry.rung):
            text.encode()
        messages = encoded(list(map(kept_form, entry.messages)))
        refs = references_in(messages) | references_in(encoded(made_from))
    except (TypeError, ValueError, RecursionError) as error:
        log.warning("A compaction cannot be kept, so it may be made again: %s.", error)
        return None
    return PackedEntry(entry, messages, frozenset(refs))


def packed(owner: str, tool: str, text: str, ref: ToolOutputRef | None = None) -> PackedOutput:
    """Return a text as it is kept."""
    names = frozenset(references_in(text) if len(text) <= MOST_SEARCHED else ())
    return PackedOutput(owner, tool, ref or ref_to(owner, text), tuple(_text_chunks(text)), names)


def packed_media(owner: str, tool: str, mime_type: str, data: bytes, ref: ToolOutputRef | None = None) -> PackedOutput:
    """Return data that is no text as it is kept."""
    return PackedOutput(owner, tool, ref or ref_to_media(owner, mime_type, data), tuple(_data_chunks(data)))


def block_from(chunk: Chunk, line: int, column: int) -> Block | None:
    """Return the part of a chunk of text from a place on, None where all of it is before."""
    text = unpacked(chunk).decode("utf-8", "surrogatepass")
    if (line, column) <= (chunk.line, chunk.column):
        return Block(chunk.line, chunk.column, text)
    begin, first_column = 0, chunk.column
    for _ in range(line - chunk.line):
        if not (begin := text.find("\n", begin) + 1):
            return None
        first_column = 1
    column = max(column, 1)
    at = begin + column - first_column
    if 0 <= (line_break := text.find("\n", begin)) < at:
        at, line, column = line_break + 1, line + 1, 1
    return Block(line, column, text[at:]) if at < len(text) else None


def unpacked(chunk: Chunk) -> bytes:
    """Return the content of a chunk. Raises zlib.error where another program has written it."""
    return zlib.decompress(chunk.content)


def _text_chunks(text: str) -> Iterator[Chunk]:
    line = column = 1
    for piece in pieces(text):
        yield Chunk(line, column, zlib.compress(utf8(piece), LEVEL))
        line_break = piece.rfind("\n")
        column = len(piece) - line_break if line_break >= 0 else column + len(piece)
        line += piece.count("\n")


def _data_chunks(data: bytes) -> Iterator[Chunk]:
    for start in range(0, len(data), BLOCK_CHARACTERS):
        yield Chunk(1, start + 1, zlib.compress(data[start : start + BLOCK_CHARACTERS], LEVEL))
