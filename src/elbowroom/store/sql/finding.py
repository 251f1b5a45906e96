"""Finds the conversations in which a text was said."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select

from elbowroom.context.conversation import ConversationRow
from elbowroom.store.message_parts import Part, body, text_in_part
from elbowroom.store.sql.dialect import batched
from elbowroom.store.sql.reading import conversation_row
from elbowroom.store.sql.schema import conversations, message_parts, messages
from elbowroom.store.sql.text_index import SEARCHED, found_in_index

ESCAPE: Final = "!"
MOST_SEARCHED: Final = 16
"""How many characters SQL looks for, whose expressions have bounds; the whole text is looked for in what that finds."""
PARTS_A_LOOK: Final = 20
"""How many parts that may hold a text are read at once."""
MOST_FOUND: Final = 2_000
"""How many messages that may hold a text are taken from the index."""
next_part: Final = message_parts.alias()
"""The part after one: a text that is looked for may go on there."""
GOES_ON: Final = and_(
    next_part.c.message == message_parts.c.message,
    next_part.c.position == message_parts.c.position + 1,
    message_parts.c.kind == "text",
    next_part.c.kind == "text",
)
CONTENT: Final = message_parts.c.content.concat(func.coalesce(next_part.c.content, ""))


def searched(connection: Connection, candidates: Select[Any], search: str, limit: int) -> list[ConversationRow]:
    """Return the first of the candidates that hold a text."""
    last, known = _known(connection, search)
    with connection.execute(candidates.where(_may_hold(search, last, sorted(known)))) as rows:
        holding = (row for row in rows if row.id in known or _holds(connection, row.id, search, last))
        return [conversation_row(row) for row in islice(holding, limit)]


def _known(connection: Connection, search: str) -> tuple[int, set[str]]:
    """Return up to which number the index tells of messages, and the conversations in which these hold a text.

    The number is 0 where too many may hold it: such a text is soon found by reading.
    """
    last, found = found_in_index(connection, search)
    numbers = connection.scalars(found.limit(MOST_FOUND + 1)).all() if found is not None else []
    if len(numbers) > MOST_FOUND:
        return 0, set()
    known: set[str] = set()
    for some in batched(numbers):
        statement = _parts_that_may_hold(search).add_columns(messages.c.conversation)
        for row in connection.execute(statement.where(messages.c.number.in_(some))):
            if row.conversation not in known and _any_holds([row], search.lower()):
                known.add(row.conversation)
    return last, known


def _may_hold(search: str, last: int, known: Sequence[str]) -> ColumnElement[bool]:
    """Tell in SQL which conversations hold a text, or may do so in messages after the last that is in the index."""
    own, this = messages.c, conversations.c.id
    newer = _parts_that_may_hold(search).where(own.conversation == this, own.number > last)
    newer_may = newer.correlate(conversations).exists()
    if not last:
        return newer_may
    is_newer = this.in_(select(own.conversation).where(own.number > last))
    return or_(*(this.in_(some) for some in batched(known)), and_(is_newer, newer_may))


def _holds(connection: Connection, conversation: str, search: str, last: int) -> bool:
    """Tell whether the messages of a conversation after this number hold a text, not only JSON that looks like it."""
    own = messages.c
    statement = _parts_that_may_hold(search).where(own.conversation == conversation, own.number > last)
    statement = statement.order_by(own.number, message_parts.c.position).limit(PARTS_A_LOOK)
    holds, start, read = False, 0, PARTS_A_LOOK
    while not holds and read == PARTS_A_LOOK:
        rows = connection.execute(statement.offset(start)).all()
        holds = _any_holds(rows, search.lower())
        start, read = start + PARTS_A_LOOK, len(rows)
    return holds


def _parts_that_may_hold(search: str) -> Select[Any, Any]:
    return (
        select(message_parts.c.kind, CONTENT.label("text"))
        .join(messages, messages.c.id == message_parts.c.message)
        .outerjoin(next_part, GOES_ON)
        .where(message_parts.c.kind.in_(SEARCHED), _content_like(search))
    )


def _content_like(search: str) -> ColumnElement[bool]:
    """Tell in SQL whether the JSON of a part looks as if it held a text: true for all that do, and for few others."""
    content: ColumnElement[Any] = func.lower(CONTENT)
    beginning = search.lower()[:MOST_SEARCHED]
    for letter in sorted(set(beginning)):
        if not letter.isascii() and len(letter.upper()) == 1 and letter.upper() != letter:
            content = func.replace(content, body(letter.upper()), body(letter))
    return content.like(f"%{_escaped(body(beginning))}%", escape=ESCAPE)


def _escaped(text: str) -> str:
    for letter in (ESCAPE, "%", "_"):
        text = text.replace(letter, ESCAPE + letter)
    return text


def _any_holds(rows: Sequence[Row[Any, Any]], search: str) -> bool:
    return any(search in text_in_part(Part(row.kind, row.text)).lower() for row in rows)
