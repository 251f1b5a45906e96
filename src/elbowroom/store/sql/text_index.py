"""An index of the letters of what was said, three at a time, with which a search need not read everything.

It is SQLite's full-text search with the tokenizer `trigram`. Where a build of SQLite lacks that, no index is made, and
a search reads the messages themselves, as it does those that are not in the index yet.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, bindparam, column, delete, insert, literal, select, table, update
from sqlalchemy.exc import OperationalError

from elbowroom.store.base import StoreUnavailable
from elbowroom.store.message_parts import UNREADABLE, Part, text_in_body, text_in_part
from elbowroom.store.sql.database import Database, writing
from elbowroom.store.sql.schema import message_parts, messages, search_leaving, search_progress

log = logging.getLogger(__name__)
SEARCHED: Final = ("text", "content")
"""The kinds of parts that are searched."""
LETTERS: Final = 3
MOST_LETTERS: Final = 64
"""How much of a longer text is looked up; the whole of it is looked for in what that finds."""
MOST_TERMS: Final = 200
"""How many entries of the index a text of one or two letters may begin; a more common one is soon found without it."""
PAD: Final = "\ue000"
"""Follows each text, so that its last letters begin an entry too; three of them mark a text that is too long."""
LAST_LETTER: Final = "\U0010ffff"
LONGEST_TEXT: Final = 400_000
"""Characters of a text that is put in the index; a longer one counts as found, and is then read."""
CHARACTERS_A_STEP: Final = 40_000
MESSAGES_A_STEP: Final = 200
"""How much is put in the index in a transaction: a chat that wants to write waits some hundredths of a second."""
PAUSE_SECONDS: Final = 0.05
AGAIN_SECONDS: Final = 30.0
"""After how many seconds new messages are put in the index; until then a search reads them."""

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
CLEAR: Final = insert(entries).values(search_index="delete-all")


class TextIndex:
    """Puts messages in the index once they are whole, and takes out those that were deleted, in short transactions."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._stopped = asyncio.Event()
        self._is_missing = False

    def stop(self) -> None:
        """Stop after the transaction that is under way."""
        self._stopped.set()

    async def keep_up(self, wait: float = 0.0) -> None:
        """Bring the index up to date after so many seconds; a failure leaves it behind, with a line in the log."""
        try:
            while not self._is_missing and not await self._is_stopped_within(wait) and await self.step():
                wait = PAUSE_SECONDS
        except StoreUnavailable as error:
            log.debug("What was said could not be put in the index for searches: %s", error)

    async def take_out(self) -> None:
        """Take all deleted messages out. Raises StoreUnavailable."""
        while not self._stopped.is_set() and await self._take_out_some():
            pass

    @writing
    def step(self, connection: Connection) -> bool:
        """Take some deleted messages out, or else put some new ones in; tell whether there may be more."""
        return self._is_there(connection) and (_take_out(connection) or _put_in(connection))

    @writing
    def _take_out_some(self, connection: Connection) -> bool:
        is_any = connection.scalar(select(search_leaving.c.number).limit(1)) is not None
        return is_any and self._is_there(connection) and _take_out(connection)

    def _is_there(self, connection: Connection) -> bool:
        """Make the index where there is none; tell whether this SQLite can. If not, what is in it counts no more."""
        try:
            connection.exec_driver_sql(MAKE_INDEX)
            connection.exec_driver_sql(MAKE_TERMS)
            connection.execute(select(terms.c.term).limit(1))
        except OperationalError as error:
            if not _is_missing(error):
                raise
            log.info("Searches read all messages, for this SQLite has no full-text search by trigrams: %s", error.orig)
            self._is_missing = True
            connection.execute(delete(search_progress))
            connection.execute(delete(search_leaving))
        return not self._is_missing

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopped.wait(), max(seconds, 0.0))
        except TimeoutError:
            return self._stopped.is_set()
        return True


def found_in_index(connection: Connection, search: str) -> tuple[int, Select[Any] | None]:
    """Return up to which number messages are in the index, and what selects the numbers of those that may hold a text.

    That is 0 and None where there is no index, and where it does not help.
    """
    number = connection.scalar(select(search_progress.c.number))
    try:
        asked = _asked(connection, _plain(search)) if number else None
    except OperationalError as error:
        if not _is_missing(error):  # else it was made by another build of SQLite
            raise
        asked = None
    if not number or asked is None:
        return 0, None
    return number, select(entries.c.rowid).where(entries.c.search_index.op("MATCH")(asked))


def _asked(connection: Connection, search: str) -> str | None:
    """Return which entries are asked for, in the language of full-text search; None for too many."""
    some, own = search[:MOST_LETTERS], terms.c.term
    begun = select(own).where(own >= some, own < some + LAST_LETTER).limit(MOST_TERMS + 1 if len(some) < LETTERS else 1)
    found = connection.scalars(begun).all()
    if len(some) >= LETTERS:
        grams = {some[start : start + LETTERS] for start in range(len(some) - LETTERS + 1)}
        return f"({' AND '.join(map(_quoted, sorted(grams)))}) OR {_quoted(PAD * LETTERS)}"
    return " OR ".join(map(_quoted, [*found, PAD * LETTERS])) if len(found) <= MOST_TERMS else None


def _is_missing(error: OperationalError) -> bool:
    return any(words in str(error.orig) for words in MISSING)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _take_out(connection: Connection) -> bool:
    """Take some deleted messages out of the index; tell whether there were any."""
    own = search_leaving.c
    numbers = connection.scalars(select(own.number).distinct().order_by(own.number).limit(MESSAGES_A_STEP)).all()
    size = 0
    for number in numbers:
        rows = connection.execute(LEAVING.where(own.number == number))
        said = _indexed(rows) or ""
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


def _put_in(connection: Connection) -> bool:
    """Put the next messages in, up to one that still grows; tell whether there were any."""
    last = connection.scalar(select(search_progress.c.number))
    given: list[dict[str, Any]] = []
    size = 0
    with connection.execute(FOLLOWING, {"last": last or 0}) as rows:
        for number, parts in groupby(rows, key=attrgetter("number")):
            said = _indexed(parts)
            if said is None or size > CHARACTERS_A_STEP or len(given) == MESSAGES_A_STEP:
                break
            given.append({"number": number, "said": said})
            size += len(said)
    if given:
        if last is None:  # what is in the index is from before it was given up
            connection.execute(CLEAR)
            connection.execute(SET, [{"name": name, "value": value} for name, value in NO_MERGES.items()])
        connection.execute(PUT, given)
        connection.execute(SET, {"name": "merge", "value": PAGES_MERGED})
        reached = {"number": given[-1]["number"]}
        connection.execute(insert(search_progress) if last is None else update(search_progress), reached)
    return bool(given)


FOLLOWING: Final = (
    select(messages.c.number, messages.c.status, message_parts.c.kind, message_parts.c.content)
    .join_from(
        messages,
        message_parts,
        and_(message_parts.c.message == messages.c.id, message_parts.c.kind.in_(SEARCHED)),
        isouter=True,
    )
    .where(messages.c.number > bindparam("last"))
    .order_by(messages.c.number, message_parts.c.position)
)


def _indexed(rows: Iterable[Any]) -> str | None:
    """Return the text of a message as it is put in the index, and given again to take it out; None while it grows."""
    parts = []
    for row in rows:
        if row.status == "streaming":
            return None
        parts.append(Part(row.kind, row.content))
    said = _plain("\n".join([_text(parts), *(text_in_part(part) for part in parts if part.kind == "content")]))
    return said + PAD * (LETTERS - 1) if len(said) <= LONGEST_TEXT else PAD * LETTERS


def _text(parts: Sequence[Part]) -> str:
    texts = [part for part in parts if part.kind == "text"]
    try:
        return text_in_body("".join(part.content for part in texts))
    except UNREADABLE:
        return "\n".join(map(text_in_part, texts))


def _plain(said: str) -> str:
    """Return a text as the index has it: in lower case, without what SQLite does not take."""
    return said.lower().replace("\0", PAD).encode("utf-8", "replace").decode()
