"""LM Studio's two lists of models, `/api/v1/models` and the older `/api/v0/models`, as values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote

import aiohttp

from elbowroom.errors import UpstreamError
from elbowroom.providers.base import ModelInfo, State
from elbowroom.providers.upstream import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    FIRST_BYTE_SECONDS,
    Source,
    connection_failure,
    error_in,
    error_text,
    failure_of,
    failure_of_response,
    not_json,
    parse_upstream_json,
)

Row = dict[str, Any]


def parse_v1_models(rows: Sequence[Any], provider: str) -> list[ModelInfo]:
    """Return the models of `/api/v1/models`; rows that make no sense are left out."""
    return [_v1_model(row, provider) for row in rows if isinstance(row, dict) and isinstance(row.get("key"), str)]


def parse_v0_models(rows: Sequence[Any], provider: str) -> list[ModelInfo]:
    """Return the models of `/api/v0/models`; rows that make no sense are left out."""
    return [_v0_model(row, provider) for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def find_model(models: Sequence[ModelInfo], name: str) -> ModelInfo | None:
    """Return the model with this id, or the one that has a loaded instance with this id and that one's window."""
    info = find_owner(models, name)
    return info if info is None or info.id == name else _as_instance(info, name)


def find_owner(models: Sequence[ModelInfo], name: str) -> ModelInfo | None:
    """Return the model with this id or with a loaded instance of this id."""
    for info in models:
        if info.id == name:
            return info
    return next((info for info in models if info.instances and name in info.instances), None)


def _as_instance(info: ModelInfo, instance: str) -> ModelInfo:
    window = (info.instances or {})[instance]
    return replace(info, id=instance, key=info.id, loaded_context=window, instances={instance: window})


def _v1_model(row: Row, provider: str) -> ModelInfo:
    instances = _windows_of_instances(row.get("loaded_instances"))
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
    )


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


def _windows_of_instances(instances: Any) -> dict[str, int]:
    windows = {}
    for instance in instances if isinstance(instances, list) else []:
        config = instance.get("config") if isinstance(instance, dict) else None
        window = _size(config.get("context_length")) if isinstance(config, dict) else None
        if window and isinstance(instance.get("id"), str):
            windows[instance["id"]] = window
    return windows


def _v1_capabilities(capabilities: Any) -> frozenset[str]:
    if not isinstance(capabilities, dict):
        return frozenset()
    names = {"vision": "vision", "trained_for_tool_use": "tools", "reasoning": "reasoning"}
    return frozenset(name for key, name in names.items() if capabilities.get(key))


def _format_of_v0(compatibility_type: Any) -> str | None:
    return (
        {"gguf": "gguf", "mlx": "safetensors"}.get(compatibility_type) if isinstance(compatibility_type, str) else None
    )


def _kind(value: Any) -> Literal["llm", "vlm", "embedding"]:
    if value == "vlm":
        return "vlm"
    return "embedding" if isinstance(value, str) and value.startswith("embedding") else "llm"


def _state(value: Any) -> State:
    if value == "loaded":
        return "loaded"
    return "loading" if value == "loading" else "not-loaded"


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


UNKNOWN_PATH = "Unexpected endpoint"


class ModelManagement:
    """Hands requests on as they are, with LM Studio's own key, and returns its answers as they are.

    `changed` is called before and after whatever may change which models are loaded. Raises UpstreamErrors in words
    for the person, with LM Studio's own status where it refuses.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        root: str,
        headers: Mapping[str, str],
        source: Source,
        start_hint: str,
        changed: Callable[[], None],
    ) -> None:
        self._http = http
        self._url = f"{root}/api/v1/models"
        self._headers = headers
        self._source = source
        self._start_hint = start_hint
        self._changed = changed

    async def catalog(self) -> dict[str, Any]:
        """Return all downloaded models with their loaded instances: `{"models": [...]}`."""
        return await self._get(self._url)

    async def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Load `model`; where it is loaded already that makes another instance. Returns when it is ready."""
        return await self._change("load", body)

    async def unload(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Unload the instance `instance_id`."""
        return await self._change("unload", body)

    async def download(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to download `model`; the answer has the `job_id` by which to ask how far that is."""
        return await self._change("download", body)

    async def download_status(self, job_id: str) -> dict[str, Any]:
        """Return how far a download is."""
        told = await self._get(f"{self._url}/download/status/{quote(job_id, safe='')}")
        if told.get("status") == "completed":
            self._changed()
        return told

    async def _get(self, url: str) -> dict[str, Any]:
        return await self._ask("GET", url, aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS))

    async def _change(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        # A large model takes minutes to load, and LM Studio says nothing meanwhile.
        patience = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=FIRST_BYTE_SECONDS)
        self._changed()
        try:
            return await self._ask("POST", f"{self._url}/{route}", patience, body)
        finally:
            self._changed()

    async def _ask(
        self, method: str, url: str, patience: aiohttp.ClientTimeout, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            async with self._http.request(
                method, url, json=body, headers=self._headers, timeout=patience, allow_redirects=False
            ) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise connection_failure(error, self._source, self._start_hint) from error
        if not 200 <= response.status < 300:
            raise failure_of_response(response.status, text, response.headers, self._source)
        return self._answer_in(text)

    def _answer_in(self, text: bytes) -> dict[str, Any]:
        try:
            answer = parse_upstream_json(text)
        except ValueError:
            raise not_json(text, self._source) from None
        if not isinstance(answer, dict):
            raise not_json(text, self._source)
        problem = None if "status" in answer else error_in(answer)  # a download that has failed tells its error too
        if problem is not None and error_text(problem).startswith(UNKNOWN_PATH):
            raise UpstreamError(
                f"{self._source.name} at {self._source.url} cannot list, load or download models for others: it is "
                "older than 0.4.0. Update it, or do this in its own window."
            )
        if problem is not None:
            raise failure_of(problem, self._source)
        return answer
