"""An index of the letters of what was said, three at a time, with which a search need not read everything.

It is SQLite's full-text search with the tokenizer `trigram`. Where a build of SQLite lacks that, no index is made, and
a search reads the messages themselves, as it does those that are not in the index yet.
"""

import logging
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, bindparam, column, delete, func, insert, literal, select, table, update
from sqlalchemy.exc import OperationalError

from elbowroom.store.sql.dialect import execute_all
from elbowroom.store.sql.schema import messages, search_leaving, search_progress
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

log = logging.getLogger(__name__)
MOST_TERMS: Final = 200
"""How many entries of the index a text of one or two letters may begin; a more common one is soon found without it."""
LAST_LETTER: Final = "\U0010ffff"
MAKE_INDEX: Final = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS search_index USING fts5"
    "(text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')"
)
MAKE_TERMS: Final = "CREATE VIRTUAL TABLE IF NOT EXISTS search_terms USING fts5vocab('search_index', 'row')"
MISSING: Final = ("no such module", "no such tokenizer", "error in tokenizer", "unrecognized", "no such table")
"""What SQLite says where it cannot use the index."""
entries: Final = table("search_index", column("rowid"), column("search_index"), column("text"), column("rank"))
terms: Final = table("search_terms", column("term"))
PUT: Final = insert(entries).values(rowid=bindparam("number"), text=bindparam("said"))
TAKE: Final = PUT.values(search_index="delete")
SET: Final = insert(entries).values(search_index=bindparam("name"), rank=bindparam("value"))
NO_MERGES: Final = {"automerge": 0, "crisismerge": 1000}
PAGES_MERGED: Final = 48
"""How many pages of the index are put in order with each transaction; left to itself it would do many at once."""
OTHERS: Final = messages.c.number > func.coalesce(select(search_progress.c.number).scalar_subquery(), 0)
CLEAR: Final = insert(entries).values(search_index="delete-all")


def is_there(connection: Connection) -> bool:
    """Make the index where there is none; tell whether this SQLite can. If not, what is in it counts no more."""
    try:
        connection.exec_driver_sql(MAKE_INDEX)
        connection.exec_driver_sql(MAKE_TERMS)
        connection.execute(select(terms.c.term).limit(1))
    except OperationalError as error:
        if not _is_missing(error):
            raise
        log.info("Searches read all messages, for this SQLite has no full-text search by trigrams: %s", error.orig)
        connection.execute(delete(search_progress))
        connection.execute(delete(search_leaving))
        return False
    return True


def found(connection: Connection, search: str) -> Indexed | None:
    """Return what the index tells of a text, None where there is no index, and where it does not help."""
    number = connection.scalar(select(search_progress.c.number))
    try:
        asked = _asked(connection, plain(search)) if number else None
    except OperationalError as error:
        if not _is_missing(error):  # else it was made by another build of SQLite
            raise
        asked = None
    if not number or asked is None:
        return None
    numbers = select(entries.c.rowid).where(entries.c.search_index.op("MATCH")(asked))
    return Indexed(numbers, messages.c.number > number)


def _asked(connection: Connection, search: str) -> str | None:
    """Return which entries are asked for, in the language of full-text search; None for too many."""
    some, own = search[:MOST_LETTERS], terms.c.term
    begun = select(own).where(own >= some, own < some + LAST_LETTER).limit(MOST_TERMS + 1 if len(some) < LETTERS else 1)
    found = connection.scalars(begun).all()
    if len(some) >= LETTERS:
        return f"({' AND '.join(map(_quoted, sorted(grams_of(some))))}) OR {_quoted(TOO_LONG)}"
    return " OR ".join(map(_quoted, [*found, TOO_LONG])) if len(found) <= MOST_TERMS else None


def _is_missing(error: OperationalError) -> bool:
    return any(words in str(error.orig) for words in MISSING)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def take_out(connection: Connection) -> bool:
    """Take some deleted messages out of the index; tell whether there were any."""
    own = search_leaving.c
    numbers = connection.scalars(select(own.number).distinct().order_by(own.number).limit(MESSAGES_A_STEP)).all()
    size = 0
    for number in numbers:
        rows = connection.execute(LEAVING.where(own.number == number))
        said = indexed_text(rows) or ""
        connection.execute(TAKE, {"number": number, "said": said})
        connection.execute(delete(search_leaving).where(own.number == number))
        if (size := size + len(said)) > CHARACTERS_A_STEP:
            break
    if numbers:
        connection.execute(SET, {"name": "merge", "value": PAGES_MERGED})
    return bool(numbers)


LEAVING: Final = select(search_leaving.c.kind, search_leaving.c.content, literal("complete").label("status")).order_by(
    search_leaving.c.position
)


def put_in(connection: Connection) -> bool:
    """Put the next messages in, up to one that still grows; tell whether there were any."""
    last = connection.scalar(select(search_progress.c.number))
    given: list[dict[str, Any]] = []
    size = 0
    with connection.execute(FOLLOWING, {"last": last or 0}) as rows:
        for number, parts in groupby(rows, key=attrgetter("number")):
            said = indexed_text(parts)
            if said is None or size > CHARACTERS_A_STEP or len(given) == MESSAGES_A_STEP:
                break
            given.append({"number": number, "said": said})
            size += len(said)
    if given:
        if last is None:  # what is in the index is from before it was given up
            connection.execute(CLEAR)
            connection.execute(SET, [{"name": name, "value": value} for name, value in NO_MERGES.items()])
        execute_all(connection, [(PUT, given)])
        connection.execute(SET, {"name": "merge", "value": PAGES_MERGED})
        reached = {"number": given[-1]["number"]}
        connection.execute(insert(search_progress) if last is None else update(search_progress), reached)
    return bool(given)


FOLLOWING: Final = TEXTS.where(messages.c.number > bindparam("last"))
