"""The outputs of tools as the chat needs them: there from the start, and never in its way."""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from elbowroom.context.outputs import Block, ToolOutputRef, ref_to, ref_to_media
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.lasting_store import LastingStore
from elbowroom.store.tool_output_chunks import Chunk, PackedOutput, block_from, packed, packed_media, unpacked
from elbowroom.store.tool_outputs_memory import HeldOutput, MemoryToolOutputs

if TYPE_CHECKING:
    from elbowroom.store.sql_store import SqlStore

log = logging.getLogger(__name__)
UNREADABLE: Final = (zlib.error, UnicodeDecodeError, TypeError)
"""What reading raises where something other than elbowroom has written into the database."""


class LastingToolOutputs:
    """`ToolOutputs` in a database that may fail.

    What `keep` returns is in the database, or the log says that it is not: then it is held in memory, within bounds,
    and written once that works again. What is begun is finished, whoever is cancelled.
    """

    plural = "outputs of tools"

    def __init__(self, store: LastingStore, unwritten: MemoryToolOutputs | None = None) -> None:
        self._store = store
        self._unwritten = unwritten or MemoryToolOutputs()
        store.add(self)

    async def keep(self, owner: str, tool: str, text: str) -> ToolOutputRef:
        """Keep a text, and return where; the same text of one owner is kept once, under the same id."""
        ref = await asyncio.to_thread(ref_to, owner, text)
        await self._store.tasks.run(self._keep(owner, ref, lambda: packed(owner, tool, text, ref)))
        return ref

    async def keep_media(self, owner: str, tool: str, mime_type: str, data: bytes) -> ToolOutputRef:
        """Keep what is no text, such as an image, and return where; the same of one owner is kept once."""
        ref = await asyncio.to_thread(ref_to_media, owner, mime_type, data)
        await self._store.tasks.run(self._keep(owner, ref, lambda: packed_media(owner, tool, mime_type, data, ref)))
        return ref

    async def find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return what is kept under an id, None where nothing is or it cannot be read."""
        sql = await self._store.opened()
        self._store.write_later()
        if output := self._unwritten.used(owner, ref_id):
            return output.ref
        return await self._find(sql, owner, ref_id) if sql else None

    async def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the text from the first character at or behind a place, in blocks; nothing where no text is kept.

        Where reading fails on the way the blocks end, with a line in the log.
        """
        ref = await self.find(owner, ref_id)
        if ref and not ref.mime_type:
            async for chunk in self._chunks(owner, ref_id, line, column):
                try:
                    block = await asyncio.to_thread(block_from, chunk, line, column)
                except UNREADABLE as error:
                    _unreadable(ref_id, error)
                    return
                if block:
                    yield block

    async def media(self, owner: str, ref_id: str) -> tuple[str, bytes] | None:
        """Return the MIME type and the bytes of what is no text, None where nothing of that kind can be read."""
        ref = await self.find(owner, ref_id)
        if ref is None or not ref.mime_type:
            return None
        chunks = [chunk async for chunk in self._chunks(owner, ref_id, 1, 1)]
        try:
            data = b"".join(await asyncio.to_thread(lambda: list(map(unpacked, chunks))))
        except UNREADABLE as error:
            _unreadable(ref_id, error)
            return None
        return (ref.mime_type, data) if len(data) == ref.bytes else None

    async def in_use(self, owner: str, ids: Collection[str]) -> None:
        """Tell that these ids stand in a prompt; it is written down in the background, at most once an hour."""
        await self._unwritten.in_use(owner, ids)
        if sql := await self._store.opened():
            sql.tool_outputs.name(owner, ids)

    def waiting(self) -> Sequence[HeldOutput]:
        """Return the outputs that are not written, what nobody used for longest first."""
        return self._unwritten.all()

    async def write(self, store: "SqlStore", item: HeldOutput) -> None:
        """Write an output. Raises StoreUnavailable."""
        await store.tool_outputs.save(item.output)
        store.has_grown()

    def written(self, item: HeldOutput) -> None:
        """Let go an output that has been written."""
        self._unwritten.drop(item)

    def refused(self, item: HeldOutput) -> None:
        """Try an output again after all others."""
        self._unwritten.used(item.output.owner, item.output.ref.id)

    def trim(self) -> None:
        """Let go the outputs that are too many."""
        self._unwritten.trim()

    async def _keep(self, owner: str, ref: ToolOutputRef, pack: Callable[[], PackedOutput]) -> None:
        sql = await self._store.opened()
        if not self._unwritten.renew(owner, ref.id):
            if sql and await self._find(sql, owner, ref.id):
                return
            self._unwritten.put(await asyncio.to_thread(pack))
        await self._store.write(self)

    async def _find(self, sql: "SqlStore", owner: str, ref_id: str) -> ToolOutputRef | None:
        try:
            return await sql.tool_outputs.find(owner, ref_id)
        except StoreUnavailable as error:
            self._store.failed(sql, error)
            return None

    async def _chunks(self, owner: str, ref_id: str, line: int, column: int) -> AsyncIterator[Chunk]:
        if output := self._unwritten.used(owner, ref_id):
            for chunk in output.from_place(line, column):
                yield chunk
        elif sql := await self._store.opened():
            try:
                async for chunk in sql.tool_outputs.chunks(owner, ref_id, line, column):
                    yield chunk
            except StoreUnavailable as error:
                self._store.failed(sql, error)
                _unreadable(ref_id, error)


def _unreadable(ref_id: str, error: Exception) -> None:
    log.warning("The output %s of a tool cannot be read to its end: %s.", ref_id, error)
