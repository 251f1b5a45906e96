"""The rows of LM Studio's three model lists."""

from typing import Any

from elbowroom.demo.models import SimulatedModel
from elbowroom.demo.residency import Instance, Residency

_BITS = {"Q4_K_M": 4, "Q5_K_M": 5, "Q6_K": 6, "Q8_0": 8, "F16": 16, "4bit": 4, "8bit": 8}


def openai_rows(residency: Residency, *, just_in_time: bool) -> list[dict[str, Any]]:
    """Rows of `/v1/models`: every downloaded model where models load just in time, else the loaded ones."""
    names = [instance.id for instance in residency.ready]
    if just_in_time:
        names = list(dict.fromkeys([*residency.models, *names]))
    return [{"id": name, "object": "model", "owned_by": "organization_owner"} for name in names]


def v0_rows(residency: Residency) -> list[dict[str, Any]]:
    """Rows of `/api/v0/models`: one a model that is not loaded, one an instance otherwise."""
    rows = []
    for model in residency.models.values():
        instances = residency.of(model.key)
        rows += [_v0_row(model, instance) for instance in instances] or [_v0_row(model, None)]
    return rows


def _v0_row(model: SimulatedModel, instance: Instance | None) -> dict[str, Any]:
    state = "not-loaded" if instance is None else "loaded" if instance.ready else "loading"
    row = {
        "id": model.key if instance is None else instance.id,
        "object": "model",
        "type": "embeddings" if model.type == "embedding" else model.type,
        "publisher": model.publisher,
        "arch": model.architecture,
        "compatibility_type": model.format,
        "quantization": model.quantization,
        "state": state,
        "max_context_length": model.max_context_length,
    }
    if instance is not None:
        row["loaded_context_length"] = instance.context_length
    return row | ({"capabilities": ["tool_use"]} if model.tool_use else {})


def v1_rows(residency: Residency) -> list[dict[str, Any]]:
    """Rows of `/api/v1/models`: one a model, with its loaded instances."""
    return [
        _v1_row(model, [one for one in residency.of(model.key) if one.ready]) for model in residency.models.values()
    ]


def _v1_row(model: SimulatedModel, instances: list[Instance]) -> dict[str, Any]:
    embedding = model.type == "embedding"
    variant = f"{model.key}@{model.quantization.lower()}"
    row: dict[str, Any] = {
        "type": "embedding" if embedding else "llm",
        "publisher": model.publisher,
        "key": model.key,
        "display_name": model.name,
        "architecture": model.architecture,
        "quantization": {"name": model.quantization, "bits_per_weight": _BITS.get(model.quantization)},
        "size_bytes": model.size_bytes,
        "params_string": model.params,
        "loaded_instances": [{"id": one.id, "config": instance_config(one)} for one in instances],
        "max_context_length": model.max_context_length,
        "format": model.format,
        "capabilities": _capabilities(model),
        "description": None,
        "variants": [variant],
        "selected_variant": variant,
    }
    if embedding:
        del row["architecture"], row["capabilities"]
    return row


def _capabilities(model: SimulatedModel) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"vision": model.vision, "trained_for_tool_use": model.tool_use}
    if model.reasoning:
        capabilities["reasoning"] = {"allowed_options": ["off", "on"], "default": "on"}
    return capabilities


def instance_config(instance: Instance) -> dict[str, Any]:
    """Return the load configuration of an instance; `context_length` is the window that it was granted."""
    config: dict[str, Any] = {"context_length": instance.context_length}
    if instance.model.type == "embedding":
        return config
    return config | {
        "eval_batch_size": 512,
        "parallel": instance.model.parallel,
        "flash_attention": True,
        "offload_kv_cache_to_gpu": True,
    }
