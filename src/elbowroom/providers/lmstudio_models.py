"""LM Studio's two lists of models, `/api/v1/models` and the older `/api/v0/models`, as values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from elbowroom.providers.base import ModelInfo, State

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
