"""Conversations out of the rows of an SQL database."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.context.conversation import (
    CompactionDetails,
    ContextFill,
    ConversationRow,
    KeptCompaction,
    QueuedMessage,
    StepUsage,
    Totals,
)
from elbowroom.store.conversations_held import HeldConversation, HeldMessage, HeldTurn
from elbowroom.store.conversations_parts import REPLY_FIELDS, UNREADABLE, Part, joined
from elbowroom.store.message_json import decoded_text
from elbowroom.store.tables import compactions, message_parts, messages, queue, turns

log = logging.getLogger(__name__)
MESSAGES: Final = select(messages).order_by(messages.c.number)
PARTS: Final = select(message_parts.c.message, message_parts.c.kind, message_parts.c.content).join(
    messages, messages.c.id == message_parts.c.message
)


@dataclass(frozen=True, slots=True)
class ConversationRows:
    """The rows of one conversation, as they are in the tables."""

    conversation: Row[Any]
    turns: Sequence[Row[Any]]
    messages: Sequence[Row[Any]]
    parts: Sequence[Row[Any]]
    compactions: Sequence[Row[Any]]
    queue: Sequence[Row[Any]]

    def held(self) -> HeldConversation:
        """Return the conversation that they are; of much text this takes its time."""
        found = _conversation(self.conversation)
        found.size = sum(len(part.content) for part in self.parts)
        found.turns = {row.id: _turn(row) for row in self.turns}
        found.compactions = [_compaction(row) for row in self.compactions]
        found.queue = {item.id: item for item in queued(self.queue)}
        for message in held_messages(found, self.messages, self.parts):
            found.messages.append(message)
            if message.key:
                found.heard[message.key] = message
            else:
                found.replies[message.id] = message
                found.turns[message.turn].messages.append(message)
        return found


async def conversation_rows(connection: AsyncConnection, row: Row[Any]) -> ConversationRows:
    """Read all of one conversation."""
    return ConversationRows(
        row,
        await _all(connection, select(turns).where(turns.c.conversation == row.id).order_by(turns.c.began, turns.c.id)),
        await _all(connection, MESSAGES.where(messages.c.conversation == row.id)),
        await _all(connection, PARTS.where(messages.c.conversation == row.id).order_by(*_PART_ORDER)),
        await _all(
            connection, select(compactions).where(compactions.c.conversation == row.id).order_by(compactions.c.number)
        ),
        await _all(connection, select(queue).where(queue.c.conversation == row.id).order_by(queue.c.number)),
    )


async def turn_rows(connection: AsyncConnection, row: Row[Any], turn_ids: Sequence[str]) -> ConversationRows:
    """Read these turns of one conversation and nothing else of it."""
    wanted = messages.c.turn.in_(turn_ids)
    return ConversationRows(
        row,
        await _all(connection, select(turns).where(turns.c.id.in_(turn_ids))),
        await _all(connection, MESSAGES.where(wanted)),
        await _all(connection, PARTS.where(wanted).order_by(*_PART_ORDER)),
        (),
        (),
    )


async def _all(connection: AsyncConnection, statement: Select[*tuple[Any, ...]]) -> Sequence[Row[Any]]:
    rows: Sequence[Row[Any]] = (await connection.execute(statement)).all()
    return rows


_PART_ORDER: Final = (message_parts.c.message, message_parts.c.position)


def conversation_row(row: Row[Any]) -> ConversationRow:
    """Return a conversation as a list shows it."""
    usage = StepUsage(
        row.input_tokens, row.output_tokens, row.cache_creation_tokens, row.cache_read_tokens, row.is_counted
    )
    fill = None
    if row.fill_tokens is not None:
        fill = ContextFill(row.fill_tokens, row.fill_window, row.fill_trigger, row.fill_stop_at)
    return ConversationRow(
        row.id,
        decoded_text(row.name),
        decoded_text(row.agent),
        decoded_text(row.title),
        row.created,
        row.updated,
        Totals(usage, row.steps, row.compactions),
        fill,
    )


def _compaction(row: Row[Any]) -> KeptCompaction:
    details = None
    if row.seconds is not None:
        details = CompactionDetails(
            row.seconds, row.groups_kept, row.messages_kept, row.messages_removed, decoded_text(row.summary)
        )
    return KeptCompaction(row.before, row.after, row.rung, row.at, details)


def queued(rows: Iterable[Row[Any]]) -> list[QueuedMessage]:
    """Return messages of the queue that can be read."""
    found = []
    for row in rows:
        try:
            message, _ = joined(row.message, ())
        except UNREADABLE as error:
            log.warning("A message in the queue of a conversation cannot be read: %s.", error)
            continue
        found.append(QueuedMessage(row.id, row.conversation, message, row.mode, row.at, row.turn))
    return found


def held_messages(
    found: HeldConversation, rows: Sequence[Row[Any]], parts: Sequence[Row[Any]]
) -> Iterable[HeldMessage]:
    """Yield messages that can be read and whose turn is there."""
    parts_of: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        parts_of[part.message].append(Part(part.kind, part.content))
    for row in rows:
        turn = found.turns.get(row.turn)
        if turn is None and row.key is None:
            continue
        try:
            message, reasoning = joined(row.fields, parts_of[row.id])
        except UNREADABLE as error:
            log.warning("A message of the conversation %s cannot be read: %s.", found.id, error)
            continue
        parent, agent = (turn.parent, turn.agent) if turn else (row.parent, found.agent)
        place = (row.id, row.number, row.turn, row.key or "", parent, agent, row.status, row.at)
        if row.fields == REPLY_FIELDS:
            yield HeldMessage(*place, None, [message["content"]], [reasoning], message.get("tool_calls", []))
        else:
            yield HeldMessage(*place, message)


def _conversation(row: Row[Any]) -> HeldConversation:
    shown = conversation_row(row)
    return HeldConversation(
        row.id,
        row.owner,
        shown.name,
        shown.agent,
        shown.created,
        shown.updated,
        shown.title,
        shown.totals.usage,
        shown.totals.steps,
        shown.fill,
    )


def _turn(row: Row[Any]) -> HeldTurn:
    return HeldTurn(row.id, row.parent, decoded_text(row.agent), row.status, row.key)
