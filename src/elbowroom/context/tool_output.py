"""What tools have returned, kept whole under a reference; the model gets a view of it."""

import hashlib
import re
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

ID_LENGTH: Final = 12
ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
"""Letters and digits that a model does not take for one another."""
BLOCK_CHARACTERS: Final = 65_536
"""How long a block may be; also how much is worked on at once, so that other threads get their turn."""

_ID: Final = re.compile(rf"[{ALPHABET}]{{{ID_LENGTH}}}")
_REFERENCE: Final = re.compile(rf"ref(?:_id)?[^A-Za-z0-9]{{1,40}}({_ID.pattern})(?![A-Za-z0-9_])")


@dataclass(frozen=True, slots=True)
class ToolOutputRef:
    """Where an output is kept: its id, its size in bytes of UTF-8, and how many lines it has.

    The end of the text ends its last line; a line break at the very end begins no further one. `mime_type` is empty
    for text; what is no text, such as an image, has its own bytes and no lines.
    """

    id: str
    bytes: int
    lines: int
    mime_type: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of an output: `line` and `column`, both from 1, are the place of its first character."""

    line: int
    column: int
    text: str


class ToolOutputs(Protocol):
    """Keeps outputs for owners; nobody reads what another owner's tools returned.

    It raises nothing where it cannot write or read: what could not be written is kept in memory as far as it may be.
    """

    async def keep(self, owner: str, tool: str, text: str) -> ToolOutputRef:
        """Keep a text, and return where; the same text of one owner is kept once, under the same id."""
        ...

    async def keep_media(self, owner: str, tool: str, mime_type: str, data: bytes) -> ToolOutputRef:
        """Keep what is no text, such as an image, and return where; the same of one owner is kept once."""
        ...

    async def find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return what is kept under an id, None where nothing is."""
        ...

    def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the text from the first character at or behind a place, in blocks of at most 65,536 characters.

        A line break is the last character of its line. Nothing is yielded where no text is kept there; where reading
        fails on the way the blocks end, with a line in the log.
        """
        ...

    async def media(self, owner: str, ref_id: str) -> tuple[str, bytes] | None:
        """Return the MIME type and the bytes of what is no text, None where nothing of that kind is kept."""
        ...

    async def in_use(self, owner: str, ids: Collection[str]) -> None:
        """Tell that these ids stand in a prompt: they are referred to for as long as the store keeps what is unused.

        It costs next to nothing to say so again and again; ids under which nothing is kept are passed over.
        """
        ...


def ref_to(owner: str, text: str) -> ToolOutputRef:
    """Return the reference of a text; its id depends on owner and text alone."""
    digest = _digest(owner)
    size = line_breaks = 0
    for piece in pieces(text):
        content = utf8(piece)
        digest.update(content)
        size += len(content)
        line_breaks += piece.count("\n")
    ends_inside_line = bool(text) and text[-1] != "\n"
    return ToolOutputRef(_id(digest), size, line_breaks + ends_inside_line)


def ref_to_media(owner: str, mime_type: str, data: bytes) -> ToolOutputRef:
    """Return the reference of what is no text; its id is never that of a text."""
    digest = _digest(owner, b"media")
    digest.update(utf8(mime_type) + b"\0")
    digest.update(data)
    return ToolOutputRef(_id(digest), len(data), 0, mime_type)


def is_ref_id(text: str) -> bool:
    """Tell whether a text has the form of an id."""
    return _ID.fullmatch(text) is not None


def references_in(text: str) -> set[str]:
    """Return the ids that a text names as `ref=…` or `ref_id="…"`, as it is or inside JSON of any depth."""
    return set(_REFERENCE.findall(text))


def pieces(text: str) -> Iterator[str]:
    """Yield a text piece by piece, each no longer than a block."""
    for start in range(0, len(text), BLOCK_CHARACTERS):
        yield text[start : start + BLOCK_CHARACTERS]


def utf8(text: str) -> bytes:
    """Return a text as UTF-8, in which lone surrogates are kept."""
    return text.encode("utf-8", "surrogatepass")


def _digest(owner: str, person: bytes = b"") -> "hashlib.blake2b":
    key = hashlib.blake2b(utf8(owner)).digest()
    return hashlib.blake2b(digest_size=ID_LENGTH, key=key, person=person)


def _id(digest: "hashlib.blake2b") -> str:
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest.digest())
