"""Tool outputs in memory, within bounds."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from typing import Final

from elbowroom.context.outputs import Block, ToolOutputRef, ref_to, ref_to_media
from elbowroom.store.tool_output_chunks import PackedOutput, block_from, packed, packed_media, unpacked

MOST_BYTES: Final = 256 * 2**20
SAFE_SECONDS: Final = 60.0
"""For so long an output stays whatever the bounds: whoever kept it is still at work with it."""


@dataclass(frozen=True, slots=True)
class HeldOutput:
    """An output, what it takes, and when it was kept by the clock of those that hold it."""

    output: PackedOutput
    size: int
    kept: float


class MemoryToolOutputs:
    """`ToolOutputs` that last as long as this object; beyond the bounds those go that nobody used for longest.

    `clock` gives seconds from any beginning. Outputs are compressed, and hashed and compressed in threads.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._held: dict[tuple[str, str], HeldOutput] = {}  # in the order of last use
        self._size = 0

    async def keep(self, owner: str, tool: str, text: str) -> ToolOutputRef:
        """Keep a text, and return where; the same text of one owner is kept once, under the same id."""
        ref = await asyncio.to_thread(ref_to, owner, text)
        if not self.renew(owner, ref.id):
            self.put(await asyncio.to_thread(packed, owner, tool, text, ref))
            self.trim()
        return ref

    async def keep_media(self, owner: str, tool: str, mime_type: str, data: bytes) -> ToolOutputRef:
        """Keep what is no text, such as an image, and return where; the same of one owner is kept once."""
        ref = await asyncio.to_thread(ref_to_media, owner, mime_type, data)
        if not self.renew(owner, ref.id):
            self.put(await asyncio.to_thread(packed_media, owner, tool, mime_type, data, ref))
            self.trim()
        return ref

    async def find(self, owner: str, ref_id: str) -> ToolOutputRef | None:
        """Return what is kept under an id, None where nothing is."""
        output = self.used(owner, ref_id)
        return output.ref if output else None

    async def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the text from the first character at or behind a place; nothing where no text is kept."""
        output = self.used(owner, ref_id)
        if output and not output.ref.mime_type:
            for chunk in output.from_place(line, column):
                if block := await asyncio.to_thread(block_from, chunk, line, column):
                    yield block

    async def media(self, owner: str, ref_id: str) -> tuple[str, bytes] | None:
        """Return the MIME type and the bytes of what is no text, None where nothing of that kind is kept."""
        output = self.used(owner, ref_id)
        if output is None or not output.ref.mime_type:
            return None
        return output.ref.mime_type, b"".join(await asyncio.to_thread(lambda: list(map(unpacked, output.chunks))))

    async def in_use(self, owner: str, ids: Collection[str]) -> None:
        """Take these ids as used now."""
        for ref_id in ids:
            self.used(owner, ref_id)

    async def aclose(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._size = 0

    def all(self) -> list[HeldOutput]:
        """Return everything that is held, what nobody used for longest first."""
        return list(self._held.values())

    def used(self, owner: str, ref_id: str) -> PackedOutput | None:
        """Return what is held under an id, which counts as used now."""
        if held := self._held.pop((owner, ref_id), None):
            self._held[owner, ref_id] = held
            return held.output
        return None

    def renew(self, owner: str, ref_id: str) -> bool:
        """Take what is held under an id as kept now; tells whether anything is."""
        if output := self.used(owner, ref_id):
            self.put(output)
            return True
        return False

    def put(self, output: PackedOutput) -> None:
        """Hold an output, whatever the bounds."""
        key = output.owner, output.ref.id
        if before := self._held.get(key):
            self.drop(before)
        self._held[key] = HeldOutput(output, output.size, self._clock())
        self._size += self._held[key].size

    def drop(self, held: HeldOutput) -> None:
        """Let go what is held, unless another has taken its place."""
        key = held.output.owner, held.output.ref.id
        if self._held.get(key) is held:
            del self._held[key]
            self._size -= held.size

    def trim(self) -> None:
        """Go back within the bounds, as far as what was kept a moment ago lets it."""
        safe = self._clock() - SAFE_SECONDS
        for held in self.all():
            if self._size <= self._most_bytes:
                return
            if held.kept <= safe:
                self.drop(held)
