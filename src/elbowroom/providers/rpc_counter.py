"""Counting by LM Studio's websocket."""

import asyncio
import hashlib
import re
import collections
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elbowroom.errors import UpstreamError
from elbowroom.providers.lmstudio_rpc import LMStudioRpc
from elbowroom.tokens.count import CannotCount, TokenCount

REMEMBERED: Final = 4096
CALLS_AT_ONCE: Final = 8
MARK: Final = re.compile(r"<\|[^|<>\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|</?s>")
"""Texts that are one token in models that have them: a prompt can be cut before these, and before no others."""
MARKS_TRIED: Final = 16


class RpcCounter:
    """Asks LM Studio: it renders the prompt, and counts each piece of it once."""

    def __init__(self, rpc: LMStudioRpc, model: str) -> None:
        self._rpc = rpc
        self._model = model
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._turn = asyncio.Semaphore(CALLS_AT_ONCE)

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        return TokenCount(await self._count(text), "engine")

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the prompt that LM Studio makes of the messages, its begin-of-text token included."""
        try:
            prompt = await self._rpc.render(self._model, messages, tools)
        except UpstreamError as error:
            raise CannotCount(error.message) from error
        added = await self._count("")  # where begin-of-text is put before every text, a prompt has it once
        pieces = await self._pieces(prompt, added)
        counts = await asyncio.gather(*(self._count(piece) for piece in pieces))
        return TokenCount(sum(counts) - added * (len(counts) - 1), "engine")

    async def _pieces(self, prompt: str, added: int) -> list[str]:
        """Cut the prompt before texts that are one token to this model, so that most pieces are known already."""
        found = [mark for mark, _ in collections.Counter(MARK.findall(prompt)).most_common(MARKS_TRIED)]
        sizes = await asyncio.gather(*(self._count(mark) for mark in found))
        marks = [re.escape(mark) for mark, size in zip(found, sizes, strict=True) if size - added == 1]
        return [piece for piece in re.split(f"(?={'|'.join(marks)})", prompt) if piece] if marks else [prompt]

    async def _count(self, text: str) -> int:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if (known := self._counts.get(digest)) is not None:
            self._counts.move_to_end(digest)
            return known
        try:
            async with self._turn:
                count = len(await self._rpc.tokenize(self._model, text))
        except UpstreamError as error:
            raise CannotCount(error.message) from error
        self._counts[digest] = count
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return count
