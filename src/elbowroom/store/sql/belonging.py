"""Which conversation a history belongs to: one statement finds it, and pages of keys fill the index in memory."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, String, bindparam, case, func, select, tuple_, union_all

from elbowroom.context.conversation import Known
from elbowroom.context.transcript import SYSTEM_ROLES
from elbowroom.store.base import encoded
from elbowroom.store.index import IndexedConversation, NumberedKeys, name_number, number_of
from elbowroom.store.sql.dialect import listed, role_of
from elbowroom.store.sql.schema import conversations, messages, turns

BETWEEN: Final = ","
CONVERSATIONS_A_PAGE: Final = 25
ROLES: Final = ("", "assistant", *SYSTEM_ROLES)
"""Whose messages are told apart; the first stands for all others."""


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
_known: Final = (
    select(_held.c.conversation, func.max(_held.c.place).label("place"), func.min(_held.c.answer).label("answer"))
    .group_by(_held.c.conversation)
    .subquery()
)


def _of_conversation(name: str) -> Any:
    """Return a column of the conversation that was found; a join would let SQLite walk through all of an owner."""
    return select(conversations.c[name]).where(conversations.c.id == _known.c.conversation).scalar_subquery()


LONGEST_KNOWN: Final = (
    select(_known.c.conversation)
    .where(_of_conversation("owner") == bindparam("owner", type_=String), _known.c.answer <= _known.c.place)
    .order_by(_known.c.place.desc(), _of_conversation("updated").desc(), _known.c.conversation.desc())
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
    given = {"keys": encoded(list(keys)), "owner": owner, "common": common, "length": len(keys)}
    found: str | None = connection.scalar(LONGEST_KNOWN, given)
    return found


def known_of(connection: Connection, conversation: str, keys: Sequence[str]) -> Known:
    """Return a conversation with those of the keys that its messages, or the answers of its turns, have."""
    given = {"keys": encoded(list(keys)), "conversation": conversation}
    rows = [*connection.execute(_KEPT_HEARD, given), *connection.execute(_KEPT_ANSWERS, given)]
    kept = frozenset(keys[row.key] for row in rows if row.conversation == conversation)
    return Known(conversation, kept, bool(connection.scalar(_HAS_MORE, given)))


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
        func.max(turns.c.has_more).label("has_more"),
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
    given = {"ids": [row.id for row in rows]}
    heard, turned = _grouped(connection, _KEYS, given), _grouped(connection, _TURNS, given)
    return [_indexed_one(row, heard[row.id], turned[row.id]) for row in rows]


def _grouped(connection: Connection, statement: Select[Any], given: dict[str, Any]) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(statement, given):
        found[row.conversation].append(row)
    return found


def _indexed_one(row: Row[Any], heard: Sequence[Row[Any]], turned: Sequence[Row[Any]]) -> IndexedConversation:
    by_role: dict[Any, list[int]] = {role: [] for role in ROLES}
    for group in heard:
        by_role[group.role if group.role in by_role else ""] += _numbers(group.keys)
    of_turns = [number for group in turned for number in _numbers(group.keys)]
    return IndexedConversation(
        id=row.id,
        owner=row.owner,
        name=name_number(row.owner, row.name),
        used=row.updated,
        keys=NumberedKeys(
            spoken=by_role[""],
            answers=[*by_role["assistant"], *of_turns],
            system=[number for role in SYSTEM_ROLES for number in by_role[role]],
            unanswered=[number for group in turned for number in _numbers(group.parents)],
        ),
        may_have_hidden=any(group.has_more for group in turned),
    )


def _numbers(keys: str) -> list[int]:
    return [number_of(key) for key in keys.split(BETWEEN) if key]
