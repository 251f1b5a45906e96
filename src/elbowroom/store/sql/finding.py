"""Finds conversations: the one that a history goes on with, also for the index, and those that hold a text."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    and_,
    bindparam,
    case,
    func,
    or_,
    select,
    tuple_,
    union_all,
)

from elbowroom.context.conversation import ConversationRow, Known
from elbowroom.store.base import decoded_text, encoded
from elbowroom.store.changes import is_sound
from elbowroom.store.index import IndexedConversation, name_number, number_of
from elbowroom.store.message_parts import Part, body, text_in_part
from elbowroom.store.sql.dialect import batched, listed, role_of
from elbowroom.store.sql.reading import conversation_row
from elbowroom.store.sql.schema import conversations, message_parts, messages, turns
from elbowroom.store.sql.search import SEARCHED, found_in_index

NO_KEY: Final = "?"
BETWEEN: Final = ","
CONVERSATIONS_A_PAGE: Final = 25


def _plain(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return a column as it is, for which no index is used: thousands of turns may have the same."""
    return func.coalesce(column, "")


_asked: Final = listed("keys")
"""The keys of a history in order; a place counts from 1."""
_place: Final = _asked.c.key + 1
_is_specific: Final = _asked.c.key >= bindparam("common")
_HEARD: Final = (
    select(
        messages.c.conversation,
        _place.label("place"),
        case((role_of(messages.c.fields) == "assistant", _place)).label("answer"),
    )
    .join_from(_asked, messages, messages.c.key == _asked.c.value)
    .where(_is_specific)
)
_ANSWERED: Final = (
    select(turns.c.conversation, _place, _place)
    .join_from(_asked, turns, turns.c.key == _asked.c.value)
    .where(_is_specific, turns.c.key != "")
)
_INTERRUPTED: Final = (
    select(turns.c.conversation, _place, _place)
    .join_from(_asked, turns, turns.c.parent == _asked.c.value)
    .where(_plain(turns.c.key) == "", _plain(turns.c.status) == "interrupted", _place < bindparam("length"))
)
_held: Final = union_all(_HEARD, _ANSWERED, _INTERRUPTED).subquery()
_beginnings: Final = (
    select(_held.c.conversation, func.max(_held.c.place).label("place"), func.min(_held.c.answer).label("answer"))
    .group_by(_held.c.conversation)
    .subquery()
)


def _of_conversation(name: str) -> Any:
    """Return a column of the conversation that was found; a join would let SQLite walk through all of an owner."""
    return select(conversations.c[name]).where(conversations.c.id == _beginnings.c.conversation).scalar_subquery()


LONGEST_KNOWN: Final = (
    select(_beginnings.c.conversation)
    .where(_of_conversation("owner") == bindparam("owner", type_=String), _beginnings.c.answer <= _beginnings.c.place)
    .order_by(_beginnings.c.place.desc(), _of_conversation("updated").desc(), _beginnings.c.conversation.desc())
    .limit(1)
)
"""The conversation that knows the longest beginning with an answer, of several the one that was used last.

The first `common` keys stand in many conversations and find none, except where an interrupted turn has answered them.
"""
_KEPT_HEARD: Final = select(_asked.c.key, messages.c.conversation).join_from(
    _asked,
    messages,
    (messages.c.key == _asked.c.value) & (messages.c.conversation == bindparam("conversation", type_=String)),
)
_KEPT_ANSWERS: Final = select(_asked.c.key, turns.c.conversation).join_from(
    _asked, turns, turns.c.key == _asked.c.value
)
_HAS_MORE: Final = select(
    select(turns.c.id)
    .where(turns.c.conversation == bindparam("conversation", type_=String), turns.c.has_more)
    .limit(1)
    .exists()
)


def longest_known(connection: Connection, owner: str, keys: Sequence[str], common: int) -> str | None:
    """Return the conversation that a history with these keys goes on with; `owner` is the key of its owner."""
    given = {"keys": _listed_keys(keys), "owner": owner, "common": common, "length": len(keys)}
    found: str | None = connection.scalar(LONGEST_KNOWN, given)
    return found


def known_of(connection: Connection, conversation: str, keys: Sequence[str]) -> Known:
    """Return a conversation with those of the keys that its messages, or the answers of its turns, have."""
    given = {"keys": _listed_keys(keys), "conversation": conversation}
    rows = [*connection.execute(_KEPT_HEARD, given), *connection.execute(_KEPT_ANSWERS, given)]
    kept = frozenset(keys[row.key] for row in rows if row.conversation == conversation)
    return Known(conversation, kept, bool(connection.scalar(_HAS_MORE, given)))


def _listed_keys(keys: Sequence[str]) -> str:
    """Return keys as a JSON list; one that no message has keeps its place by what is no key, for it may be any text."""
    return encoded([key if is_sound(key) else NO_KEY for key in keys])


_own = conversations.c
_ROWS: Final = select(_own.id, _own.owner, _own.name, _own.updated)
_PAGE: Final = _ROWS.where(_own.updated >= 0).order_by(_own.updated.desc(), _own.id.desc()).limit(CONVERSATIONS_A_PAGE)
_PAGE_AFTER: Final = _PAGE.where(
    tuple_(_own.updated, _own.id) < tuple_(bindparam("updated"), bindparam("id", type_=String))
)
_SOME: Final = _ROWS.where(_own.id.in_(bindparam("ids", expanding=True)))
_ROLE: Final = role_of(messages.c.fields)
_KEYS: Final = (
    select(messages.c.conversation, _ROLE.label("role"), func.aggregate_strings(messages.c.key, BETWEEN).label("keys"))
    .where(messages.c.conversation.in_(bindparam("ids", expanding=True)), messages.c.key.is_not(None))
    .group_by(messages.c.conversation, _ROLE)
)
_TURNS: Final = (
    select(
        turns.c.conversation,
        func.aggregate_strings(turns.c.key, BETWEEN).label("keys"),
        func.aggregate_strings(
            case(((turns.c.key == "") & (turns.c.status == "interrupted"), turns.c.parent), else_=""), BETWEEN
        ).label("parents"),
        func.max(case((turns.c.has_more, 1), else_=0)).label("has_more"),
    )
    .where(turns.c.conversation.in_(bindparam("ids", expanding=True)))
    .group_by(turns.c.conversation)
)


def page_of_index(connection: Connection, after: tuple[float, str] | None) -> list[IndexedConversation]:
    """Return some conversations with their keys, the one used last first; `after` is the last one of the page before.

    A conversation that is being deleted is left out.
    """
    given = {"updated": after[0], "id": after[1]} if after is not None else {}
    return _indexed(connection, connection.execute(_PAGE_AFTER if after is not None else _PAGE, given).all())


def some_of_index(connection: Connection, ids: Sequence[str]) -> list[IndexedConversation]:
    """Return these conversations with their keys, as far as they are there."""
    return _indexed(connection, connection.execute(_SOME, {"ids": list(ids)}).all())


def _indexed(connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]) -> list[IndexedConversation]:
    if not rows:
        return []
    given = {"ids": [row.id for row in rows]}
    heard, turned = _grouped(connection, _KEYS, given), _grouped(connection, _TURNS, given)
    return [_indexed_one(row, heard[row.id], turned[row.id]) for row in rows]


def _grouped(connection: Connection, statement: Select[Any], given: dict[str, Any]) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(statement, given):
        found[row.conversation].append(row)
    return found


def _indexed_one(row: Row[Any], heard: Sequence[Row[Any]], turned: Sequence[Row[Any]]) -> IndexedConversation:
    spoken = [number for group in heard if group.role != "assistant" for number in _numbers(group.keys)]
    answers = [*(group for group in heard if group.role == "assistant"), *turned]
    return IndexedConversation(
        id=row.id,
        owner=row.owner,
        name=name_number(row.owner, row.name),
        used=row.updated,
        keys=[*spoken, *(number | 1 for group in answers for number in _numbers(group.keys))],
        unanswered=[number for group in turned for number in _numbers(group.parents)],
        may_have_hidden=any(group.has_more for group in turned),
    )


def _numbers(keys: str) -> list[int]:
    return [number_of(key) for key in keys.split(BETWEEN) if key]


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
    """Return the first of the candidates that hold a text, in their messages or the title that a person gave them."""
    others, known = _known(connection, search)
    holding_parts = _may_hold(search, others, sorted(known))
    with connection.execute(candidates.where(holding_parts | _may_be_titled(search))) as rows:
        holding = (
            row
            for row in rows
            if row.id in known or _is_titled(row, search) or _holds(connection, row.id, search, others)
        )
        return [conversation_row(row) for row in islice(holding, limit)]


def _known(connection: Connection, search: str) -> tuple[ColumnElement[bool] | None, set[str]]:
    """Return which messages the index does not know, and the conversations in which others hold a text.

    The first is None where the index does not help, or too many may hold the text: it is soon found by reading.
    """
    indexed = found_in_index(connection, search)
    if indexed is None:
        return None, set()
    numbers = connection.scalars(indexed.numbers.limit(MOST_FOUND + 1)).all()
    if len(numbers) > MOST_FOUND:
        return None, set()
    known: set[str] = set()
    for some in batched(numbers):
        statement = _parts_that_may_hold(search).add_columns(messages.c.conversation)
        for row in connection.execute(statement.where(messages.c.number.in_(some))):
            if row.conversation not in known and _any_holds([row], search.lower()):
                known.add(row.conversation)
    return indexed.others, known


def _may_hold(search: str, others: ColumnElement[bool] | None, known: Sequence[str]) -> ColumnElement[bool]:
    """Tell in SQL which conversations hold a text, or may do so in messages that the index does not know."""
    own, this = messages.c, conversations.c.id
    parts = _parts_that_may_hold(search).where(own.conversation == this)
    if others is None:
        return parts.correlate(conversations).exists()
    other_may = parts.where(others).correlate(conversations).exists()
    has_others = this.in_(select(own.conversation).where(others))
    return or_(*(this.in_(some) for some in batched(known)), and_(has_others, other_may))


def _may_be_titled(search: str) -> ColumnElement[bool]:
    return _json_like(conversations.c.renamed, search)


def _is_titled(row: Row[Any], search: str) -> bool:
    return row.renamed is not None and search.lower() in decoded_text(row.renamed).lower()


def _holds(connection: Connection, conversation: str, search: str, others: ColumnElement[bool] | None) -> bool:
    """Tell whether those messages of a conversation hold a text, not only JSON that looks like it."""
    own = messages.c
    statement = _parts_that_may_hold(search).where(own.conversation == conversation)
    statement = statement if others is None else statement.where(others)
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
        .where(message_parts.c.kind.in_(SEARCHED), _json_like(CONTENT, search))
    )


def _json_like(text: ColumnElement[Any], search: str) -> ColumnElement[bool]:
    """Tell in SQL whether a JSON text looks as if it held another text: true for all that do, and for few others."""
    content: ColumnElement[Any] = func.lower(text)
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
