"""Conversations out of the rows of a database."""

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, case, func, select

from elbowroom.context.conversation import (
    PRUNING,
    CompactionDetails,
    ContextFill,
    Conversation,
    ConversationRow,
    KeptCompaction,
    KeptMessage,
    KeptTurn,
    Overview,
    QueuedMessage,
    StepUsage,
    Totals,
)
from elbowroom.context.transcript import CallState, Message, calls_of, text_of
from elbowroom.store.base import decoded_text
from elbowroom.store.changes import is_sound
from elbowroom.store.message_parts import REPLY_FIELDS, UNREADABLE, Part, joined
from elbowroom.store.sql.dialect import batched
from elbowroom.store.sql.schema import compactions, message_parts, messages, queue, step_usage, turns
from elbowroom.store.sql.statements import COUNTERS

log = logging.getLogger(__name__)
PARTS: Final = (
    select(message_parts.c.message, message_parts.c.kind, message_parts.c.content)
    .join(messages, messages.c.id == message_parts.c.message)
    .order_by(message_parts.c.message, message_parts.c.position)
)


def read_conversation(connection: Connection, row: Row[Any]) -> Conversation:
    """Return all of a conversation."""
    own = messages.c.conversation == row.id
    turns_by_id = {turn.id: turn for turn in connection.execute(select(turns).where(turns.c.conversation == row.id))}
    said = numbered_from_one(connection, row.id, _kept(connection, row, own, turns_by_id))
    return Conversation(_with_pruning(connection, row), _compactions(connection, row), said)


def read_overview(connection: Connection, row: Row[Any]) -> Overview:
    """Return what a conversation is, without what was said in it."""
    count = connection.scalar(select(func.count()).where(messages.c.conversation == row.id)) or 0
    return Overview(_with_pruning(connection, row), _compactions(connection, row), count)


def _with_pruning(connection: Connection, row: Row[Any]) -> ConversationRow:
    """Return a conversation as a list shows it, and what the pruning agent has used of its tokens."""
    sums = [func.coalesce(func.sum(step_usage.c[name]), 0) for name in COUNTERS]
    counted = func.coalesce(func.max(case((step_usage.c.is_counted, 1), else_=0)), 0)
    own = select(func.count(), counted, *sums).where(step_usage.c.turn == f"{PRUNING}{row.id}")
    calls, is_counted, read, written, created, cached = map(int, connection.execute(own).one())
    usage = StepUsage(read, written, created, cached, is_counted=bool(is_counted))
    shown = conversation_row(row)
    return replace(shown, totals=replace(shown.totals, pruning=Totals(usage, calls, 0)))


def kept_messages(connection: Connection, row: Row[Any], condition: ColumnElement[bool]) -> Sequence[KeptMessage]:
    """Return those messages of a conversation that this is true of, in order."""
    theirs = select(messages.c.turn).where(condition, messages.c.turn != "")
    turns_by_id = {turn.id: turn for turn in connection.execute(select(turns).where(turns.c.id.in_(theirs)))}
    return _kept(connection, row, condition, turns_by_id)


def numbered_from_one(
    connection: Connection, conversation: str, kept: Sequence[KeptMessage]
) -> tuple[KeptMessage, ...]:
    """Return messages with their places in their conversation, from 1, instead of the table's numbers; in order."""
    if not kept:
        return ()
    asked = [each.number for each in kept]
    own, first, last = messages.c, min(asked), max(asked)
    theirs = own.conversation == conversation
    earlier = connection.scalar(select(func.count()).where(theirs, own.number < first)) or 0
    numbers = connection.scalars(select(own.number).where(theirs, own.number.between(first, last)).order_by(own.number))
    places = {number: place for place, number in enumerate(numbers, earlier + 1)}
    return tuple(replace(each, number=places[each.number]) for each in kept)


def read_turns(connection: Connection, conversation: str, keys: set[str]) -> list[KeptTurn]:
    """Return the turns that may hold more than their clients have, and whose answer, or else parent, has such a key."""
    # Written so, the index of keys is used, and not all turns of a conversation are read.
    of_it = select(turns).where(turns.c.conversation.concat("") == conversation, turns.c.has_more)
    with_keys = (of_it.where(turns.c.key.in_(some)) for some in batched(["", *filter(is_sound, keys)]))
    meant = [turn for statement in with_keys for turn in connection.execute(statement) if _is_meant(turn, keys)]
    meant.sort(key=attrgetter("began"))
    found: dict[str, list[Message]] = defaultdict(list)
    for some in batched([turn.id for turn in meant]):
        for row, message, *_ in _said(connection, messages.c.turn.in_(some)):
            if not _is_empty(row, message):
                found[row.turn].append(message)
    return [_kept_turn(turn, found[turn.id]) for turn in meant if len(found[turn.id]) > bool(turn.key)]


def read_pins(connection: Connection, conversation: str) -> frozenset[str]:
    """Return the keys of a conversation's pinned messages; of one that was said in a turn the key of the turn."""
    own, key = messages.c, func.coalesce(messages.c.key, turns.c.key)
    pinned = select(key).select_from(messages.outerjoin(turns, turns.c.id == own.turn))
    found = connection.scalars(pinned.where(own.conversation == conversation, own.is_pinned))
    return frozenset(filter(None, found))


def read_times(connection: Connection, conversation: str, keys: Sequence[str]) -> dict[str, float]:
    """Return when the messages with these keys were said, and the turns began whose answers have them."""
    found: dict[str, float] = {}
    for table, at in ((messages, messages.c.at), (turns, turns.c.began)):
        for some in batched(keys):
            known = select(table.c.key, at).where(
                table.c.key.in_(some), table.c.conversation.concat("") == conversation
            )
            found |= {row.key: float(row[1]) for row in connection.execute(known)}
    return found


def conversation_row(row: Row[Any]) -> ConversationRow:
    """Return a conversation as a list shows it."""
    usage = StepUsage(
        row.input_tokens, row.output_tokens, row.cache_creation_tokens, row.cache_read_tokens, row.is_counted
    )
    fill = None
    if row.fill_tokens is not None:
        fill = ContextFill(row.fill_tokens, row.fill_window, row.fill_trigger, row.fill_stop_at, row.fill_turn or 0)
    return ConversationRow(
        row.id,
        decoded_text(row.name),
        decoded_text(row.agent),
        decoded_text(row.renamed or row.title),
        row.created,
        row.updated,
        Totals(usage, row.steps, row.compactions),
        fill,
        json.loads(row.metadata) if row.metadata else {},
    )


_QUEUE: Final = (
    select(queue)
    .outerjoin(turns, turns.c.id == queue.c.turn)
    .where(turns.c.status.is_(None) | (turns.c.status == "streaming"))
    .order_by(queue.c.number)
)


def read_queue(connection: Connection) -> list[QueuedMessage]:
    """Return all messages that wait, in order; those too that a turn has taken which goes on."""
    return queued(connection.execute(_QUEUE))


Said = tuple[Row[Any], Message, str, Mapping[str, Any] | None]
"""The row of a message, the message, its reasoning, and what the engine had to read again for it."""


def _said(connection: Connection, condition: ColumnElement[bool]) -> Iterator[Said]:
    """Yield messages in order, without unreadable ones."""
    parts: dict[str, list[Part]] = defaultdict(list)
    for part in connection.execute(PARTS.where(condition)):
        parts[part.message].append(Part(part.kind, part.content))
    for row in connection.execute(select(messages).where(condition).order_by(messages.c.number)):
        try:
            message, reasoning = joined(row.fields, parts[row.id])
            lost = next((json.loads(part.content) for part in parts[row.id] if part.kind == "lost"), None)
        except UNREADABLE as error:
            log.warning("A message of the conversation %s cannot be read: %s.", row.conversation, error)
            continue
        yield row, message, reasoning, lost


def _kept(
    connection: Connection, row: Row[Any], condition: ColumnElement[bool], turns_by_id: dict[str, Row[Any]]
) -> tuple[KeptMessage, ...]:
    said = [each for each in _said(connection, condition) if _has_place(each, turns_by_id)]
    kept = tuple(_kept_message(row, turns_by_id, *each) for each in said)
    if not any(calls_of(each.message) for each in kept):
        return kept
    results = {str(each.message.get("tool_call_id")): each.message for each in kept if each.message["role"] == "tool"}
    own = messages.c
    # Written so, the index of conversations is used, whose last rows are looked at.
    of_clients = select(own.number).where(own.conversation == row.id, own.turn.concat("") == "")
    last = connection.scalar(of_clients.order_by(own.number.desc()).limit(1)) or 0
    return tuple(replace(each, calls=_call_states(each, results, last)) for each in kept)


def _call_states(kept: KeptMessage, results: Mapping[str, Message], last: int) -> dict[str, CallState]:
    """Return the states of a message's calls; `last` is the number of the last message that a client has sent."""
    states: dict[str, CallState] = {}
    for call in calls_of(kept.message):
        call_id = str(call.get("id"))
        if (result := results.get(call_id)) is not None:
            states[call_id] = "error" if text_of(result).startswith("Error: ") else "completed"
        elif kept.turn_status in ("streaming", "interrupted"):
            states[call_id] = "running"
        else:
            states[call_id] = "completed" if kept.number < last or not kept.turn else "pending"
    return states


def _has_place(said: Said, turns_by_id: dict[str, Row[Any]]) -> bool:
    return said[0].key is not None or said[0].turn in turns_by_id


def _kept_message(
    conversation: Row[Any],
    turns_by_id: dict[str, Row[Any]],
    row: Row[Any],
    message: Message,
    reasoning: str,
    lost: Mapping[str, Any] | None,
) -> KeptMessage:
    turn = turns_by_id.get(row.turn)
    key, parent, agent = (turn.key, turn.parent, turn.agent) if turn else (row.key, row.parent, conversation.agent)
    return KeptMessage(
        row.id,
        row.number,
        row.turn,
        key or "",
        parent,
        decoded_text(agent),
        row.status,
        message,
        reasoning,
        row.at,
        turn.status if turn else None,
        lost=lost,
        is_pinned=bool(row.is_pinned),
        turn_ended=turn.ended if turn else None,
    )


def _compactions(connection: Connection, row: Row[Any]) -> tuple[KeptCompaction, ...]:
    of_it = select(compactions).where(compactions.c.conversation == row.id).order_by(compactions.c.number)
    return tuple(map(_compaction, connection.execute(of_it)))


def _compaction(row: Row[Any]) -> KeptCompaction:
    details = None
    if row.seconds is not None:
        details = CompactionDetails(
            row.seconds,
            row.groups_kept,
            row.messages_kept,
            row.messages_removed,
            decoded_text(row.summary),
            decoded_text(row.focus or ""),
            row.verdict or "",
        )
    edited = None if row.edited is None else decoded_text(row.edited)
    return KeptCompaction(row.before, row.after, row.rung, row.at, details, edited, row.undone)


def _is_meant(turn: Row[Any], keys: set[str]) -> bool:
    return turn.key in keys if turn.key else turn.status == "interrupted" and turn.parent in keys


def _is_empty(row: Row[Any], message: Message) -> bool:
    """Tell whether this is a reply that has said nothing and called nothing."""
    return row.fields == REPLY_FIELDS and not message["content"] and not message.get("tool_calls")


def _kept_turn(turn: Row[Any], said: Sequence[Message]) -> KeptTurn:
    return KeptTurn(turn.id, turn.key, turn.parent, decoded_text(turn.agent), turn.status, tuple(said))


def queued(rows: Iterable[Row[Any]]) -> list[QueuedMessage]:
    """Return the messages of rows of the queue, without unreadable ones."""
    found = []
    for row in rows:
        try:
            message, _ = joined(row.message, ())
        except UNREADABLE as error:
            log.warning("A message in the queue of a conversation cannot be read: %s.", error)
            continue
        found.append(QueuedMessage(row.id, row.conversation, message, row.mode, row.at))
    return found
