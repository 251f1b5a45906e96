"""Counters for LM Studio's models: the file on this machine, checked against LM Studio, else its websocket."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from elbowroom.errors import UpstreamError
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.engine_counters import RpcCounter
from elbowroom.providers.lmstudio_files import find_home, find_model_path
from elbowroom.providers.lmstudio_rpc import LMStudioRpc
from elbowroom.settings.access import is_loopback
from elbowroom.settings.paths import expanded
from elbowroom.tokens.count import CannotCount, Counter, TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.file_counter import FileCounter
from elbowroom.tokens.stream_count import StreamCounter
from elbowroom.tokens.tools import CountingTools

log = logging.getLogger(__name__)
SAMPLE: Final[tuple[dict[str, str], ...]] = (
    {"role": "system", "content": "You are brief."},
    {"role": "user", "content": "Which of 3 rivers is longest, and how long (in km)?"},
    {"role": "assistant", "content": "The second: 1,233 km."},
    {"role": "user", "content": "Danke! 谢谢"},
)
"""What both sides render once for each load: every role, digits, other scripts."""


class LMStudioCounting:
    """Finds the best way to count for each model, and keeps it as long as the model stays loaded as it is."""

    def __init__(
        self, root: str, rpc: LMStudioRpc, tools: CountingTools, home: str, model_files: Mapping[str, str]
    ) -> None:
        self._is_local = is_loopback(urlsplit(root).hostname or "")
        self._rpc = rpc
        self._tools = tools
        self._home = home
        self._model_files = model_files
        self._counters: dict[str, tuple[ModelInfo, TokenCounter]] = {}

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the model's counter; a new one where it was loaded anew, with another window or another file."""
        known = self._counters.get(info.id)
        if known is None or known[0] != info:
            ways = await self._ways(info)
            counter = TokenCounter(info.key or info.id, info.architecture, ways)
            self._counters[info.id] = known = (info, counter)
        return known[1]

    async def _ways(self, info: ModelInfo) -> list[Counter]:
        engine = RpcCounter(self._rpc, info.id)
        path = await asyncio.to_thread(self._path_of, info)
        if path is None:
            return [engine] if info.loaded_context else []
        file = FileCounter(path, self._tools.loader, self._tools.renderer)
        return [ComparedCounter(file, self._rpc, info.id), engine] if info.loaded_context else [file]

    def _path_of(self, info: ModelInfo) -> Path | None:
        if named := self._model_files.get(info.id) or self._model_files.get(info.key or ""):
            return expanded(named)
        home = find_home(self._home, Path.home()) if self._is_local or self._home else None
        return find_model_path(home, info) if home is not None else None


class ComparedCounter:
    """Counts with the model's file as long as LM Studio renders the same prompt from it.

    A person can override a model's template in LM Studio, and an index can name the wrong file: one sample is
    compared before the first count, and where it differs this way of counting is given up. Where LM Studio does not
    answer, the file is believed.
    """

    def __init__(self, file: FileCounter, rpc: LMStudioRpc, model: str) -> None:
        self.file = file
        self._rpc = rpc
        self._model = model
        self._comparison: asyncio.Task[str | None] | None = None

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text. Raises CannotCount where LM Studio's tokens differ."""
        await self._agree()
        return await self.file.count_text(text)

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the whole prompt. Raises CannotCount where LM Studio renders another one."""
        await self._agree()
        return await self.file.count_chat(messages, tools, arguments)

    async def stream(self) -> StreamCounter:
        """Return a counter for an answer that grows. Raises CannotCount where LM Studio's tokens differ."""
        await self._agree()
        return await self.file.stream()

    async def _agree(self) -> None:
        if self._comparison is None or self._comparison.cancelled():
            self._comparison = asyncio.create_task(self._difference())
        if difference := await asyncio.shield(self._comparison):
            raise CannotCount(difference)

    async def _difference(self) -> str | None:
        """Return in words how LM Studio's prompt for the sample differs from the file's, None where it does not."""
        try:
            theirs = await self._rpc.render(self._model, SAMPLE, ())
            tokens = await self._rpc.tokenize(self._model, SAMPLE[1]["content"])
        except UpstreamError as error:
            log.debug("LM Studio does not render or tokenize: %s", error)
            return None
        model = await self.file.load()
        ours = await self.file.render(model, SAMPLE, (), {})
        bos = model.text.tokenizer.bos_token
        if not _same_prompt(ours.removeprefix(bos), theirs.removeprefix(bos)):
            return f"LM Studio renders {self._model}'s prompts in another way than {self.file.path} does."
        own = model.text.tokenizer.encode(SAMPLE[1]["content"])
        if own not in (tokens, tokens[1:], tokens[:-1]):
            return f"LM Studio cuts {self._model}'s text in another way than {self.file.path} does."
        return None


def _same_prompt(ours: str, theirs: str) -> bool:
    """Compare prompts; LM Studio may leave the generation prompt out."""
    ours, theirs = ours.rstrip(), theirs.rstrip()
    return ours == theirs or (ours.startswith(theirs) and len(ours) - len(theirs) <= 80)
