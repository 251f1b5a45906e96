"""LM Studio: its models, the windows that are really loaded, and chats with them.

Facts come from LM Studio's documentation and bug tracker: unknown paths answer 200, an unknown model is answered
by whichever model is loaded, and the only true window is that of the loaded instance.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any

import aiohttp

from elbowroom.errors import ContextOverflow, ModelNotFound, ModelUnavailable, UpstreamError, UpstreamRejected
from elbowroom.providers.base import FRESH_SECONDS, ModelInfo, PassedAnswer, RecentModels, StreamEvent
from elbowroom.providers.lmstudio.counting import LMStudioCounting
from elbowroom.providers.lmstudio.models import (
    ModelManagement,
    find_model,
    find_owner,
    parse_v0_models,
    parse_v1_models,
)
from elbowroom.providers.lmstudio.rpc import LMStudioRpc
from elbowroom.providers.pass_through import PassThrough
from elbowroom.providers.stream import ChatEndpoint, ChunkReader
from elbowroom.providers.upstream import JsonApi, Poster, Source
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.tools import CountingTools

log = logging.getLogger(__name__)
NAME = "LM Studio"
START_HINT = (
    "Start its server: in LM Studio on the Developer page, or with `lms server start`. "
    "If it runs elsewhere, put its address into base_url."
)
KEY_HINT = "Put an API token from LM Studio's Developer page into api_key, or switch its authentication off."


class LMStudio:
    """The LM Studio at one address. `management` is what it offers to those who load and unload its models."""

    def __init__(
        self,
        provider_id: str,
        base_url: str,
        http: aiohttp.ClientSession,
        *,
        api_key: str | None = None,
        manages_context: bool = True,
        tools: CountingTools | None = None,
        home: str = "",
        model_files: Mapping[str, str] | None = None,
    ) -> None:
        self.id = provider_id
        self.manages_context = manages_context
        self._root = base_url.removesuffix("/v1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        source = Source(NAME, self._root, KEY_HINT, api_key)
        self._source = source
        self._api = JsonApi(http, headers, source, START_HINT)
        self._chat = ChatEndpoint(http, f"{self._root}/v1/chat/completions", headers, source, START_HINT)
        self._passing = PassThrough(Poster(http, headers, source, START_HINT), f"{self._root}/v1", source)
        self._models = RecentModels(self._fetch_models, time.monotonic, FRESH_SECONDS)
        self.management = ModelManagement(http, self._root, headers, source, START_HINT, self._models.forget)
        self._loads = SingleFlight()
        self._rpc = LMStudioRpc(http, self._root, api_key)
        self._counting = LMStudioCounting(self._root, self._rpc, tools or CountingTools(), home, model_files or {})

    async def models(self) -> Sequence[ModelInfo]:
        """Return all downloaded models, with the windows of those that are loaded."""
        return await self._models.get()

    async def ready(self, model: str) -> ModelInfo:
        """Return the model with its window as it is now: a person may have loaded it anew a moment ago.

        One that is not loaded is loaded by LM Studio's just-in-time rule.
        """
        info = self._named(model, await self._models.get_new())
        if info.kind == "embedding":
            raise ModelNotFound(f"The model {model!r} only makes embeddings, it cannot chat.")
        if info.loaded_context is None:
            await self._loads.do(model, lambda: self._load(model))
            info = self._named(model, await self._models.get())
        if info.loaded_context is None:
            raise ModelUnavailable(
                f"The model {model!r} is not loaded in {NAME}, and {NAME} did not load it on request. Load it "
                f"there, or with `lms load {model}`, or switch just-in-time loading on in its server settings."
            )
        return info

    async def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a chat request and yield what comes back; the list of models is read again after a failure."""
        reader = ChunkReader(self._source)
        answerer_is_checked = False
        try:
            async with aclosing(self._chat.stream(body, reader, info.loaded_context)) as answer:
                async for events in answer:
                    if not answerer_is_checked and reader.model is not None:
                        await self._check_answerer(reader.model, info.id)
                        answerer_is_checked = True
                    yield events
        except (ContextOverflow, UpstreamError):
            self._models.forget()
            raise

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a chat request that does not stream and return the completion as LM Studio sent it."""
        completion = await self._chat.complete(body)
        if isinstance(answerer := completion.get("model"), str):
            await self._check_answerer(answerer, str(body.get("model")))
        return completion

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the counter of this model: by its file, by LM Studio itself, or by its family."""
        return await self._counting.counter(info)

    def passed(self, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[PassedAnswer]:
        """Send a request to another of OpenAI's routes as it is, and give the answer."""
        return self._passing.opened(path, body)

    async def overflow_policy(self, model: str) -> str | None:
        """Return what LM Studio does with too long a prompt, such as truncateMiddle, None if it does not tell."""
        try:
            settings = await self._rpc.prediction_config(model)
        except UpstreamError:
            return None
        policy = settings.get("llm.prediction.contextOverflowPolicy")
        return policy if isinstance(policy, str) else None

    async def aclose(self) -> None:
        """Give up on loads that are under way, and close the websocket."""
        await self._loads.aclose()
        await self._counting.aclose()
        await self._rpc.aclose()

    async def _fetch_models(self) -> Sequence[ModelInfo]:
        answer = await self._api.get(f"{self._root}/api/v1/models")
        if isinstance(answer, dict) and isinstance(answer.get("models"), list):
            return parse_v1_models(answer["models"], self.id)
        answer = await self._api.get(f"{self._root}/api/v0/models")
        if isinstance(answer, dict) and isinstance(answer.get("data"), list):
            return parse_v0_models(answer["data"], self.id)
        raise UpstreamError(
            f"What answers at {self._root} does not tell the windows of its models: it is no {NAME}, or one older "
            "than 0.3.6. Update it, or give this provider kind = 'openai' if it is another server."
        )

    def _named(self, model: str, models: Sequence[ModelInfo]) -> ModelInfo:
        if info := find_model(models, model):
            return info
        there = ", ".join(info.id for info in models if info.kind != "embedding") or "none"
        raise ModelNotFound(f"{NAME} has no model {model!r}. It has: {there}.")

    async def _load(self, model: str) -> None:
        log.info("%s has not loaded %s; asking for one token, so that it does.", NAME, model)
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        try:
            await self._chat.complete(body)
        except UpstreamRejected as refusal:
            raise ModelUnavailable(f"{NAME} could not load {model!r}. {refusal.message}") from refusal
        finally:
            self._models.forget()

    async def _check_answerer(self, answerer: str, asked: str) -> None:
        """Refuse an answer by another model: LM Studio lets a loaded one answer for one that it cannot load."""
        if answerer == asked:
            return
        models = await self._models.get()
        other = find_owner(models, answerer)
        if other is not None and other is not find_owner(models, asked):
            raise ModelUnavailable(
                f"{NAME} let {answerer!r} answer instead of {asked!r}. Load {asked!r} there and ask again."
            )


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[None]
    waiting: int = 0


class SingleFlight:
    """Pieces of work by name."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight] = {}

    async def do(self, name: str, begin: Callable[[], Awaitable[None]]) -> None:
        """Begin the work, or wait for the one that is under way; raises what it raises.

        One waiter's cancellation leaves the work to the others; the last one's ends it.
        """
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = _Flight(asyncio.create_task(_run(begin)))
        flight.waiting += 1
        try:
            await asyncio.wait([flight.task])
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()
                if self._flights.get(name) is flight:
                    del self._flights[name]
        flight.task.result()

    async def aclose(self) -> None:
        """End all that is under way."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(begin: Callable[[], Awaitable[None]]) -> None:
    await begin()
