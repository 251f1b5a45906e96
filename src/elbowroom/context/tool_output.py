"""What tools have returned, kept whole under a reference; the model gets a view of it."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

ID_LENGTH: Final = 12
ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
"""Letters and digits that a model does not take for one another."""


@dataclass(frozen=True, slots=True)
class ToolOutputRef:
    """Where an output is kept: its id, its size in bytes of UTF-8, and how many lines it has.

    The end of the text ends its last line; a line break at the very end begins no further one.
    """

    id: str
    bytes: int
    lines: int


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

    async def find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return what is kept under an id, None where nothing is."""
        ...

    def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the text from a place on, in blocks of at most some 64 KiB; nothing where nothing is kept there."""
        ...


def ref_to(owner: str, text: str) -> ToolOutputRef:
    """Return the reference of a text; its id depends on owner and text alone."""
    content = text.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=ID_LENGTH, key=hashlib.blake2b(owner.encode()).digest())
    ref_id = "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest.digest())
    lines = text.count("\n") + (not text.endswith("\n") if text else 0)
    return ToolOutputRef(ref_id, len(content), lines)
