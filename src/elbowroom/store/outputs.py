"""The outputs of tools as chats need them: there from the start, and never in the way."""

import asyncio
import logging
import time
import zlib
from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING, Final

from elbowroom.context.outputs import Block, ToolOutputRef, ref_to, ref_to_media
from elbowroom.store.backlog import Waiting
from elbowroom.store.base import BYTES_IN_MEMORY, StoreUnavailable
from elbowroom.store.packed import Chunk, PackedOutput, block_from, packed, packed_media, unpacked
from elbowroom.store.write_behind import WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

log = logging.getLogger(__name__)
SAFE_SECONDS: Final = 60.0
"""For so long an output that is not written stays whatever the bounds: the answer that kept it is still at work."""
UNREADABLE: Final = (zlib.error, UnicodeDecodeError, TypeError)
"""What reading raises where another program has written into the database."""


class WriteBehindToolOutputs:
    """`ToolOutputs` in a database that may fail.

    An output that `keep` has taken is in the database, or the log says that it is not: then it is held in memory,
    within bounds, and written once that works again. What is begun is finished, also when the caller is cancelled.
    """

    def __init__(
        self, store: WriteBehindStore, most_bytes: int = BYTES_IN_MEMORY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._unwritten: Waiting[tuple[str, str], PackedOutput] = Waiting(
            "outputs of tools", _write_output, most_bytes=most_bytes, safe_seconds=SAFE_SECONDS, clock=clock
        )
        store.add(self._unwritten)

    async def keep(self, owner: str, tool: str, text: str) -> ToolOutputRef:
        """Keep a text, and return where; the same text of one owner is kept once, under the same id."""
        ref = await asyncio.to_thread(ref_to, owner, text)
        await self._store.tasks.run(self._keep(owner, ref, lambda: packed(owner, tool, text, ref)))
        return ref

    async def keep_media(self, owner: str, tool: str, mime_type: str, data: bytes) -> ToolOutputRef:
        """Keep data that is no text, such as an image, and return where; the same of one owner is kept once."""
        ref = await asyncio.to_thread(ref_to_media, owner, mime_type, data)
        await self._store.tasks.run(self._keep(owner, ref, lambda: packed_media(owner, tool, mime_type, data, ref)))
        return ref

    async def find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return the reference of what is kept under an id, None where nothing is or it cannot be read."""
        await self._store.opened()
        self._store.write_later()
        if output := self._unwritten.get((owner, ref_id)):
            return output.ref
        return await self._store.ask(lambda sql: sql.tool_outputs.find(owner, ref_id))

    async def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the text from the first character at or after a place, in blocks; nothing where no text is kept.

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
        """Return the MIME type and the bytes of an image or other data, None where none can be read under this id."""
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
        for ref_id in ids:
            self._unwritten.get((owner, ref_id))
        if sql := await self._store.opened():
            sql.tool_outputs.name(owner, ids)

    async def _keep(self, owner: str, ref: ToolOutputRef, pack: Callable[[], PackedOutput]) -> None:
        await self._store.opened()
        if not self._unwritten.renew((owner, ref.id)):
            if await self.find(owner, ref.id):
                return
            output = await asyncio.to_thread(pack)
            self._unwritten.put((owner, ref.id), output, output.size)
        await self._store.write(self._unwritten)

    async def _chunks(self, owner: str, ref_id: str, line: int, column: int) -> AsyncIterator[Chunk]:
        if output := self._unwritten.get((owner, ref_id)):
            for chunk in output.from_place(line, column):
                yield chunk
        elif sql := await self._store.opened():
            try:
                async for chunk in sql.tool_outputs.chunks(owner, ref_id, line, column):
                    yield chunk
            except StoreUnavailable as error:
                self._store.failed(sql, error)
                _unreadable(ref_id, error)


async def _write_output(store: "SqlStore", output: PackedOutput) -> None:
    await store.tool_outputs.save(output)
    store.has_grown()


def _unreadable(ref_id: str, error: Exception) -> None:
    log.warning("The output %s of a tool cannot be read to its end: %s.", ref_id, error)
