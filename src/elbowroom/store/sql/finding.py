"""Finds the conversations in which a text was said."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

from elbowroom.context.conversation import ConversationRow
from elbowroom.store.message_parts import Part, body, text_in_part
from elbowroom.store.sql.reading import conversation_row
from elbowroom.store.sql.schema import conversations, message_parts, messages

ESCAPE: Final = "!"
SEARCHED: Final = ("text", "content")
MOST_SEARCHED: Final = 16
"""How many characters SQL looks for, whose expressions have bounds; the whole text is looked for in what that finds."""
PARTS_A_LOOK: Final = 20
"""How many parts that may hold a text are read at once."""
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
    own = messages.c.conversation == conversations.c.id
    statement = candidates.where(_parts_that_may_hold(search).where(own).correlate(conversations).exists())
    found: list[ConversationRow] = []
    for start in count(0, limit):
        rows = connection.execute(statement.limit(limit).offset(start)).all()
        found += [conversation_row(row) for row in rows if _holds(connection, row.id, search)]
        if len(found) >= limit or len(rows) < limit:
            break
    return found[:limit]


def _holds(connection: Connection, conversation: str, search: str) -> bool:
    """Tell whether a conversation holds a text, not only JSON that looks like it."""
    statement = _parts_that_may_hold(search).where(messages.c.conversation == conversation)
    statement = statement.order_by(messages.c.number, message_parts.c.position).limit(PARTS_A_LOOK)
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
