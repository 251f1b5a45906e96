"""The index in PostgreSQL: each message has its letters, three at a time, in a column of their own, with a GIN index.

A message without them is not in the index yet, whatever its number: several servers write at the same time. A message
that is deleted takes them along.
"""

from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, Text, bindparam, cast, column, func, literal_column, select, table, update
from sqlalchemy.dialects.postgresql import ARRAY, TSQUERY, TSVECTOR

from elbowroom.store.sql.dialect import execute_all
from elbowroom.store.sql.schema import messages
from elbowroom.store.sql.search.texts import (
    CHARACTERS_A_STEP,
    LETTERS,
    MESSAGES_A_STEP,
    MOST_LETTERS,
    TEXTS,
    TOO_LONG,
    Indexed,
    grams_of,
    indexed_text,
    plain,
)

MOST_BYTES: Final = 1_000_000
"""How many bytes of letters PostgreSQL takes for a message; one with more counts as too long."""
LETTERS_OF: Final = literal_column("messages.letters", TSVECTOR)
OTHERS: Final = LETTERS_OF.is_(None)
_NEXT: Final = (
    select(messages.c.number)
    .where(OTHERS, messages.c.status != "streaming")
    .order_by(messages.c.number)
    .limit(MESSAGES_A_STEP)
)
FOLLOWING: Final = TEXTS.where(messages.c.number.in_(_NEXT.scalar_subquery()))
_indexed: Final = table("messages", column("number"), column("letters", TSVECTOR))
PUT: Final = (
    update(_indexed)
    .where(_indexed.c.number == bindparam("of_number"))
    .values(letters=func.array_to_tsvector(bindparam("grams", type_=ARRAY(Text))))
)


def found(search: str) -> Indexed:
    """Return what the index tells of a text."""
    asked = cast(_asked(plain(search)), TSQUERY)
    return Indexed(select(messages.c.number).where(LETTERS_OF.op("@@")(asked)), OTHERS)


def put_in(connection: Connection) -> bool:
    """Put the next messages in that are whole; tell whether there were any."""
    given: list[dict[str, Any]] = []
    size = 0
    with connection.execute(FOLLOWING) as rows:
        for number, parts in groupby(rows, key=attrgetter("number")):
            if size > CHARACTERS_A_STEP:
                break
            said = indexed_text(parts) or ""
            given.append({"of_number": number, "grams": _lexemes(said)})
            size += len(said)
    execute_all(connection, [(PUT, given)] if given else [])
    return bool(given)


def _lexemes(said: str) -> list[str]:
    grams = grams_of(said)
    return [TOO_LONG] if sum(len(gram.encode()) for gram in grams) > MOST_BYTES else sorted(grams)


def _asked(search: str) -> str:
    """Return which letters are asked for, in the language of full-text search."""
    some = search[:MOST_LETTERS]
    if len(some) < LETTERS:
        return f"{_quoted(some)}:* | {_quoted(TOO_LONG)}"
    return f"({' & '.join(map(_quoted, sorted(grams_of(some))))}) | {_quoted(TOO_LONG)}"


def _quoted(gram: str) -> str:
    return "'" + gram.replace("\\", "\\\\").replace("'", "''") + "'"
