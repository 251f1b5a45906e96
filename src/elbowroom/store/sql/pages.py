"""Reads some messages of a conversation without reading the others.

A branch is walked in SQL, from its end back by the keys of its places; what is read of the walk are a few rows.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.types import TypeEngine

from elbowroom.context.branch import ConversationTree, never_shown
from elbowroom.context.conversation import KeptMessage, MessagePage, PageWanted
from elbowroom.context.transcript import SYSTEM_ROLES
from elbowroom.store.changes import is_sound
from elbowroom.store.message_parts import UNREADABLE
from elbowroom.store.sql.dialect import KEY, batched
from elbowroom.store.sql.reading import kept_messages, numbered_from_one
from elbowroom.store.sql.schema import messages, turns

MORE_EACH_TIME: Final = 4
"""How many times as much is read where most of what was read is hidden."""
LOOKED_AT: Final = 50
"""How many of the newest messages are looked at, at once, for one that is no system message."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the tree: a turn, or else the message with this number, that a client has sent."""

    turn: str
    number: int
    key: str
    parent: str


UNKNOWN: Final = MessagePage((), is_known=False)


def read_page(connection: Connection, conversation: Row[Any], wanted: PageWanted) -> MessagePage:
    """Return the messages that are wanted."""
    cursor = _message(connection, conversation.id, wanted.cursor) if wanted.cursor else None
    if wanted.cursor and cursor is None:
        return UNKNOWN
    read = _read_branch if wanted.is_latest else _read_in_order
    size = wanted.limit + 1
    while True:
        found, is_all = read(connection, conversation, wanted, cursor, size)
        if found is None:
            return UNKNOWN
        hidden = never_shown(found)
        shown = [kept for kept in _beyond(found, wanted) if wanted.with_hidden or kept.id not in hidden]
        if is_all or len(shown) > wanted.limit:
            break
        size *= MORE_EACH_TIME
    asked = shown[-wanted.limit :] if wanted.is_backward else shown[: wanted.limit]
    page = numbered_from_one(connection, conversation.id, asked)
    return MessagePage(page, hidden.intersection(kept.id for kept in page), len(shown) > wanted.limit)


def read_message(connection: Connection, conversation: Row[Any], message: str) -> MessagePage:
    """Return one message, alone on its page."""
    row = _message(connection, conversation.id, message)
    if row is None:
        return UNKNOWN
    of_turn = _kept(connection, conversation, [] if row.turn else [row.number], [row.turn] if row.turn else [])
    found = numbered_from_one(connection, conversation.id, [kept for kept in of_turn if kept.id == message])
    return MessagePage(found, never_shown(of_turn).intersection([message]), is_known=bool(found))


def _message(connection: Connection, conversation: str, message: str) -> Row[Any] | None:
    own = messages.c
    if not is_sound(message):
        return None
    return connection.execute(select(messages).where(own.id == message, own.conversation == conversation)).first()


def _beyond(found: Sequence[KeptMessage], wanted: PageWanted) -> Sequence[KeptMessage]:
    """Return those on the wanted side of the cursor."""
    place = next((place for place, kept in enumerate(found) if kept.id == wanted.cursor), None)
    if place is None:
        return found
    return found[:place] if wanted.is_backward else found[place + 1 :]


Read = tuple[Sequence[KeptMessage] | None, bool]
"""Messages in order, None where the cursor is not among them, and whether no others come on the wanted side."""


def _read_in_order(
    connection: Connection, conversation: Row[Any], wanted: PageWanted, cursor: Row[Any] | None, size: int
) -> Read:
    """Return messages in the order in which they came in, with all that were said in the same turns."""
    own = messages.c
    statement = select(own.number, own.turn).where(own.conversation == conversation.id).limit(size)
    if cursor is not None:
        statement = statement.where(own.number < cursor.number if wanted.is_backward else own.number > cursor.number)
    ordered = statement.order_by(own.number.desc() if wanted.is_backward else own.number)
    rows: list[Row[Any]] = list(connection.execute(ordered))
    meant = [*rows, cursor] if cursor is not None else rows
    numbers = {row.number for row in meant}
    found = _kept(connection, conversation, *_divided(meant))
    return [kept for kept in found if kept.number in numbers], len(rows) < size


def _divided(rows: Iterable[Row[Any]]) -> tuple[list[int], list[str]]:
    """Return the numbers of messages that clients have sent, and the turns of the others."""
    sent, of_turns = [], []
    for row in rows:
        if row.turn:
            of_turns.append(row.turn)
        else:
            sent.append(row.number)
    return sent, list(dict.fromkeys(of_turns))


def _kept(
    connection: Connection, conversation: Row[Any], numbers: Sequence[int], of_turns: Sequence[str]
) -> list[KeptMessage]:
    """Return the messages with these numbers, and all of these turns, in order."""
    found = [
        *(
            kept
            for some in batched(numbers)
            for kept in kept_messages(connection, conversation, messages.c.number.in_(some))
        ),
        *(
            kept
            for some in batched(of_turns)
            for kept in kept_messages(connection, conversation, messages.c.turn.in_(some))
        ),
    ]
    return sorted(found, key=lambda kept: kept.number)


def _read_branch(
    connection: Connection, conversation: Row[Any], wanted: PageWanted, cursor: Row[Any] | None, size: int
) -> Read:
    """Return messages of the branch that was used last, at least so many on the wanted side of the cursor."""
    end = _end(connection, conversation.id)
    if end is None:  # nothing but system messages
        return _read_in_order(connection, conversation, wanted, cursor, size)
    if wanted.is_backward and (start := _sure_place(connection, cursor)):
        end = start  # what comes before it is the same, whatever comes after it
    newest, oldest = _bounds(connection, conversation.id, end, cursor, size, is_backward=wanted.is_backward)
    places = _places(connection, conversation.id, end, newest, oldest)
    is_root = len(places) <= oldest - newest
    found = _said(connection, conversation, places[::-1], is_root=is_root, is_end=newest == 0)
    is_known = cursor is None or any(kept.id == cursor.id for kept in found)
    return (found, is_root if wanted.is_backward else newest == 0) if is_known else (None, True)


def _sure_place(connection: Connection, cursor: Row[Any] | None) -> Place | None:
    """Return the place of a message if every branch with the message goes through that place."""
    if cursor is None or _is_system(cursor):
        return None
    place = _place_of(connection, cursor)
    if place is None or not place.key:
        return None
    unfinished = exists().where(messages.c.turn == place.turn, messages.c.status != "complete")
    return None if place.turn and connection.scalar(select(unfinished)) else place


def _bounds(
    connection: Connection, conversation: str, end: Place, cursor: Row[Any] | None, size: int, *, is_backward: bool
) -> tuple[int, int]:
    """Return how far from the end the newest and the oldest place are that have to be read."""
    if is_backward:
        depth = _depth(connection, conversation, end, cursor) if cursor is not None else 0
        return max(0, depth - 1), depth + size
    depth = _depth(connection, conversation, end, cursor)
    return max(0, depth - size - 1), depth + 1


def _depth(connection: Connection, conversation: str, end: Place, cursor: Row[Any] | None) -> int:
    """Return how far from the end the message at the cursor stands, or beside what; without one, the beginning."""
    path, most = _path(), _count(connection, conversation)
    given = _given(conversation, end, most)
    passed: set[str] = set()
    while cursor is not None:
        if cursor.id in passed:
            return most  # another program has made a ring
        passed.add(cursor.id)
        own = path.c.turn == cursor.turn if cursor.turn else path.c.number == cursor.number
        depth = connection.scalar(select(path.c.depth).where(own).limit(1), given)
        if depth is not None:
            return int(depth)
        if not (cursor.turn or _is_system(cursor)):
            return most  # it stands in another branch
        cursor = _parent_of(connection, conversation, cursor)
    return int(connection.scalar(select(func.max(path.c.depth)), given) or 0) + 1


def _parent_of(connection: Connection, conversation: str, row: Row[Any]) -> Row[Any] | None:
    """Return a message of the place that a message stands after."""
    place = _place_of(connection, row)
    if place is None:
        return None
    answer = select(turns.c.id).where(*_turns_at(place.parent, conversation)).order_by(*LAST_FIRST).limit(1)
    turn = connection.scalar(answer)
    own = messages.c
    condition = own.turn == turn if turn else and_(own.conversation == conversation, own.key == place.parent)
    return connection.execute(select(messages).where(condition).limit(1)).first()


LAST_FIRST: Final = (turns.c.began.desc(), turns.c.id.desc())
"""Of several turns with the same answer the last stands for it."""


def _turns_at(key: Any, conversation: Any) -> tuple[ColumnElement[bool], ...]:
    """Select the turns whose answer has this key; the index of keys is meant, not the one of conversations."""
    own = turns.c
    has_said = exists().where(messages.c.turn == own.id)
    return own.key == key, own.key != "", own.conversation.concat("") == conversation, has_said


def _path() -> CTE:
    """Return the places of a branch from its end back, numbered by `depth` from 0; an answer stands for its turn."""
    conversation, own = bindparam("conversation", type_=KEY), messages.c
    first: Select[Any] = select(
        literal(0).label("depth"),
        *(bindparam(f"end_{name}", type_=kind).label(name) for name, kind in PLACE.items()),
    )
    path = first.cte("path", recursive=True)
    goes_on = path.c.depth < bindparam("most", type_=Integer())
    last = select(turns.c.id).where(*_turns_at(path.c.parent, conversation)).order_by(*LAST_FIRST).limit(1)
    answer = last.correlate(path).scalar_subquery()
    deeper = path.c.depth + 1
    answered = path.outerjoin(turns, turns.c.id == answer)
    before = and_(own.conversation == conversation, own.key == path.c.parent, turns.c.id.is_(None))
    next_place = (
        deeper,
        func.coalesce(turns.c.id, ""),
        func.coalesce(own.number, 0),
        func.coalesce(turns.c.key, own.key),
        func.coalesce(turns.c.parent, own.parent),
    )
    is_any = or_(turns.c.id.is_not(None), own.number.is_not(None))
    return path.union_all(select(*next_place).select_from(answered.outerjoin(messages, before)).where(goes_on, is_any))


PLACE: Final[dict[str, TypeEngine[Any]]] = {
    "turn": KEY,
    "number": BigInteger(),
    "key": KEY,
    "parent": KEY,
}


def _given(conversation: str, end: Place, most: int) -> dict[str, Any]:
    """Return the values of a walk, which ends after `most` places also where another program has made a ring."""
    return {"conversation": conversation, "most": most} | {f"end_{name}": getattr(end, name) for name in PLACE}


def _places(connection: Connection, conversation: str, end: Place, newest: int, oldest: int) -> list[Place]:
    """Return the places of a branch that are so far from its end, the newest first."""
    path = _path()
    statement = select(path).where(path.c.depth >= newest).order_by(path.c.depth)
    rows = connection.execute(statement, _given(conversation, end, oldest))
    return [Place(row.turn, row.number, row.key, row.parent) for row in rows]


def _count(connection: Connection, conversation: str) -> int:
    return connection.scalar(select(func.count()).where(messages.c.conversation == conversation)) or 0


def _said(
    connection: Connection, conversation: Row[Any], path: Sequence[Place], *, is_root: bool, is_end: bool
) -> list[KeptMessage]:
    """Return the messages along places, the oldest first; the last is left out unless it is the end of the branch."""
    keys = [place.parent for place in (path if is_root else path[1:])] + [place.key for place in path[-1:]]
    beside = _turns_after(connection, conversation.id, keys)
    own = [place.turn for place in path if place.turn]
    read = _kept(connection, conversation, [place.number for place in path if not place.turn], list({*own, *beside}))
    systems = _systems_after(connection, conversation, keys, 0 if is_root else read[0].number)
    tree = ConversationTree.of([*read, *systems])
    nodes = {(node.last.turn, 0 if node.is_turn else node.last.number): node for node in tree.nodes}
    found = [nodes[place.turn, place.number] for place in path if (place.turn, place.number) in nodes]
    head = tree.beside(found[0].parent, found[0]) if is_root and found else ()
    return [*head, *tree.along([*found, None] if is_end else found)]


def _turns_after(connection: Connection, conversation: str, keys: Sequence[str]) -> list[str]:
    """Return the turns that begin after these places."""
    own = turns.c
    statement = select(own.id).where(own.conversation.concat("") == conversation)
    return [turn for some in batched(keys) for turn in connection.scalars(statement.where(own.parent.in_(some)))]


def _systems_after(connection: Connection, conversation: Any, keys: Sequence[str], first: int) -> list[KeptMessage]:
    """Return system messages after these places, and after each other, none with a number below `first`."""
    own = messages.c
    statement = select(own.number, own.turn, own.key, own.parent, own.fields).where(
        own.conversation == conversation.id, own.number >= first, own.turn == "", or_(*map(own.fields.like, SYSTEM))
    )
    following: dict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(statement):
        following[row.parent].append(row)
    found, reached = set[int](), list(keys)
    while reached:
        rows = following.pop(reached.pop(), ())
        found.update(row.number for row in rows)
        reached += [row.key for row in rows if row.key is not None and _is_system(row)]
    return _kept(connection, conversation, sorted(found), [])


SYSTEM: Final = [f'%"role":"{role}"%' for role in SYSTEM_ROLES]


def _end(connection: Connection, conversation: str) -> Place | None:
    """Return the place of the newest message that is no system message."""
    own = messages.c
    newest = select(messages).where(own.conversation == conversation).order_by(own.number.desc()).limit(LOOKED_AT)
    rows = connection.execute(newest).all()
    while rows:
        for row in rows:
            if not _is_system(row) and (place := _place_of(connection, row)):
                return place
        rows = connection.execute(newest.where(own.number < rows[-1].number)).all()
    return None


def _is_system(row: Row[Any]) -> bool:
    try:
        return not row.turn and json.loads(row.fields).get("role") in SYSTEM_ROLES
    except UNREADABLE:
        return True  # it has no place


def _place_of(connection: Connection, row: Row[Any]) -> Place | None:
    """Return the place of a message; None where it has none."""
    if not row.turn:
        return Place("", row.number, row.key, row.parent) if row.key is not None else None
    turn = connection.execute(select(turns).where(turns.c.id == row.turn)).first()
    return Place(turn.id, 0, turn.key, turn.parent) if turn is not None else None
