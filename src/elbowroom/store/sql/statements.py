"""The SQL that writes changes of conversations; a statement that refers to nothing does nothing."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Boolean,
    ColumnElement,
    Delete,
    Insert,
    Table,
    Update,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert as insert_or_update  # which SQLite says in the same words
from sqlalchemy.types import TypeEngine

from elbowroom.store.base import encoded
from elbowroom.store.changes import is_sound
from elbowroom.store.sql.dialect import skipping
from elbowroom.store.sql.schema import (
    LARGEST_PART,
    compactions,
    conversations,
    message_parts,
    messages,
    queue,
    queue_receipts,
    step_usage,
    turns,
)

COUNTERS: Final = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")
FILL: Final = ("fill_tokens", "fill_window", "fill_trigger", "fill_stop_at", "fill_turn")


def bound(name: str, kind: TypeEngine[Any] | None = None) -> BindParameter[Any]:
    """Return the place of a value, which is given as `new_` and the name."""
    return bindparam(f"new_{name}", type_=kind)


def values(**given: Any) -> dict[str, Any]:
    """Return values under the names that the statements give them. Raises ValueError for one that no database takes."""
    named = {}
    for name, value in given.items():
        if not is_sound(value):
            raise ValueError(f"no database takes its {name}")
        named[f"new_{name}"] = value
    return named


def _inserting(table: Table, taken: Mapping[str, ColumnElement[Any]], condition: ColumnElement[bool]) -> Insert:
    """Insert a row where the condition is true; columns that are not `taken` from elsewhere are given."""
    columns = _columns(table, taken)
    return insert(table).from_select(list(columns), select(*columns.values()).where(condition))


def _inserting_each(table: Table, taken: dict[str, ColumnElement[Any]]) -> Insert:
    """Insert a row, unless it is there or what its message or conversation is taken from is not.

    Requests bring hundreds of such rows: a row of values takes a quarter of the time that a row of a selection takes,
    before which SQLite copies every page that it will change.
    """
    needed = [name for name, column in taken.items() if not isinstance(column, BindParameter)]
    return skipping(table, _columns(table, taken), needed)


def _columns(table: Table, taken: Mapping[str, ColumnElement[Any]]) -> dict[str, ColumnElement[Any]]:
    """Return the columns of a new row; those that are not `taken` from elsewhere are given."""
    given = [column for column in table.columns if column is not table.autoincrement_column]
    return {
        column.name: taken[column.name] if column.name in taken else bindparam(f"new_{column.name}", type_=column.type)
        for column in given
    }


def _is_there(table: Table, name: str) -> ColumnElement[bool]:
    return exists().where(table.c.id == bound(name))


def _conversation_of_turn() -> Any:
    return select(turns.c.conversation).where(turns.c.id == bound("turn")).scalar_subquery()


_ZEROS: Final[dict[str, ColumnElement[Any]]] = {
    name: literal(0) for name in (*COUNTERS, "total_tokens", "steps", "compactions")
}
_NOT_KNOWN: Final = {name: literal(None, conversations.c[name].type) for name in (*FILL, "metadata", "renamed")}

_NOT_PINNED: Final = literal(None, messages.c.is_pinned.type)
_AS_MADE: Final = {name: literal(None, compactions.c[name].type) for name in ("edited", "undone")}

BEGIN_CONVERSATION: Final = _inserting(
    conversations,
    {**_ZEROS, **_NOT_KNOWN, "is_counted": literal(False), "title": literal("")},
    ~_is_there(conversations, "id"),
)
HEAR: Final = _inserting_each(
    messages,
    {
        "conversation": select(conversations.c.id)
        .where(
            conversations.c.id == bound("conversation"),
            # Written so, the index of keys is used: the one of conversations would have all turns of this one read.
            ~exists().where(turns.c.conversation.concat("") == bound("conversation"), turns.c.key == bound("key")),
        )
        .scalar_subquery(),
        "turn": literal(""),
        "status": literal("complete"),
        "is_pinned": _NOT_PINNED,
    },
)
TITLE: Final = (
    update(conversations)
    .where(conversations.c.id == bound("conversation"), conversations.c.title == "")
    .values(title=bound("title"))
)
RETITLE: Final = update(conversations).where(conversations.c.id == bound("conversation")).values(title=bound("title"))
RENAME: Final = (
    update(conversations).where(conversations.c.id == bound("conversation")).values(renamed=bound("renamed"))
)
DESCRIBE: Final = (
    update(conversations).where(conversations.c.id == bound("conversation")).values(metadata=bound("metadata"))
)
BEGIN_TURN: Final = _inserting(
    turns,
    {
        "key": literal(""),
        "status": literal("streaming"),
        "ended": literal(None, turns.c.ended.type),
        "has_more": literal(False),
    },
    and_(_is_there(conversations, "conversation"), ~_is_there(turns, "id")),
)
ANSWERED_BY: Final = (
    update(conversations)
    .where(conversations.c.id == bound("conversation"), conversations.c.agent.not_in([encoded(""), bound("agent")]))
    .values(agent=bound("agent"))
)
"""Who answers a conversation now; one that was made without anybody stays so."""
_IN_TURN: Final[dict[str, ColumnElement[Any]]] = {
    "conversation": _conversation_of_turn(),
    "key": literal(None, messages.c.key.type),
    "parent": literal(""),
    "is_pinned": _NOT_PINNED,
}
_MAY_BE_ADDED: Final = and_(_is_there(turns, "turn"), ~_is_there(messages, "id"))
ADD: Final = _inserting(messages, _IN_TURN, _MAY_BE_ADDED)
_IS_ALONE: Final = bound("server", queue.c.server.type) == ""
_IS_OWN: Final = or_(_IS_ALONE, queue.c.server == bound("server"))
"""A message of the queue that is with this server, where several share the database: what another one has it leaves."""
ADD_QUEUED: Final = _inserting(
    messages,
    _IN_TURN,
    and_(_MAY_BE_ADDED, or_(_IS_ALONE, exists().where(queue.c.id == bound("queued"), _IS_OWN))),
)
HAS_MORE: Final = (
    update(turns)
    .where(
        turns.c.id == bound("turn"),
        ~turns.c.has_more,
        exists().where(messages.c.turn == bound("turn"), messages.c.id != bound("id")),
    )
    .values(has_more=true())
)
ADD_PART: Final = _inserting_each(
    message_parts, {"message": select(messages.c.id).where(messages.c.id == bound("message")).scalar_subquery()}
)
_last: Final = message_parts.alias("last")
_earlier: Final = message_parts.alias("earlier")
_said: Final = {name: bound(name, message_parts.c[name].type) for name in ("kind", "status", "content")}
_GOES_ON: Final = and_(
    _last.c.kind == _said["kind"],
    or_(_last.c.kind == "text", _last.c.kind == "reasoning"),
    func.length(_last.c.content) + func.length(_said["content"]) <= LARGEST_PART,
)
_LAST_POSITION: Final = select(func.max(_earlier.c.position)).where(_earlier.c.message == messages.c.id)
_SAYING: Final = insert_or_update(message_parts).from_select(
    ["message", "position", *_said],
    select(
        messages.c.id,
        case((_GOES_ON, _last.c.position), else_=func.coalesce(_last.c.position + 1, 0)),
        *_said.values(),
    )
    .outerjoin_from(
        messages, _last, and_(_last.c.message == messages.c.id, _last.c.position == _LAST_POSITION.scalar_subquery())
    )
    .where(messages.c.id == bound("message"))
    .with_for_update(read=True, key_share=True, of=messages),
)
SAY: Final = _SAYING.on_conflict_do_update(
    index_elements=["message", "position"],
    set_={"content": message_parts.c.content.concat(_SAYING.excluded.content)},
)
"""Puts more at the end of a reply: a text goes on in its last part, as long as that is of its kind and small enough.

The reply is held meanwhile: one that another server is about to delete gets no part that would outlive it.
"""
END_REPLY: Final = update(messages).where(messages.c.id == bound("message")).values(status=bound("status"))
END_PARTS: Final = (
    update(message_parts).where(message_parts.c.message == bound("message")).values(status=bound("status"))
)
USE: Final = _inserting(step_usage, {}, _is_there(turns, "turn"))
ADD_USE: Final = (
    update(conversations)
    .where(conversations.c.id == _conversation_of_turn())
    .values(
        {name: conversations.c[name] + bound(name) for name in COUNTERS}
        | {
            "total_tokens": sum(map(bound, COUNTERS), conversations.c.total_tokens),
            "steps": conversations.c.steps + 1,
            "is_counted": or_(conversations.c.is_counted, bound("is_counted", Boolean())),
        }
    )
)
_FILLED: Final = {name: bound(name) for name in FILL}
FILL_WINDOW: Final = update(conversations).where(conversations.c.id == bound("conversation")).values(_FILLED)
FILL_WINDOW_OF_TURN: Final = update(conversations).where(conversations.c.id == _conversation_of_turn()).values(_FILLED)
COMPACT: Final = _inserting(compactions, _AS_MADE, _is_there(conversations, "conversation"))
_SAME_COMPACTION: Final = select(compactions.c.conversation).where(
    compactions.c.conversation == bound("conversation"),
    compactions.c.before == bound("before"),
    compactions.c.after == bound("after"),
)
REUSE: Final = _inserting(
    compactions, _AS_MADE, and_(_is_there(conversations, "conversation"), ~_SAME_COMPACTION.exists())
)
_MADE_THEN: Final = and_(compactions.c.conversation == bound("conversation"), compactions.c.at == bound("at"))
EDIT_SUMMARY: Final = update(compactions).where(_MADE_THEN).values(edited=bound("edited"))
UNDO: Final = update(compactions).where(_MADE_THEN).values(undone=bound("undone"))
PIN: Final = (
    update(messages)
    .where(messages.c.conversation == bound("conversation"), messages.c.id == bound("message"))
    .values(is_pinned=bound("is_pinned", Boolean()))
)
COUNT_COMPACTION: Final = (
    update(conversations)
    .where(conversations.c.id == bound("conversation"))
    .values(compactions=conversations.c.compactions + 1)
)
END_TURN: Final = (
    update(turns).where(turns.c.id == bound("turn")).values(status=bound("status"), key=bound("key"), ended=bound("at"))
)
_STREAMING_IN_TURN: Final = and_(messages.c.turn == bound("turn"), messages.c.status == "streaming")
END_PARTS_OF_TURN: Final = (
    update(message_parts)
    .where(message_parts.c.message.in_(select(messages.c.id).where(_STREAMING_IN_TURN)))
    .values(status=bound("status"))
)
END_REPLIES_OF_TURN: Final = update(messages).where(_STREAMING_IN_TURN).values(status=bound("status"))
_IN_CONVERSATION: Final = select(conversations.c.id).where(conversations.c.id == bound("conversation"))
PUT_IN_QUEUE: Final = _inserting_each(
    queue, {"conversation": _IN_CONVERSATION.where(~_is_there(queue_receipts, "id")).scalar_subquery()}
)
NOTE_RECEIPT: Final = _inserting_each(queue_receipts, {"conversation": _IN_CONVERSATION.scalar_subquery()})
_OWN_IN_QUEUE: Final = and_(queue.c.id == bound("id"), _IS_OWN)
TAKE: Final = update(queue).where(_OWN_IN_QUEUE).values(turn=bound("turn"))
TAKE_BACK: Final = (
    update(queue)
    .where(queue.c.id == bound("id"), or_(queue.c.server == bound("server"), queue.c.server == ""))
    .values(server=bound("server"))
)
"""Holds what is with this server, or was set free and taken by nobody: nobody can until the transaction is over."""
RELEASE: Final = update(queue).where(_OWN_IN_QUEUE).values(server="")
DROP: Final = delete(queue).where(_OWN_IN_QUEUE)
USED: Final = (
    update(conversations)
    .where(conversations.c.id == bound("conversation"), conversations.c.updated < bound("at"))
    .values(updated=bound("at"))
)
USED_BY_TURN: Final = (
    update(conversations)
    .where(conversations.c.id == _conversation_of_turn(), conversations.c.updated < bound("at"))
    .values(updated=bound("at"))
)


@cache
def interrupting(
    is_left: Callable[[ColumnElement[Any]], ColumnElement[bool]] | None = None,
) -> Sequence[Update | Delete]:
    """Return statements that mark as interrupted what a stopped process has left, and put back what it had taken.

    Where several share the database, `is_left` tells in SQL whether the server that a column names has stopped.
    """
    of_turn, of_queue = (is_left(turns.c.server), is_left(queue.c.server)) if is_left else (true(), true())
    streaming = select(messages.c.id).where(messages.c.status == "streaming")
    unfinished = select(turns.c.id).where(turns.c.status == "streaming", of_turn)
    if is_left:
        streaming = streaming.where(messages.c.turn.in_(unfinished))
    ended = select(turns.c.id).where(turns.c.status != "streaming")
    return [
        delete(queue).where(queue.c.turn.in_(ended), of_queue),
        update(queue).where(queue.c.turn != "", of_queue).values(turn=""),
        update(message_parts).where(message_parts.c.message.in_(streaming)).values(status="interrupted"),
        update(messages).where(messages.c.id.in_(streaming)).values(status="interrupted"),
        # Its client may not have got all that is kept.
        update(turns).where(turns.c.id.in_(unfinished)).values(status="interrupted", has_more=true()),
    ]


_OWN_MESSAGES: Final = (
    select(messages.c.id)
    .where(messages.c.conversation == bound("conversation"))
    .order_by(messages.c.number)
    .with_for_update()
)
_OWN_TURNS: Final = select(turns.c.id).where(turns.c.conversation == bound("conversation"))
DELETING: Final = (
    delete(message_parts).where(message_parts.c.message.in_(_OWN_MESSAGES)),
    delete(step_usage).where(step_usage.c.turn.in_(_OWN_TURNS)),
    *(
        delete(table).where(table.c.conversation == bound("conversation"))
        for table in (messages, turns, compactions, queue, queue_receipts)
    ),
    delete(conversations).where(conversations.c.id == bound("conversation")),
)
"""These delete a conversation with all that belongs to it."""
_SAID_IN_TURN: Final = (
    select(messages.c.id).where(messages.c.turn == bound("turn")).order_by(messages.c.number).with_for_update()
)
DELETING_TURN: Final = (
    delete(message_parts).where(message_parts.c.message.in_(_SAID_IN_TURN)),
    delete(step_usage).where(step_usage.c.turn == bound("turn")),
    delete(messages).where(messages.c.turn == bound("turn")),
    delete(turns).where(turns.c.id == bound("turn")),
)
"""These delete a turn with all that was said in it."""
UNHEARING: Final = (
    *(
        update(table)
        .where(table.c.conversation == bound("conversation"), table.c.parent == bound("key"))
        .values(parent=bound("parent"))
        for table in (messages, turns)
    ),
    delete(message_parts).where(message_parts.c.message == bound("message")),
    delete(messages).where(messages.c.id == bound("message")),
)
"""These delete a message of a client; what came after it comes after the message before it."""
