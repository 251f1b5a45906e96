"""The outputs of tools, kept whole under a reference: the reference, the store's protocol, and the kinds of tools."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from elbowroom.settings.model import ToolKind

ID_LENGTH: Final = 12
ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
"""Letters and digits that a model does not mix up."""
LETTERS: Final = bytes(ord(ALPHABET[byte % len(ALPHABET)]) for byte in range(256))
"""The letter for each byte of a digest."""
BLOCK_CHARACTERS: Final = 65_536
"""The greatest length of a block; also how much is worked on at once, so that other threads get their turn."""

_ID: Final = re.compile(rf"[{ALPHABET}]{{{ID_LENGTH}}}")
_REFERENCE: Final = re.compile(rf"ref(?:_id)?[^A-Za-z0-9]{{1,40}}({_ID.pattern})(?![A-Za-z0-9_])")

NEAR_ENOUGH: Final = 16  # one part in so many may stay unused

VERBS: Final[dict[ToolKind, str]] = {
    "read": "read get fetch open view show cat load download head tail retrieve peek",
    "write": (
        "write create edit patch append delete rename save update insert replace remove move copy add put set upload "
        "mkdir modify overwrite prepend"
    ),
    "execute": "run exec execute bash shell sh cmd command terminal test tests eval evaluate invoke build compile",
    "query": "search list find grep query count lookup ls glob browse filter select",
}
KIND_OF_VERB: Final[dict[str, ToolKind]] = {verb: kind for kind, verbs in VERBS.items() for verb in verbs.split()}
CHANGES_WHATEVER_ELSE: Final = "replace"
WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\dA-Za-z_]+")


@dataclass(frozen=True, slots=True)
class ToolOutputRef:
    """The place of a kept output: its id, its size in bytes of UTF-8, and its number of lines.

    The end of the text ends its last line; a line break at the very end begins no further one. `mime_type` is empty for
    text; other data, such as an image, has its own bytes and no lines.
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

    async def keep_media(self, owner: str, tool: str, mime_type: str, data: bytes) -> ToolOutputRef:
        """Keep what is no text, such as an image, and return where; the same of one owner is kept once."""

    async def find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return what is kept under an id, None where nothing is."""

    def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the text from the first character at or after a place, in blocks of at most 65,536 characters.

        A line break is the last character of its line. Nothing is yielded where no text is kept there; where reading
        fails on the way the blocks end, with a line in the log.
        """

    async def media(self, owner: str, ref_id: str) -> tuple[str, bytes] | None:
        """Return the MIME type and the bytes of what is no text, None where nothing of that kind is kept."""

    async def in_use(self, owner: str, ids: Collection[str]) -> None:
        """Tell that these ids stand in a prompt: they are referred to for as long as the store keeps what is unused.

        It costs next to nothing to say so again and again; ids under which nothing is kept are passed over.
        """


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
    """Return the reference of data that is no text; its id is never that of a text."""
    digest = _digest(owner, b"media")
    digest.update(utf8(mime_type) + b"\0")
    digest.update(data)
    return ToolOutputRef(_id(digest), len(data), 0, mime_type)


def _digest(owner: str, person: bytes = b"") -> "hashlib.blake2b":
    key = hashlib.blake2b(utf8(owner)).digest()
    return hashlib.blake2b(digest_size=ID_LENGTH, key=key, person=person)


def _id(digest: "hashlib.blake2b") -> str:
    return digest.digest().translate(LETTERS).decode("ascii")


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces that are no longer than a block."""
    for start in range(0, len(text), BLOCK_CHARACTERS):
        yield text[start : start + BLOCK_CHARACTERS]


def utf8(text: str) -> bytes:
    """Return a text as UTF-8, in which lone surrogates are kept."""
    return text.encode("utf-8", "surrogatepass")


def is_ref_id(text: str) -> bool:
    """Tell whether a text has the form of an id."""
    return _ID.fullmatch(text) is not None


def references_in(text: str) -> set[str]:
    """Return the ids that a text names as `ref=…` or `ref_id="…"`, as it is or inside JSON of any depth."""
    return set(_REFERENCE.findall(text))


def kind_of(name: str, declared: Mapping[str, ToolKind]) -> ToolKind:
    """Return the declared kind of a tool, else the kind that the words of its name tell, "other" where they tell none.

    Of several words the first decides, so that `execute_query` executes; but a name with "replace" writes. Only whole
    words count: `research_notes` is no search.
    """
    if name in declared:
        return declared[name]
    words = words_in(name)
    if CHANGES_WHATEVER_ELSE in words:
        return "write"
    return next(filter(None, map(KIND_OF_VERB.get, words)), "other")


def words_in(name: str) -> list[str]:
    """Return the words of a name in lower case; signs and digits part them, and a capital begins one."""
    return list(map(str.casefold, WORD.findall(name)))


def largest_fit(most: int, share_at: Callable[[int], float], least_step: int = 1) -> int:
    """Return about the largest number up to `most` whose share is at most 1; 0, which is never tried, if there is none.

    A share is the used part of a limit. It has to grow with the number, but need not do so evenly.
    """
    fits, too_much, guess = 0, most + 1, most
    while too_much - fits > 1:
        share = share_at(guess)
        if share <= 1:
            fits = guess
        else:
            too_much = guess
        if fits and too_much - fits <= max(least_step, too_much // NEAR_ENOUGH):
            break
        guess = _between(fits, too_much, int(guess / max(share, 0.01) * 0.97))
    return fits


def _between(fits: int, too_much: int, guess: int) -> int:
    """Return the next number to try: the guess where it narrows the range, else its middle."""
    margin = (too_much - fits) // 8
    return guess if fits + margin < guess < too_much - margin else (fits + too_much) // 2
