"""Any server that speaks OpenAI's chat completions: llama.cpp, vLLM, a gateway, a cloud."""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from elbowroom.errors import ModelNotFound, UpstreamError
from elbowroom.providers.base import FRESH_SECONDS, ModelInfo, RecentModels
from elbowroom.providers.chat_chunks import ChunkReader
from elbowroom.providers.chat_endpoint import ChatEndpoint
from elbowroom.providers.engine_counters import RouteCounter
from elbowroom.providers.events import StreamEvent
from elbowroom.providers.failures import Source
from elbowroom.providers.http_api import JsonApi
from elbowroom.providers.base import PassedAnswer
from elbowroom.providers.pass_through import PassThrough
from elbowroom.providers.posting import Poster
from elbowroom.settings.paths import expanded
from elbowroom.tokens.count import Counter
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.file_counter import FileCounter
from elbowroom.tokens.tools import CountingTools

KEY_HINT = "Put a valid key for it into api_key."


class OpenAICompatible:
    """The server at one base address, which ends with the version: `http://127.0.0.1:8080/v1`."""

    name = "The upstream server"
    start_hint = "Start it, or put its address into base_url."

    def __init__(
        self,
        provider_id: str,
        base_url: str,
        http: aiohttp.ClientSession,
        *,
        api_key: str | None = None,
        manages_context: bool = False,
        tools: CountingTools | None = None,
        home: str = "",
        model_files: Mapping[str, str] | None = None,
    ) -> None:
        self.id = provider_id
        self.manages_context = manages_context
        self._base = _with_version(base_url)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._source = Source(self.name, self._base, KEY_HINT, api_key)
        self._api = JsonApi(http, headers, self._source, self.start_hint)
        self._chat = ChatEndpoint(http, f"{self._base}/chat/completions", headers, self._source, self.start_hint)
        self._passing = PassThrough(Poster(http, headers, self._source, self.start_hint), self._base, self._source)
        self._tools = tools or CountingTools()
        self._model_files = model_files or {}
        self._counters: dict[str, TokenCounter] = {}
        self._models = RecentModels(self._fetch_models, time.monotonic, FRESH_SECONDS)

    async def models(self) -> Sequence[ModelInfo]:
        """Return what the server lists, with a window where it tells one (vLLM does)."""
        return await self._models.get()

    async def ready(self, model: str) -> ModelInfo:
        """Return the model as listed; without context management its name is all that is needed."""
        if not self.manages_context:
            return ModelInfo(id=model, provider=self.id, name=model)
        models = await self._models.get()
        for info in models:
            if self._is_named(info, model):
                return info
        there = ", ".join(info.id for info in models) or "none"
        raise ModelNotFound(f"The provider {self.id!r} has no model {model!r}. It has: {there}.")

    def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a chat request and yield what comes back."""
        return self._chat.stream(body, ChunkReader(self._source), info.loaded_context)

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a chat request that does not stream and return the completion as the server sent it."""
        return await self._chat.complete(body)

    def passed(self, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[PassedAnswer]:
        """Send a request to another of OpenAI's routes as it is, and give the answer."""
        return self._passing.opened(path, body)

    async def overflow_policy(self, model: str) -> str | None:
        """Return None: these servers do not tell."""
        return None

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the counter of this model: by the file that the settings name, by the engine, or by its family."""
        if info.id not in self._counters:
            ways: list[Counter] = [RouteCounter(self._api, self._base, info.id)]
            if named := self._model_files.get(info.id):
                ways.insert(0, FileCounter(expanded(named), self._tools.loader, self._tools.renderer))
            self._counters[info.id] = TokenCounter(info.id, info.architecture, ways)
        return self._counters[info.id]

    async def aclose(self) -> None:
        """Nothing is under way between requests."""

    async def _fetch_models(self) -> Sequence[ModelInfo]:
        answer = await self._api.get(f"{self._base}/models")
        rows = answer.get("data") if isinstance(answer, dict) else answer
        if not isinstance(rows, list):
            raise UpstreamError(f"{self.name} at {self._base}/models does not list its models.")
        return [self._model(row) for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]

    def _is_named(self, info: ModelInfo, name: str) -> bool:
        return info.id == name

    def _model(self, row: Mapping[str, Any]) -> ModelInfo:
        window = row.get("max_model_len")
        return ModelInfo(
            id=row["id"],
            provider=self.id,
            name=row["id"],
            loaded_context=window if isinstance(window, int) and window > 0 else None,
        )


def _with_version(base_url: str) -> str:
    has_path = "/" in base_url.split("://", 1)[1]
    return base_url if has_path else f"{base_url}/v1"
