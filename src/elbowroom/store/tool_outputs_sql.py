"""The outputs of tools in an SQL database."""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, Final

from sqlalchemy import Result, Row, Tuple, insert, literal, select, tuple_, update

from elbowroom.context.outputs import ToolOutputRef, is_ref_id
from elbowroom.store.database import Database
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.limits import TOUCH_SECONDS
from elbowroom.store.message_json import decoded_text, encoded
from elbowroom.store.owner_key import owner_key
from elbowroom.store.sqlite import MOST_VARIABLES
from elbowroom.store.tables import tool_output_chunks, tool_outputs
from elbowroom.store.tool_output_chunks import Chunk, PackedOutput
from elbowroom.store.tool_output_uses import save_uses
from elbowroom.store.tracked_tasks import TrackedTasks

log = logging.getLogger(__name__)
CHUNKS_A_STATEMENT: Final = 16
"""How many chunks are written or read at once, so that few of a huge output are in memory."""
FARTHEST: Final = 2**62
MOST_NAMES: Final = 10_000
"""How many ids are remembered as named lately; beyond that all are forgotten, and written down once more."""


class SqlToolOutputs:
    """Outputs in a database; `clock` gives Unix seconds. What is begun is finished, whoever is cancelled.

    All methods but `name` raise StoreUnavailable.
    """

    def __init__(self, database: Database, tasks: TrackedTasks, clock: Callable[[], float]) -> None:
        self._database = database
        self._tasks = tasks
        self._clock = clock
        self._named: dict[tuple[str, str], float] = {}
        self._next_touch = 0.0

    async def save(self, output: PackedOutput) -> None:
        """Keep an output, all or nothing; one that is there stays as it is."""
        await self._tasks.run(self._save(output))

    async def find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return what is kept under an id, which counts as used now, None where nothing is."""
        return await self._tasks.run(self._find(owner, ref_id)) if is_ref_id(ref_id) else None

    async def chunks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Chunk]:
        """Yield the chunks from the one on in which a place is, or behind which it is.

        No connection is held meanwhile; whoever takes them may take their time.
        """
        place = (min(line, FARTHEST), min(column, FARTHEST)) if line > 0 else (1, 1)
        chunks = await self._tasks.run(self._chunk_at(owner, ref_id, *place))
        while chunks:
            for chunk in chunks:
                yield chunk
            chunks = await self._tasks.run(self._chunks_behind(owner, ref_id, chunks[-1]))

    def name(self, owner: str, ids: Collection[str]) -> None:
        """Write down, soon and at most once an hour, that these ids stand in a prompt."""
        now = self._clock()
        new = [key for ref_id in ids if is_ref_id(ref_id) and self._is_old(key := (owner_key(owner), ref_id), now)]
        if new:
            _ = self._tasks.start(self._name(new[0][0], [ref_id for _, ref_id in new], now))

    def _is_old(self, key: tuple[str, str], now: float) -> bool:
        return abs(now - self._named.get(key, float("-inf"))) >= TOUCH_SECONDS

    async def _save(self, output: PackedOutput) -> None:
        values = _values(output, self._clock())
        key = {"owner": values["owner"], "id": values["id"]}
        async with self._database.writing() as connection:
            present = select(tool_outputs.c.id).filter_by(**key)
            if (await connection.execute(present)).first():
                return
            await connection.execute(insert(tool_outputs).values(**values))
            for start in range(0, len(output.chunks), CHUNKS_A_STATEMENT):
                some = output.chunks[start : start + CHUNKS_A_STATEMENT]
                await connection.execute(insert(tool_output_chunks), [key | _chunk_values(chunk) for chunk in some])
            await save_uses(connection, tool_outputs.name, output.ref.id, output.names)

    async def _find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        statement = select(tool_outputs).filter_by(owner=owner_key(owner), id=ref_id)
        async with self._database.reading() as connection:
            row = (await connection.execute(statement)).first()
        if row is None:
            return None
        now = self._clock()
        if abs(now - row.last_used) >= TOUCH_SECONDS and now >= self._next_touch:
            _ = self._tasks.start(self._touch(row, now))
        return ToolOutputRef(row.id, row.bytes, row.lines, decoded_text(row.mime_type))

    async def _chunk_at(self, owner: str, ref_id: str, line: int, column: int) -> Sequence[Chunk]:
        own = tool_output_chunks.c
        statement = (
            select(own.line, own.column, own.content)
            .where(own.owner == owner_key(owner), own.id == ref_id, _place() <= _value(line, max(column, 1)))
            .order_by(own.line.desc(), own.column.desc())
            .limit(1)
        )
        async with self._database.reading() as connection:
            return _chunks(await connection.execute(statement))

    async def _chunks_behind(self, owner: str, ref_id: str, last: Chunk) -> Sequence[Chunk]:
        own = tool_output_chunks.c
        statement = (
            select(own.line, own.column, own.content)
            .where(own.owner == owner_key(owner), own.id == ref_id, _place() > _value(last.line, last.column))
            .order_by(own.line, own.column)
            .limit(CHUNKS_A_STATEMENT)
        )
        async with self._database.reading() as connection:
            return _chunks(await connection.execute(statement))

    async def _touch(self, row: Row[Any], now: float) -> None:
        statement = update(tool_outputs).filter_by(owner=row.owner, id=row.id).values(last_used=now)
        try:
            async with self._database.writing() as connection:
                await connection.execute(statement)
        except StoreUnavailable as error:
            self._next_touch = now + TOUCH_SECONDS
            log.debug("It is not written down that an output was used: %s", error)

    async def _name(self, owner: str, ids: Sequence[str], now: float) -> None:
        if len(self._named) > MOST_NAMES:
            self._named.clear()
        try:
            for start in range(0, len(ids), MOST_VARIABLES):
                some = ids[start : start + MOST_VARIABLES]
                self._named |= {(owner, ref_id): now for ref_id in await self._name_present(owner, some, now)}
        except StoreUnavailable as error:
            log.debug("It is not written down that outputs stand in a prompt: %s", error)

    async def _name_present(self, owner: str, ids: Sequence[str], now: float) -> Sequence[str]:
        are_named = (tool_outputs.c.owner == owner, tool_outputs.c.id.in_(ids))
        async with self._database.reading() as connection:
            present = (await connection.scalars(select(tool_outputs.c.id).where(*are_named))).all()
        if present:
            async with self._database.writing() as connection:
                await connection.execute(update(tool_outputs).where(*are_named).values(last_used=now, last_named=now))
        return present


def _place() -> Tuple:
    return tuple_(tool_output_chunks.c.line, tool_output_chunks.c.column)


def _value(line: int, column: int) -> Tuple:
    return tuple_(literal(line), literal(column))


def _chunks(rows: Result[Any]) -> Sequence[Chunk]:
    return [Chunk(row.line, row.column, row.content) for row in rows]


def _values(output: PackedOutput, now: float) -> dict[str, Any]:
    return {
        "owner": owner_key(output.owner),
        "id": output.ref.id,
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
