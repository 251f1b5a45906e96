"""LM Studio: its models, the windows that are really loaded, and chats with them.

Facts come from LM Studio's documentation and bug tracker: unknown paths answer 200, an unknown model is answered
by whichever model is loaded, and the only true window is that of the loaded instance. Newer versions list their
models at `/api/v1/models`, older ones at `/api/v0/models`.
"""

import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

import aiohttp

from elbowroom.errors import ModelNotFound, ModelUnavailable, UpstreamError, UpstreamRejected
from elbowroom.providers.base import ModelInfo, PassedAnswer, SlotFiles, State, StreamEvent
from elbowroom.providers.failures import Source
from elbowroom.providers.lmstudio.counting import LMStudioCounting
from elbowroom.providers.lmstudio.management import LMStudioManagement
from elbowroom.providers.lmstudio.rpc import LMStudioRpc
from elbowroom.providers.pass_through import pass_through
from elbowroom.providers.stream import ChatAnswer, read_completion
from elbowroom.providers.upstream import FRESH_SECONDS, AskedOnce, RecentModels, Upstream
from elbowroom.tokens.file_counter import CountingTools

log = logging.getLogger(__name__)
NAME: Final = "LM Studio"
START_HINT: Final = (
    "Start its server: in LM Studio on the Developer page, or with `lms server start`. "
    "If it runs elsewhere, put its address into base_url."
)
KEY_HINT: Final = "Put an API token from LM Studio's Developer page into api_key, or switch its authentication off."
Row = dict[str, Any]


class LMStudio:
    """The LM Studio at one address."""

    has_own_tool_format = True
    slot_files: SlotFiles | None = None

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
        self._upstream = Upstream(http, Source(NAME, self._root, START_HINT, KEY_HINT, api_key))
        self._rows: list[Any] = []
        self._parsed: Sequence[ModelInfo] = ()
        self._models = RecentModels(self._fetch_models, time.monotonic, FRESH_SECONDS)
        self.management = LMStudioManagement(self._upstream, f"{self._root}/api/v1/models", self._models.forget)
        self._loads: dict[str, AskedOnce[None]] = {}
        self._rpc = LMStudioRpc(self._upstream, f"{self._root}/llm")
        self._counting = LMStudioCounting(self._root, self._rpc, tools or CountingTools(), home, model_files or {})
        self.counter = self._counting.counter

    async def models(self) -> Sequence[ModelInfo]:
        """Return all downloaded models, with the windows of those that are loaded."""
        return await self._models.get()

    async def ready(self, model: str) -> ModelInfo:
        """Return the model with its window as it is now: a person may have loaded it anew a moment ago.

        LM Studio loads a model that is not loaded when it is asked for a token.
        """
        info = self._named(model, await self._models.get_new())
        if info.kind == "embedding":
            raise ModelNotFound(f"The model {model!r} only makes embeddings, it cannot chat.")
        if info.loaded_context is None:
            await self._loads.setdefault(model, AskedOnce(partial(self._load, model))).answer()
            info = self._named(model, await self._models.get())
        if info.loaded_context is None:
            raise ModelUnavailable(
                f"The model {model!r} is not loaded in {NAME}, and {NAME} did not load it on request. Load it "
                f"there, or with `lms load {model}`, or switch just-in-time loading on in its server settings."
            )
        return info

    async def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a chat request and yield its events; after a failure the list of models is read again."""
        is_checked = False
        with self._models.forgotten_on_failure():
            response = await self._upstream.post(f"{self._root}/v1/chat/completions", body)
            with closing(ChatAnswer(response, self._upstream.source, info.loaded_context)) as answer:
                while events := await answer.more():
                    answerer = answer.chunks.model
                    if answerer is not None and not is_checked:
                        is_checked = True
                        if answerer != info.id:
                            await self._check_answerer(answerer, info.id)
                    yield events

    @asynccontextmanager
    async def passed(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[PassedAnswer, None]:
        """Send a request unchanged to one of OpenAI's routes, and yield the answer."""
        check = partial(self._check_answerer, asked=str(body.get("model")))
        with self._models.forgotten_on_failure():
            async with pass_through(self._upstream, f"{self._root}/v1/{path}", body, check) as answer:
                yield answer

    async def overflow_policy(self, model: str) -> str | None:
        """Return how LM Studio treats a prompt that is too long, such as truncateMiddle; None where it is not told."""
        try:
            settings = await self._rpc.prediction_config(model)
        except UpstreamError:
            return None
        policy = settings.get("llm.prediction.contextOverflowPolicy")
        return policy if isinstance(policy, str) else None

    async def aclose(self) -> None:
        """Cancel loads and comparisons that are under way, and close the websocket."""
        for load in self._loads.values():
            await load.aclose()
        await self._counting.aclose()
        await self._rpc.aclose()

    async def _fetch_models(self) -> Sequence[ModelInfo]:
        answer = await self._upstream.ask("GET", f"{self._root}/api/v1/models")
        if isinstance(answer, dict) and isinstance(answer.get("models"), list):
            if answer["models"] != self._rows:
                self._rows, self._parsed = answer["models"], parse_v1_models(answer["models"], self.id)
            return self._parsed
        answer = await self._upstream.ask("GET", f"{self._root}/api/v0/models")
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
            with closing(await self._upstream.post(f"{self._root}/v1/chat/completions", body)) as response:
                await read_completion(response, self._upstream.source)
        except UpstreamRejected as refusal:
            raise ModelUnavailable(f"{NAME} could not load {model!r}. {refusal.message}") from refusal
        finally:
            self._models.forget()

    async def _check_answerer(self, answerer: str, asked: str) -> None:
        """Refuse another model's answer: LM Studio lets a loaded model answer for one that it cannot load."""
        if answerer == asked:
            return
        models = await self._models.get()
        other = find_owner(models, answerer)
        if other is not None and other is not find_owner(models, asked):
            raise ModelUnavailable(
                f"{NAME} let {answerer!r} answer instead of {asked!r}. Load {asked!r} there and ask again."
            )


def find_model(models: Sequence[ModelInfo], name: str) -> ModelInfo | None:
    """Return the model with this id, or the loaded instance with this id as a model with its own window."""
    info = find_owner(models, name)
    return info if info is None or info.id == name else _as_instance(info, name)


def _as_instance(info: ModelInfo, instance: str) -> ModelInfo:
    window = (info.instances or {})[instance]
    return replace(info, id=instance, key=info.id, loaded_context=window, instances={instance: window})


def find_owner(models: Sequence[ModelInfo], name: str) -> ModelInfo | None:
    """Return the model with this id or with a loaded instance of this id."""
    for info in models:
        if info.id == name:
            return info
    return next((info for info in models if info.instances and name in info.instances), None)


def windows_in_list(answer: Any) -> dict[str, int]:
    """Return the windows of the loaded models and instances in an answer of either list; empty for other answers."""
    lists = answer if isinstance(answer, dict) else {}
    newer, older = ([*listed] if isinstance(listed := lists.get(name), list) else [] for name in ("models", "data"))
    models = [*parse_v1_models(newer, ""), *parse_v0_models(older, "")]
    windows = {info.id: info.loaded_context for info in models if info.loaded_context is not None}
    return windows | {name: window for info in models for name, window in (info.instances or {}).items()}


def parse_v1_models(rows: Sequence[Any], provider: str) -> list[ModelInfo]:
    """Return the models of `/api/v1/models`; rows that are not models are left out."""
    return [_v1_model(row, provider) for row in rows if isinstance(row, dict) and isinstance(row.get("key"), str)]


def _v1_model(row: Row, provider: str) -> ModelInfo:
    loaded = _configs_of_instances(row.get("loaded_instances"))
    instances = {instance: window for instance, config in loaded.items() if (window := _size(config["context_length"]))}
    key: str = row["key"]
    return ModelInfo(
        id=key,
        provider=provider,
        name=_text(row.get("display_name")) or key,
        kind=_kind(row.get("type")),
        state="loaded" if instances else "not-loaded",
        # Which of several instances answers for the bare key is LM Studio's choice: the smallest is safe.
        loaded_context=instances.get(key) or min(instances.values(), default=None),
        max_context=_size(row.get("max_context_length")),
        architecture=_text(row.get("architecture")),
        capabilities=_v1_capabilities(row.get("capabilities")),
        instances=instances,
        key=key,
        size_bytes=_size(row.get("size_bytes")),
        format=_text(row.get("format")),
        slots=min(filter(None, (_size(config.get("parallel")) for config in loaded.values())), default=None),
    )


def _configs_of_instances(instances: Any) -> dict[str, Row]:
    """Return how instances were loaded, by their ids; those without a window are left out."""
    configs: dict[str, Row] = {}
    for instance in instances if isinstance(instances, list) else []:
        config = instance.get("config") if isinstance(instance, dict) else None
        if isinstance(config, dict) and _size(config.get("context_length")) and isinstance(instance.get("id"), str):
            configs[instance["id"]] = config
    return configs


def _v1_capabilities(capabilities: Any) -> frozenset[str]:
    if not isinstance(capabilities, dict):
        return frozenset()
    names = {"vision": "vision", "trained_for_tool_use": "tools", "reasoning": "reasoning"}
    return frozenset(name for key, name in names.items() if capabilities.get(key))


def parse_v0_models(rows: Sequence[Any], provider: str) -> list[ModelInfo]:
    """Return the models of `/api/v0/models`; rows that are not models are left out."""
    return [_v0_model(row, provider) for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def _v0_model(row: Row, provider: str) -> ModelInfo:
    state = row.get("state")
    window = _size(row.get("loaded_context_length")) if state == "loaded" else None
    kind = _kind(row.get("type"))
    named = row.get("capabilities")
    capabilities = {"tools"} if isinstance(named, list) and "tool_use" in named else set()
    if kind == "vlm":
        capabilities.add("vision")
    return ModelInfo(
        id=row["id"],
        provider=provider,
        name=row["id"],
        kind=kind,
        state=_state(state),
        loaded_context=window,
        max_context=_size(row.get("max_context_length")),
        architecture=_text(row.get("arch")),
        capabilities=frozenset(capabilities),
        instances={row["id"]: window} if window else {},
        key=row["id"],
        format=_format_of_v0(row.get("compatibility_type")),
    )


def _state(value: Any) -> State:
    if value == "loaded":
        return "loaded"
    return "loading" if value == "loading" else "not-loaded"


def _format_of_v0(compatibility_type: Any) -> str | None:
    formats = {"gguf": "gguf", "mlx": "safetensors"}
    return formats.get(compatibility_type) if isinstance(compatibility_type, str) else None


def _kind(value: Any) -> Literal["llm", "vlm", "embedding"]:
    if value == "vlm":
        return "vlm"
    return "embedding" if isinstance(value, str) and value.startswith("embedding") else "llm"


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
