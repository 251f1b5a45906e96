"""The outputs of tools in a database."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Result, Tuple, insert, literal, select, tuple_, update

from elbowroom.context.outputs import ToolOutputRef, is_ref_id
from elbowroom.store.base import Limits, decoded_text, encoded, owner_key
from elbowroom.store.packed import Chunk, PackedOutput
from elbowroom.store.sql.asking import housekeeping, reading
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import batched
from elbowroom.store.sql.rows import replace_uses
from elbowroom.store.sql.schema import tool_output_chunks, tool_outputs

CHUNKS_A_STATEMENT: Final = 16
"""How many chunks are written or read at once, so that few of a huge output are in memory."""
FARTHEST: Final = 2**62
MOST_NAMES: Final = 10_000
"""How many ids are remembered as named lately; beyond that all are forgotten, and written down once more."""


class SqlToolOutputs:
    """Outputs in a database; `clock` gives Unix seconds. All methods but `name` raise StoreUnavailable."""

    def __init__(self, database: Database, limits: Limits, clock: Callable[[], float]) -> None:
        self.database = database
        self._limits = limits
        self._clock = clock
        self._named: dict[tuple[str, str], float] = {}

    @housekeeping
    def save(self, connection: Connection, output: PackedOutput) -> None:
        """Keep an output; one that is there stays as it is."""
        key = {"owner": owner_key(output.owner), "id": output.ref.id}
        if connection.execute(select(tool_outputs.c.id).filter_by(**key)).first():
            return
        connection.execute(insert(tool_outputs).values(**key, **_values(output, self._clock())))
        for start in range(0, len(output.chunks), CHUNKS_A_STATEMENT):
            some = output.chunks[start : start + CHUNKS_A_STATEMENT]
            connection.execute(insert(tool_output_chunks), [key | _chunk_values(chunk) for chunk in some])
        if output.names:
            replace_uses(connection, tool_outputs.name, output.ref.id, output.names)

    async def chunks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Chunk]:
        """Yield the chunks from a place on; one with a place in it is the first.

        No connection is held meanwhile; the caller may take its time.
        """
        place = (min(line, FARTHEST), min(column, FARTHEST)) if line > 0 else (1, 1)
        chunks = await self._chunk_at(owner, ref_id, *place)
        while chunks:
            for chunk in chunks:
                yield chunk
            chunks = await self._chunks_after(owner, ref_id, chunks[-1])

    def name(self, owner: str, ids: Collection[str]) -> None:
        """Write down, soon and only once in a while, that these ids stand in a prompt."""
        now, key = self._clock(), owner_key(owner)
        old = now - self._limits.touch_seconds
        new = [ref_id for ref_id in ids if is_ref_id(ref_id) and not old < self._named.get((key, ref_id), old) <= now]
        if new:
            self.database.write_later(partial(self._name, key, new, now))

    @reading
    def find(self, connection: Connection, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return the reference of what is kept under an id, which counts as used now, or None."""
        if not is_ref_id(ref_id):
            return None
        row = connection.execute(select(tool_outputs).filter_by(owner=owner_key(owner), id=ref_id)).first()
        if row is None:
            return None
        now = self._clock()
        if abs(now - row.last_used) >= self._limits.touch_seconds:
            touch = update(tool_outputs).filter_by(owner=row.owner, id=row.id).values(last_used=now)
            self.database.write_later(lambda connection: connection.execute(touch))
        return ToolOutputRef(row.id, row.bytes, row.lines, decoded_text(row.mime_type))

    @reading
    def _chunk_at(self, connection: Connection, owner: str, ref_id: str, line: int, column: int) -> Sequence[Chunk]:
        own = tool_output_chunks.c
        statement = (
            select(own.line, own.column, own.content)
            .where(own.owner == owner_key(owner), own.id == ref_id, _place() <= _value(line, max(column, 1)))
            .order_by(own.line.desc(), own.column.desc())
            .limit(1)
        )
        return _chunks(connection.execute(statement))

    @reading
    def _chunks_after(self, connection: Connection, owner: str, ref_id: str, last: Chunk) -> Sequence[Chunk]:
        own = tool_output_chunks.c
        statement = (
            select(own.line, own.column, own.content)
            .where(own.owner == owner_key(owner), own.id == ref_id, _place() > _value(last.line, last.column))
            .order_by(own.line, own.column)
            .limit(CHUNKS_A_STATEMENT)
        )
        return _chunks(connection.execute(statement))

    def _name(self, owner: str, ids: Sequence[str], now: float, connection: Connection) -> None:
        if len(self._named) > MOST_NAMES:
            self._named = {}
        own = tool_outputs.c
        for some in batched(ids):
            are_named = (own.owner == owner, own.id.in_(some))
            if present := connection.scalars(select(own.id).where(*are_named)).all():
                connection.execute(update(tool_outputs).where(*are_named).values(last_used=now, last_named=now))
                self._named |= {(owner, ref_id): now for ref_id in present}


def _place() -> Tuple:
    return tuple_(tool_output_chunks.c.line, tool_output_chunks.c.column)


def _value(line: int, column: int) -> Tuple:
    own = tool_output_chunks.c
    return tuple_(literal(line, own.line.type), literal(column, own.column.type))


def _chunks(rows: Result[Any]) -> Sequence[Chunk]:
    return [Chunk(row.line, row.column, row.content) for row in rows]


def _values(output: PackedOutput, now: float) -> dict[str, Any]:
    return {
        "tool": encoded(output.tool),
        "mime_type": encoded(output.ref.mime_type),
        "bytes": output.ref.bytes,
        "lines": output.ref.lines,
        "size": output.size,
        "saved": now,
        "last_used": now,
        "last_named": 0.0,
    }


def _chunk_values(chunk: Chunk) -> dict[str, Any]:
    return {"line": chunk.line, "column": chunk.column, "content": chunk.content}
