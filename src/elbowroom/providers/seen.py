"""Keeps which models a provider had, for the day after it has last listed them; in a file, so over a restart too."""

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
FILE_NAME: Final = "seen-models.json"
KEPT_SECONDS: Final = 86_400.0
WRITTEN_AGAIN_SECONDS: Final = 600.0
"""After how long the same list is written down again with its new time."""


class SeenModel(msgspec.Struct, frozen=True):
    """What is kept of a model: nothing that holds only while its provider runs; `window` is the last one it had."""

    id: str
    name: str
    kind: str
    window: int | None = None


class _Seen(msgspec.Struct, frozen=True):
    """The last list of a provider, and when it came, in Unix seconds."""

    at: float
    models: tuple[SeenModel, ...]


_DECODER: Final = msgspec.json.Decoder(dict[str, _Seen])


class SeenModels:
    """The last lists of all providers, by their ids; without a `path` they last as long as the process.

    No method raises: where the file cannot be read or written, the log says why.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lists: dict[str, _Seen] | None = None
        self._written: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def note(self, provider: str, infos: Sequence[ModelInfo]) -> None:
        """Keep the list of a provider that has just answered, and the last window of each model."""
        now = self._clock()
        async with self._lock:
            lists = await self._read()
            before = lists.get(provider)
            windows = {model.id: model.window for model in before.models} if before is not None else {}
            models = tuple(
                SeenModel(info.id, info.name, info.kind, info.loaded_context or windows.get(info.id)) for info in infos
            )
            lists[provider] = _Seen(now, models)
            is_old = now - self._written.get(provider, 0) > WRITTEN_AGAIN_SECONDS
            if before is None or before.models != models or is_old:
                self._written[provider] = now
                await self._on_disk(self._write, dict(lists))

    async def of(self, provider: str) -> tuple[SeenModel, ...]:
        """Return the models that a provider had when it last answered; none where that is more than a day ago."""
        async with self._lock:
            seen = (await self._read()).get(provider)
        return seen.models if seen is not None and self._clock() - seen.at < KEPT_SECONDS else ()

    async def _read(self) -> dict[str, _Seen]:
        if self._lists is None:
            self._lists = {}
            await self._on_disk(self._take_from_file)
        return self._lists

    async def _on_disk(self, work: Callable[..., None], *given: dict[str, _Seen]) -> None:
        if self._path is None:
            return
        try:
            await asyncio.to_thread(work, self._path, *given)
        except (OSError, ValueError) as error:
            log.warning("Which models were seen last cannot be kept in %s: %s", self._path, error)

    def _take_from_file(self, path: Path) -> None:
        if path.exists():
            self._lists = _DECODER.decode(path.read_bytes())

    def _write(self, path: Path, lists: dict[str, _Seen]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(msgspec.to_builtins(lists), indent=1), encoding="utf-8")
        os.replace(new, path)
