"""The real engine with LM Studio's face: its list of models with the window that the engine really has."""

from typing import Any

from llama_server import LlamaServer
from recording_relay import RecordingRelay


def engine_as_lmstudio(engine: LlamaServer) -> RecordingRelay:
    """Return a relay in front of the engine that also answers `/api/v1/models`, as LM Studio does."""
    return RecordingRelay(engine.base_url, {"/api/v1/models": {"models": [row_of(engine)]}})


def row_of(engine: LlamaServer) -> dict[str, Any]:
    """Return the engine's model as LM Studio lists it."""
    model = engine.options.model_id
    return {
        "type": "llm",
        "key": model,
        "display_name": model,
        "architecture": "llama",
        "size_bytes": engine.model.stat().st_size,
        "loaded_instances": [{"id": model, "config": {"context_length": engine.options.context_length}}],
        "max_context_length": 131072,
        "format": "gguf",
        "capabilities": {"vision": False, "trained_for_tool_use": True},
    }
