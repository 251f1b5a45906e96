"""The rows of the compaction ledger and the memories of agents in a database."""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from elbowroom.context.compaction import SUMMARISES, marked
from elbowroom.context.ledger import Entry
from elbowroom.context.memories import Memory
from elbowroom.context.transcript import out_of_kept_form
from elbowroom.store.base import Limits, Share, decoded_text, encoded, owner_key
from elbowroom.store.packed import MOST_MEMORIES, PackedEntry
from elbowroom.store.sql.asking import housekeeping, reading, settling
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import batched, insertion_order, selected
from elbowroom.store.sql.schema import admission, ledger_entries, memories, tool_output_uses
from elbowroom.store.sql.statements import bound, values

log = logging.getLogger(__name__)
ENTRIES_A_TRANSACTION: Final = 20
"""How many compactions are deleted at once, so that a chat that wants to write waits little."""
OVERLAP_SECONDS: Final = 300.0
"""How far the clocks of servers that share a database may differ, and a commit may be late."""
MOST_IN_MEMORY: Final = 1000
"""How many entries a database in memory has."""
MOST_ROOMS_IN_MEMORY: Final = 1000
"""Of how many agents and owners a database in memory has memories."""
USED_SINCE: Final = select(ledger_entries.c.key, ledger_entries.c.last_used).where(
    ledger_entries.c.last_used > bound("last_used", ledger_entries.c.last_used.type)
)
KEYS: Final = select(ledger_entries.c.key)
"""The keys alone are in an index: reading another column would read all that was compacted."""
LAST_USE: Final = select(func.max(ledger_entries.c.last_used))
UNREADABLE: Final = (TypeError, ValueError, RecursionError)
"""What reading raises where another program has written into the database."""


class SqlLedger:
    """`LedgerRows` in a database; `clock` gives Unix seconds. All methods raise StoreUnavailable.

    The keys of all entries are in memory, as `last_used` with the last use of those that were used since the database
    was opened, so that a conversation that was never compacted costs no query.
    """

    def __init__(self, database: Database, limits: Limits, clock: Callable[[], float]) -> None:
        self.database = database
        self._limits = limits
        self._clock = clock
        self.last_used: dict[str, float | None] = {}  # replaced where it changes, for others may be reading it
        self._replacing = threading.Lock()
        self._loaded = 0.0

    async def load(self) -> None:
        """Read the keys of all entries; nothing is found before."""
        await self._load()

    @settling
    def load_new(self, connection: Connection) -> None:
        """Read the keys of entries that other servers have written since this was last done."""
        found = selected(connection, USED_SINCE, [values(last_used=self._loaded - OVERLAP_SECONDS)])
        if missing := [key for key, _ in found if key not in self.last_used]:
            with self._replacing:
                self.last_used = dict.fromkeys(missing) | self.last_used
        self._loaded = max([self._loaded, *(last_used for _, last_used in found)])

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, which count as used now."""
        known = [key for key in dict.fromkeys(keys) if key in self.last_used]
        return await self._find(known) if known else []

    async def save(self, packed: PackedEntry) -> None:
        """Keep an entry in place of one with the same key."""
        await self.database.do(partial(self._save, packed))

    async def delete_unused(self, today: float) -> None:
        """Delete entries that nobody used in the days of retention before today, with the references in them."""
        share = Share("compactions", len(self.last_used), self._limits)
        while await self.database.do(partial(self._delete_unused, today, share)):
            pass

    @reading
    def _load(self, connection: Connection) -> None:
        self.last_used = dict.fromkeys(key for (key,) in selected(connection, KEYS, [{}]))
        [[last_use]] = selected(connection, LAST_USE, [{}])
        self._loaded = last_use or 0.0

    @reading
    def _find(self, connection: Connection, keys: Sequence[str]) -> list[Entry]:
        own, now = ledger_entries.c, self._clock()
        rows = [
            row for some in batched(keys) for row in connection.execute(select(ledger_entries).where(own.key.in_(some)))
        ]
        used = [row.key for row in rows if abs(now - self._last_use(row)) >= self._limits.touch_seconds]
        if used:
            with self._replacing:
                self.last_used = self.last_used | dict.fromkeys(self.last_used.keys() & used, now)
            self.database.write_later(partial(_touch, used, now))
        return [entry for row in rows if (entry := _entry(row))]

    def _last_use(self, row: Row[Any]) -> float:
        known = self.last_used.get(row.key)
        return float(row.last_used) if known is None else known

    def _save(self, packed: PackedEntry) -> None:
        entry, now = packed.entry, self._clock()
        with self.database.writing_at_once() as connection:
            if packed.lease is not None and _is_another_s(connection, entry.key, packed.lease):
                log.warning("A compaction is not kept: another server has made it since this one stood still.")
                return
            connection.execute(delete(ledger_entries).where(ledger_entries.c.key == entry.key))
            connection.execute(insert(ledger_entries).values(**_values(packed, now)))
            replace_uses(connection, ledger_entries.name, entry.key, packed.refs)
        with self._replacing:
            self.last_used = self.last_used | {entry.key: now}

    def _delete_unused(self, today: float, share: Share) -> bool:
        """Delete some of them; tell whether there may be more."""
        own, uses = ledger_entries.c, tool_output_uses.c
        with self.database.writing_at_once() as connection:
            unused = select(own.key).where(own.last_used < self._limits.oldest(today)).limit(ENTRIES_A_TRANSACTION)
            if self._limits.in_memory:
                unused = select(own.key).order_by(own.last_used.desc()).limit(-1).offset(MOST_IN_MEMORY)
            going = connection.scalars(unused).all()
            share.goes(len(going))
            for some in batched(going):
                connection.execute(delete(ledger_entries).where(own.key.in_(some)))
            lost = (uses.place == ledger_entries.name) & uses.key.not_in(select(own.key))
            connection.execute(delete(tool_output_uses).where(lost))
        with self._replacing:
            gone = set(going)
            self.last_used = {key: used for key, used in self.last_used.items() if key not in gone}
        return len(going) == ENTRIES_A_TRANSACTION


def _is_another_s(connection: Connection, key: str, lease: int) -> bool:
    """Tell whether an entry is there that a server made after this lease was lost."""
    is_held = select(admission.c.number).where(admission.c.number == lease).exists()
    there = select(ledger_entries.c.key).where(ledger_entries.c.key == key, ~is_held)
    return connection.execute(there).first() is not None


def replace_uses(connection: Connection, place: str, key: str, ids: Iterable[str]) -> None:
    """Write down to which outputs of tools the row with this key refers, in the table of this name."""
    connection.execute(delete(tool_output_uses).filter_by(place=place, key=key))
    if values := [{"place": place, "key": key, "id": ref_id} for ref_id in ids]:
        connection.execute(insert(tool_output_uses), values)


def _touch(keys: Sequence[str], now: float, connection: Connection) -> None:
    for some in batched(keys):
        connection.execute(update(ledger_entries).where(ledger_entries.c.key.in_(some)).values(last_used=now))


def _values(packed: PackedEntry, now: float) -> dict[str, Any]:
    entry = packed.entry
    return {
        "key": entry.key,
        "messages": packed.messages,
        "window": entry.window,
        "before": entry.before,
        "after": entry.after,
        "rung": entry.rung,
        "created": entry.created,
        "last_used": now,
    }


def _entry(row: Row[Any]) -> Entry | None:
    try:
        kept = tuple(map(out_of_kept_form, json.loads(row.messages)))
        messages = marked(kept) if row.rung in SUMMARISES else kept
    except UNREADABLE as error:
        log.warning("A compaction in the store cannot be read, so it may be made again: %s.", error)
        return None
    return Entry(row.key, messages, row.window, row.before, row.after, row.rung, row.created)


class SqlMemories:
    """Memories, each in the room of an owner and an agent. All methods raise StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @housekeeping
    def save(self, connection: Connection, room: str, memory: Memory) -> None:
        """Keep a memory in place of one with the same id; the oldest of a room that are too many go."""
        own, key = memories.c, owner_key(room)
        newest = select(own.id).where(own.room == key).order_by(insertion_order(memories).desc()).limit(MOST_MEMORIES)
        connection.execute(delete(memories).filter_by(room=key, id=memory.id))
        values = {"room": key, "id": memory.id, "text": encoded(memory.text), "saved": memory.saved}
        connection.execute(insert(memories).values(**values))
        connection.execute(delete(memories).where(own.room == key, own.id.not_in(newest)))
        if self.database.place is None:
            rooms = select(own.room).group_by(own.room).order_by(func.max(own.saved).desc()).limit(MOST_ROOMS_IN_MEMORY)
            connection.execute(delete(memories).where(own.room.not_in(rooms)))

    @reading
    def all(self, connection: Connection, room: str) -> list[Memory]:
        """Return the memories of a room, the newest first."""
        own = memories.c
        statement = select(memories).where(own.room == owner_key(room)).order_by(own.saved.desc(), own.id)
        return [Memory(row.id, decoded_text(row.text), row.saved) for row in connection.execute(statement)]

    @housekeeping
    def delete(self, connection: Connection, room: str, memory_id: str) -> None:
        """Delete a memory."""
        connection.execute(delete(memories).filter_by(room=owner_key(room), id=memory_id))
