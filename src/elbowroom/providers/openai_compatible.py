"""Any server that speaks OpenAI's chat completions: llama.cpp, vLLM, a gateway, a cloud."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any, Final

import aiohttp

from elbowroom.caches import Recent
from elbowroom.errors import ElbowroomError, ModelNotFound, UpstreamError, UpstreamRejected
from elbowroom.providers.base import ModelInfo, ModelManagement, PassedAnswer, SlotFiles, State, StreamEvent
from elbowroom.providers.failures import Source
from elbowroom.providers.pass_through import pass_through
from elbowroom.providers.slot_files import LlamaCppSlots
from elbowroom.providers.stream import ChatAnswer
from elbowroom.providers.upstream import FRESH_SECONDS, RecentModels, Upstream
from elbowroom.providers.windows import Windows, size, window_in_row
from elbowroom.settings.fields import expanded
from elbowroom.tokens.count import CannotCount, Counter, TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.file_counter import CountingTools, FileCounter

KEY_HINT = "Put a valid key for it into api_key."
LLAMA_CPP: Final = "llamacpp"
"""The owner of the models in llama.cpp's list."""
COUNTERS_KEPT: Final = 64
"""Models whose counters are kept; where the server does not list its models, a client may name any."""


class OpenAICompatible:
    """The server at one base address, which ends with the version: `http://127.0.0.1:8080/v1`."""

    name = "The upstream server"
    start_hint = "Start it, or put its address into base_url."
    has_own_tool_format = False
    management: ModelManagement | None = None

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
        self._upstream = Upstream(http, Source(self.name, self._base, self.start_hint, KEY_HINT, api_key))
        self._tools = tools or CountingTools()
        self._model_files = model_files or {}
        self._counters = Recent[str, TokenCounter]("counters", COUNTERS_KEPT)
        self._windows = Windows(self._upstream, self._base.removesuffix("/v1"))
        self._slots = LlamaCppSlots(self._upstream, self._base.removesuffix("/v1"))
        self.slot_files: SlotFiles | None = self._slots
        self._models = RecentModels(self._fetch_models, time.monotonic, FRESH_SECONDS)

    async def models(self) -> Sequence[ModelInfo]:
        """Return what the server lists, with the windows that it tells."""
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

    async def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a chat request and yield its events."""
        if info.tells_reading:
            body = {**body, "return_progress": True}
        with self._models.forgotten_on_failure():
            post = partial(self._upstream.post, f"{self._base}/chat/completions", body)
            response = await (self._slots.begun(info.id, post) if info.slots else post())
            with closing(ChatAnswer(response, self._upstream.source, info.loaded_context)) as answer:
                while events := await answer.more():
                    yield events

    @asynccontextmanager
    async def passed(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[PassedAnswer, None]:
        """Send a request unchanged to one of OpenAI's routes, and yield the answer."""
        with self._models.forgotten_on_failure():
            async with pass_through(self._upstream, f"{self._base}/{path}", body) as answer:
                yield answer

    async def overflow_policy(self, model: str) -> str | None:
        """Return None: these servers do not tell."""
        return None

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the counter of this model: by the file that the settings name, by the engine, or by its family."""
        if (counter := self._counters.get(info.id)) is None:
            ways: list[Counter] = [RouteCounter(self._upstream, self._base, info.id)]
            if named := self._model_files.get(info.id):
                ways.insert(0, FileCounter(expanded(named), self._tools.loader, self._tools.renderer))
            counter = TokenCounter(info.id, info.architecture, ways)
            self._counters.put(info.id, counter)
        return counter

    async def aclose(self) -> None:
        """Do nothing: between requests there is nothing to end."""

    async def _fetch_models(self) -> Sequence[ModelInfo]:
        answer = await self._upstream.ask("GET", f"{self._base}/models")
        rows = answer.get("data") if isinstance(answer, dict) else answer
        if not isinstance(rows, list):
            raise UpstreamError(f"{self.name} at {self._base}/models does not list its models.")
        rows = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
        windows = await self._windows.of(rows) if self.manages_context else {}
        with_slots = [row for row in rows if self.manages_context and row.get("owned_by") == LLAMA_CPP]
        slots = await self._windows.slots(with_slots)
        return [self._model(row, windows.get(row["id"]) or window_in_row(row), slots.get(row["id"])) for row in rows]

    def _is_named(self, info: ModelInfo, name: str) -> bool:
        return info.id == name

    def _model(self, row: Mapping[str, Any], window: int | None, slots: int | None) -> ModelInfo:
        tells = row.get("owned_by") == LLAMA_CPP
        return ModelInfo(row["id"], self.id, row["id"], loaded_context=window, slots=slots, tells_reading=tells)


def _with_version(base_url: str) -> str:
    has_path = "/" in base_url.split("://", 1)[1]
    return base_url if has_path else f"{base_url}/v1"


REMEMBERED: Final = 4096
ANSWER_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 30.0
"""How long a server that did not answer is not asked about as much, so that chats need not wait for it."""
UNKNOWN_ROUTE: Final = "The engine has no route for counting."


class RouteCounter:
    """Asks llama.cpp's `input_tokens` or vLLM's `tokenize`, whichever the server at this address has."""

    def __init__(self, upstream: Upstream, base: str, model: str) -> None:
        self._upstream = upstream
        self._base = base
        self._root = base.removesuffix("/v1")
        self._model = model
        self._counts = Recent[str, int]("engine_counts", REMEMBERED)
        self._paused_until = float("-inf")
        self._paused_from = 0

    async def count_text(self, text: str) -> TokenCount:
        """Return the size of a bare text."""
        body = {"content": text, "prompt": text, "add_special_tokens": False, "model": self._model}
        return TokenCount(await self._ask(len(text), (f"{self._root}/tokenize", body)), "engine")

    async def count_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
    ) -> TokenCount:
        """Return the size of the whole prompt as the engine counts it; the same request is asked once."""
        body: dict[str, Any] = {"model": self._model, "messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        if arguments:
            body["chat_template_kwargs"] = dict(arguments)
        text = json.dumps(body).encode()
        key = hashlib.blake2b(text, digest_size=16).hexdigest()
        if (count := self._counts.get(key)) is None:
            count = await self._ask(
                len(text), (f"{self._base}/chat/completions/input_tokens", body), (f"{self._root}/tokenize", body)
            )
            self._counts.put(key, count)
        return TokenCount(count, "engine")

    async def _ask(self, size: int, *attempts: tuple[str, dict[str, Any]]) -> int:
        """Return the first count that one of the routes has; `size` is how much there is to count, in letters."""
        now = asyncio.get_running_loop().time()
        if now < self._paused_until and size > self._paused_from:
            raise CannotCount("The engine did not answer a moment ago and is left alone for now.")
        problem = UNKNOWN_ROUTE
        for url, body in attempts:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._upstream.ask("POST", url, body)
            except UpstreamRejected as refusal:
                problem = f"The engine did not count: {refusal.message}"
                continue
            except (ElbowroomError, TimeoutError) as error:
                may_do = size // 2 if isinstance(error, TimeoutError) else 0  # so much, as this may just be too much
                is_paused = now < self._paused_until  # another question got no answer either
                self._paused_from = min(self._paused_from, may_do) if is_paused else may_do
                self._paused_until = now + PAUSE_SECONDS
                reason = error.message if isinstance(error, ElbowroomError) else "it did not answer in time."
                raise CannotCount(f"The engine did not count: {reason}") from error
            if (count := _number_in(answer)) is not None:
                return count
        raise CannotCount(problem)


def _number_in(answer: Any) -> int | None:
    if not isinstance(answer, dict):
        return None
    for key in ("input_tokens", "count"):
        number = answer.get(key)
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return number
    tokens = answer.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None


class Ollama(OpenAICompatible):
    """The Ollama at one address, without `/v1`."""

    name = "Ollama"
    start_hint = "Start it with `ollama serve`. If it runs elsewhere, put its address into base_url."

    async def _fetch_models(self) -> Sequence[ModelInfo]:
        root = self._base.removesuffix("/v1")
        pulled = _rows(await self._upstream.ask("GET", f"{root}/api/tags"))
        if pulled is None:
            raise UpstreamError(f"What answers at {root} is no Ollama: it has no /api/tags.")
        running = _rows(await self._upstream.ask("GET", f"{root}/api/ps")) or []
        running_windows = {row["name"]: size(row.get("context_length")) for row in running if _has_name(row)}
        rows = [{**row, "id": row["name"]} for row in pulled if _has_name(row)]
        windows = await self._windows.of_ollama(rows, running_windows) if self.manages_context else running_windows
        return [self._pulled_model(row["id"], windows.get(row["id"]), row["id"] in running_windows) for row in rows]

    def _is_named(self, info: ModelInfo, name: str) -> bool:
        return info.id in (name, f"{name}:latest")

    def _pulled_model(self, name: str, window: int | None, is_running: bool) -> ModelInfo:
        state: State = "loaded" if is_running else "not-loaded"
        return ModelInfo(id=name, provider=self.id, name=name, state=state, loaded_context=window)


def _has_name(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("name"), str)


def _rows(answer: Any) -> list[dict[str, Any]] | None:
    models = answer.get("models") if isinstance(answer, dict) else None
    return [row for row in models if isinstance(row, dict)] if isinstance(models, list) else None
