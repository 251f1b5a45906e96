"""The rows of the compaction ledger in an SQL database."""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import CTE, ColumnElement, Row, Table, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.context.ledger import Archived, Entry
from elbowroom.context.transcript import Message
from elbowroom.store.database import Database
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.limits import TOUCH_SECONDS
from elbowroom.store.message_json import Written, written
from elbowroom.store.sqlite import MOST_VARIABLES
from elbowroom.store.tables import archived_messages, ledger_entries
from elbowroom.store.tool_output_uses import delete_lost_uses, save_compaction_uses, uses_in
from elbowroom.store.tracked_tasks import TrackedTasks

log = logging.getLogger(__name__)
UNREADABLE: Final = (TypeError, ValueError, RecursionError)
"""What reading raises where something other than elbowroom has written into the database."""


class SqlLedgerRows:
    """`LedgerRows` in a database; `clock` gives Unix seconds. What is begun is finished, whoever is cancelled.

    The keys of all entries and when each was last used are in memory, so that a conversation that was never compacted
    costs no query. All methods raise StoreUnavailable.
    """

    def __init__(self, database: Database, tasks: TrackedTasks, clock: Callable[[], float]) -> None:
        self._database = database
        self._tasks = tasks
        self._clock = clock
        self._last_used: dict[str, float] = {}

    async def load(self) -> None:
        """Read the keys of all entries; nothing is found before."""
        async with self._database.reading() as connection:
            found = await connection.execute(select(ledger_entries.c.key, ledger_entries.c.last_used))
            self._last_used = {row.key: row.last_used for row in found}

    async def delete_unused_since(self, limit: float) -> None:
        """Delete entries unused since then, and older messages that no entry which is left covers."""
        needed = _chain_up_from(archived_messages.c.key.in_(select(ledger_entries.c.key)))
        async with self._database.writing() as connection:
            await connection.execute(delete(ledger_entries).where(ledger_entries.c.last_used < limit))
            await connection.execute(
                delete(archived_messages).where(
                    archived_messages.c.saved < limit, archived_messages.c.key.not_in(select(needed.c.key))
                )
            )
            await delete_lost_uses(connection)
        self._last_used = {key: used for key, used in self._last_used.items() if used >= limit}

    async def keys(self) -> Collection[str]:
        """Return the keys of all entries, as a view that is always up to date."""
        return self._last_used.keys()

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, which count as used now."""
        known = [key for key in dict.fromkeys(keys) if key in self._last_used]
        return await self._tasks.run(self._read(known)) if known else []

    async def save(self, entry: Entry, archive: Sequence[Archived]) -> None:
        """Keep an entry in place of one with the same key, and the messages it was made from: all or nothing.

        Messages that are kept already stay as they are. What JSON cannot hold is not kept, with a warning in the log.
        """
        await self._tasks.run(self._write(entry, archive))

    async def archived(self, key: str) -> list[Message]:
        """Return the messages that a key covers as the client sent them, in order, all but the system's.

        Empty where none are kept.
        """
        nodes = await self._tasks.run(self._read_chain(key))
        return await asyncio.to_thread(_messages_up_to, key, nodes)

    async def _read(self, keys: Sequence[str]) -> list[Entry]:
        rows: list[Row[Any]] = []
        async with self._database.reading() as connection:
            for some in _chunks(keys):
                rows += await connection.execute(select(ledger_entries).where(ledger_entries.c.key.in_(some)))
        now = self._clock()
        used = [row.key for row in rows if abs(now - self._last_used.get(row.key, now)) >= TOUCH_SECONDS]
        if used:
            self._last_used |= dict.fromkeys(used, now)
            _ = self._tasks.start(self._touch(used, now))
        return await asyncio.to_thread(_entries, rows)

    async def _touch(self, keys: Sequence[str], now: float) -> None:
        try:
            async with self._database.writing() as connection:
                for some in _chunks(keys):
                    await connection.execute(
                        update(ledger_entries).where(ledger_entries.c.key.in_(some)).values(last_used=now)
                    )
        except StoreUnavailable as error:
            log.debug("It is not written down that compactions were used: %s", error)

    async def _write(self, entry: Entry, archive: Sequence[Archived]) -> None:
        content = await asyncio.to_thread(written, entry, archive)
        if content is None:
            return
        uses = await asyncio.to_thread(uses_in, content)
        now = self._clock()
        async with self._database.writing() as connection:
            await connection.execute(delete(ledger_entries).where(ledger_entries.c.key == entry.key))
            await connection.execute(insert(ledger_entries).values(**_entry_values(entry, content, now)))
            present = await _present(connection, archived_messages, list(content.archive))
            missing = {node.key: node for node in archive if node.key not in present}
            if missing:
                values = [_node_values(node, content, now) for node in missing.values()]
                await connection.execute(insert(archived_messages), values)
            await save_compaction_uses(connection, entry.key, uses, missing)
        self._last_used[entry.key] = now

    async def _read_chain(self, key: str) -> dict[str, Row[Any]]:
        chain = _chain_up_from(archived_messages.c.key == key)
        statement = select(archived_messages).join(chain, archived_messages.c.key == chain.c.key)
        async with self._database.reading() as connection:
            return {row.key: row for row in await connection.execute(statement)}


def _chain_up_from(start: ColumnElement[bool]) -> CTE:
    """Return the keys and parents of the archived messages that this is true of, and of all before them."""
    own = archived_messages.c
    chain = select(own.key, own.parent).where(start).cte("chain", recursive=True)
    return chain.union(select(own.key, own.parent).join(chain, own.key == chain.c.parent))


async def _present(connection: AsyncConnection, table: Table, keys: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for some in _chunks(keys):
        found.update(await connection.scalars(select(table.c.key).where(table.c.key.in_(some))))
    return found


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), MOST_VARIABLES):
        yield keys[start : start + MOST_VARIABLES]


def _entry_values(entry: Entry, content: Written, now: float) -> dict[str, Any]:
    return {
        "key": entry.key,
        "messages": content.messages,
        "window": entry.window,
        "before": entry.before,
        "after": entry.after,
        "rung": entry.rung,
        "created": entry.created,
        "last_used": now,
    }


def _node_values(node: Archived, content: Written, now: float) -> dict[str, Any]:
    return {"key": node.key, "parent": node.parent, "message": content.archive[node.key], "saved": now}


def _entries(rows: Sequence[Row[Any]]) -> list[Entry]:
    return [entry for row in rows if (entry := _entry(row))]


def _entry(row: Row[Any]) -> Entry | None:
    try:
        messages = tuple(json.loads(row.messages))
    except UNREADABLE as error:
        log.warning("A compaction in the store cannot be read, so it may be made again: %s.", error)
        return None
    return Entry(row.key, messages, row.window, row.before, row.after, row.rung, row.created)


def _messages_up_to(key: str, nodes: dict[str, Row[Any]]) -> list[Message]:
    messages: list[Message] = []
    try:
        while node := nodes.pop(key, None):
            messages.append(json.loads(node.message))
            key = node.parent
    except UNREADABLE as error:
        log.warning("The messages behind a compaction in the store cannot be read: %s.", error)
        return []
    return messages[::-1]
