"""Which conversation a history goes on with, found in an SQL database by the keys of its chain."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Table, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.context import conversation as kinds
from elbowroom.store.conversations_parts import UNREADABLE
from elbowroom.store.conversations_sound import KeptChange, TurnDeleted, is_sound_id
from elbowroom.store.sqlite import MOST_VARIABLES
from elbowroom.store.tables import conversations, messages, queue, turns

FIRST_LOOK: Final = 20
"""How many keys from the end are asked for first: mostly all but the last one or two are known."""


async def keys_of(connection: AsyncConnection, conversation: str) -> frozenset[str]:
    """Return the keys of the messages that a conversation has: of the client's, and of the answers of turns."""
    heard = select(messages.c.key).where(messages.c.conversation == conversation, messages.c.key.is_not(None))
    answered = select(turns.c.key).where(turns.c.conversation == conversation, turns.c.key != "")
    return frozenset(await connection.scalars(union_all(heard, answered)))


async def conversations_of(connection: AsyncConnection, changes: Sequence[KeptChange]) -> set[str]:
    """Return which conversations these changes are about, where they are there."""
    found: set[str] = set()
    names: dict[Table, set[str]] = {turns: set(), messages: set(), queue: set()}
    for change in changes:
        match change:
            case kinds.Queued():
                found.add(change.item.conversation)
            case kinds.ReplyGrew() | kinds.ReplyCalled() | kinds.ReplyEnded():
                names[messages].add(change.message)
            case kinds.ReplyBegun() | kinds.Added() | kinds.StepUsed() | kinds.TurnEnded() | TurnDeleted():
                names[turns].add(change.turn)
            case kinds.QueueTaken() | kinds.QueueDropped():
                names[queue].update(change.ids)
            case _:
                found.add(change.conversation)
    for table, ids in names.items():
        for some in batched(sorted(filter(is_sound_id, ids))):
            found.update(await connection.scalars(select(table.c.conversation).where(table.c.id.in_(some))))
    return set(filter(is_sound_id, found))


async def longest_known(connection: AsyncConnection, owner: str, keys: Sequence[str]) -> str | None:
    """Return the conversation that has the longest beginning with an answer, of several the one that was used last."""
    without_answer: set[str] = set()
    for start, some in _from_the_end(keys):
        for place, found in await _having(connection, owner, start, some):
            if found not in without_answer:
                if await _has_answer(connection, found, keys[:place], goes_on=place < len(keys)):
                    return found
                without_answer.add(found)
    return None


def batched(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield them in as many pieces as statements have to carry them."""
    for start in range(0, len(names), MOST_VARIABLES):
        yield names[start : start + MOST_VARIABLES]


def _from_the_end(keys: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    end = len(keys)
    size = FIRST_LOOK
    while end:
        start = max(0, end - size)
        yield start, keys[start:end]
        end, size = start, MOST_VARIABLES


async def _having(connection: AsyncConnection, owner: str, start: int, keys: Sequence[str]) -> list[tuple[int, str]]:
    """Return conversations that have some of these keys and how far each knows them, the one that is meant first."""
    sound = list(filter(is_sound_id, keys))
    found = union_all(
        select(messages.c.conversation, messages.c.key).where(messages.c.key.in_(sound)),
        select(turns.c.conversation, turns.c.key).where(turns.c.key.in_(sound)),
    ).subquery()
    statement = (
        select(found.c.conversation, found.c.key, conversations.c.updated)
        .join(conversations, conversations.c.id == found.c.conversation)
        .where(conversations.c.owner == owner)
    )
    places = {key: place for place, key in enumerate(keys, start + 1)}
    best: dict[str, tuple[int, float]] = {}
    for row in await connection.execute(statement):
        best[row.conversation] = max(best.get(row.conversation, (0, 0.0)), (places[row.key], row.updated))
    ordered = sorted(((place, updated, found) for found, (place, updated) in best.items()), reverse=True)
    return [(place, found) for place, _, found in ordered]


async def _has_answer(
    connection: AsyncConnection, conversation: str, beginning: Sequence[str], *, goes_on: bool
) -> bool:
    known = set(beginning)
    before_last = known if goes_on else known - set(beginning[-1:])
    statement = select(turns.c.key, turns.c.parent, turns.c.status).where(turns.c.conversation == conversation)
    for turn in await connection.execute(statement):
        if turn.key in known or (not turn.key and turn.status == "interrupted" and turn.parent in before_last):
            return True
    heard = select(messages.c.key, messages.c.fields).where(
        messages.c.conversation == conversation, messages.c.key.is_not(None)
    )
    return any(row.key in known and _is_answer(row.fields) for row in await connection.execute(heard))


def _is_answer(fields: Any) -> bool:
    try:
        return bool(json.loads(fields).get("role") == "assistant")
    except UNREADABLE:
        return False
