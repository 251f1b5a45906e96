"""What of a message is put in the index for searches, and which conditions tell what the index knows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, select

from elbowroom.store.message_parts import UNREADABLE, Part, text_in_body, text_in_part
from elbowroom.store.sql.schema import message_parts, messages

SEARCHED: Final = ("text", "content")
"""The kinds of parts that are searched."""
TEXTS: Final = (
    select(messages.c.number, messages.c.status, message_parts.c.kind, message_parts.c.content)
    .join_from(
        messages,
        message_parts,
        and_(message_parts.c.message == messages.c.id, message_parts.c.kind.in_(SEARCHED)),
        isouter=True,
    )
    .order_by(messages.c.number, message_parts.c.position)
)
"""The searched parts of messages, in order; a message without any has a row as well."""
LETTERS: Final = 3
MOST_LETTERS: Final = 64
"""How much of a longer text is looked up; the whole of it is looked for in what that finds."""
PAD: Final = "\ue000"
"""Follows each text, so that its last letters begin an entry too."""
TOO_LONG: Final = PAD * LETTERS
"""The entry of a text that is too long."""
LONGEST_TEXT: Final = 400_000
"""Characters of a text that is put in the index; a longer one counts as found, and is then read."""
SIGNS_A_CHARACTER: Final = 12
"""How many signs of JSON stand for a character at most: two halves of a pair, both escaped."""
CHARACTERS_A_STEP: Final = 100_000
MESSAGES_A_STEP: Final = 200
"""How much is put in the index in a transaction: a chat that wants to write waits some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """What an index tells: the numbers of messages that may hold a text, and which messages it does not know."""

    numbers: Select[Any]
    others: ColumnElement[bool]


def grams_of(text: str) -> set[str]:
    """Return all that is three letters long in a text."""
    return {text[start : start + LETTERS] for start in range(len(text) - LETTERS + 1)}


def indexed_text(rows: Iterable[Any]) -> str | None:
    """Return the text of a message as it is put in the index, and given again to take it out; None while it grows."""
    texts: list[Part] = []
    others: list[str] = []
    length = 0
    for row in rows:
        if row.status == "streaming":
            return None
        part = Part(row.kind, row.content)
        if part.kind == "content":
            others.append(text_in_part(part))
            length += len(others[-1])
        elif part.kind == "text":
            texts.append(part)
            length += len(part.content) // SIGNS_A_CHARACTER
        if length > LONGEST_TEXT:
            return TOO_LONG
    said = plain("\n".join([_text(texts), *others]))
    return said + PAD * (LETTERS - 1) if len(said) <= LONGEST_TEXT else TOO_LONG


def _text(texts: Sequence[Part]) -> str:
    try:
        return text_in_body("".join(part.content for part in texts))
    except UNREADABLE:
        return "\n".join(map(text_in_part, texts))


def plain(said: str) -> str:
    """Return a text as the index has it: in lower case, without what SQLite does not take."""
    return said.lower().replace("\0", PAD).encode("utf-8", "replace").decode()
