"""Finds conversations: the one that a history goes on with, and those in which a text was said."""

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select, union_all

from elbowroom.context.conversation import ConversationRow
from elbowroom.store.changes import is_sound_id
from elbowroom.store.message_parts import UNREADABLE, Part, body, text_in_part
from elbowroom.store.sql.dialect import MOST_VARIABLES, batched
from elbowroom.store.sql.reading import conversation_row
from elbowroom.store.sql.schema import conversations, message_parts, messages, turns
from elbowroom.store.sql.text_index import SEARCHED, found_in_index

FIRST_LOOK: Final = 20
"""How many keys from the end are asked for first: mostly all but the last one or two are known."""


def keys_of(connection: Connection, conversation: str) -> frozenset[str]:
    """Return the keys of a conversation's messages: of the client's, and of the answers of turns."""
    heard = select(messages.c.key).where(messages.c.conversation == conversation, messages.c.key.is_not(None))
    answered = select(turns.c.key).where(turns.c.conversation == conversation, turns.c.key != "")
    return frozenset(connection.scalars(union_all(heard, answered)))


def longest_known(connection: Connection, owner: str, keys: Sequence[str]) -> str | None:
    """Return the conversation that has the longest beginning with an answer, of several the one that was used last."""
    for start, some in _from_the_end(keys):
        answered = _answered(connection, start, some, last=keys[-1])
        # Where nothing comes before these keys a conversation without an answer among them has none.
        places = _places(connection, start, some, set(answered) if start == 0 else None)
        for place, conversation in _newest_first(connection, owner, places):
            if answered.get(conversation, place + 1) <= place or _has_answer(connection, conversation, keys[:start]):
                return conversation
    return None


def _from_the_end(keys: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    end, size = len(keys), FIRST_LOOK
    while end:
        start = max(0, end - size)
        yield start, keys[start:end]
        end, size = start, MOST_VARIABLES


def _answered(connection: Connection, start: int, keys: Sequence[str], last: str) -> dict[str, int]:
    """Return the conversations that have an answer with one of these keys, or after it, and the first such place."""
    places = {key: place for place, key in enumerate(keys, start + 1) if is_sound_id(key)}
    found: dict[str, int] = {}
    for conversation, key in _answers(connection, list(places), last):
        found[conversation] = min(places[key], found.get(conversation, places[key]))
    return found


def _answers(connection: Connection, keys: Sequence[str], last: str, within: str = "") -> Iterator[tuple[str, str]]:
    """Yield conversations, or the one asked for, with the keys of answers in them.

    An answer is one of a turn or of the client, or one that was interrupted before its key was known: that one counts
    where the history goes on after its parent.
    """
    own = turns.c
    ended = select(own.conversation, own.key).where(own.key.in_(keys))
    begun = select(own.conversation, own.parent).where(own.parent.in_(keys), own.key == "", own.status == "interrupted")
    heard = select(messages.c.conversation, messages.c.key, messages.c.fields).where(
        messages.c.key.in_(keys), messages.c.fields.like('%"role":"assistant"%')
    )
    if within:
        ended, begun = ended.where(own.conversation == within), begun.where(own.conversation == within)
        heard = heard.where(messages.c.conversation == within)
    yield from ((row[0], row[1]) for row in connection.execute(ended))
    yield from ((row[0], row[1]) for row in connection.execute(begun) if row[1] != last)
    yield from ((row[0], row[1]) for row in connection.execute(heard) if _is_answer(row))


def _places(connection: Connection, start: int, keys: Sequence[str], only: Collection[str] | None) -> dict[str, int]:
    """Return the conversations, or those of `only`, that have some of these keys, and how far each knows them."""
    places = {key: place for place, key in enumerate(keys, start + 1) if is_sound_id(key)}
    found: dict[str, int] = {}
    for some in [None] if only is None else batched(sorted(only)):
        for table in (messages, turns):
            statement = select(table.c.conversation, table.c.key).where(table.c.key.in_(list(places)))
            if some is not None:
                statement = statement.where(table.c.conversation.in_(some))
            for row in connection.execute(statement):
                found[row.conversation] = max(places[row.key], found.get(row.conversation, 0))
    return found


def _newest_first(connection: Connection, owner: str, places: dict[str, int]) -> list[tuple[int, str]]:
    """Return those of the owner, the one that knows most first, of several the one that was used last.

    They are asked for by their ids alone: given the owner, SQLite would walk through all of the owner's.
    """
    own = conversations.c
    found = [
        (places[row.id], row.updated, row.id)
        for some in batched(sorted(places))
        for row in connection.execute(select(own.id, own.owner, own.updated).where(own.id.in_(some)))
        if row.owner == owner
    ]
    return [(place, conversation) for place, _, conversation in sorted(found, reverse=True)]


def _has_answer(connection: Connection, conversation: str, beginning: Sequence[str]) -> bool:
    sound = list(filter(is_sound_id, beginning))
    return any(True for some in batched(sound) for _ in _answers(connection, some, "", conversation))


def _is_answer(row: Row[*tuple[Any, ...]]) -> bool:
    try:
        return bool(json.loads(row.fields).get("role") == "assistant")
    except UNREADABLE:
        return False


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
