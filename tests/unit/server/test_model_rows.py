"""One model as each kind of client reads it."""

from elbowroom.agents.catalog import CatalogRow
from elbowroom.providers.base import ModelInfo
from elbowroom.server.model_rows import for_openai


def test_description_without_a_model() -> None:
    """A model that is not there has no window."""
    assert for_openai(CatalogRow("w", "W", "elbowroom", "tiny"), 7) == {
        "id": "w",
        "object": "model",
        "created": 7,
        "owned_by": "elbowroom",
        "name": "W",
        "state": "unavailable",
    }


def test_description_promises_no_window_that_is_not_loaded() -> None:
    """The trained maximum is shown under its own name only."""
    info = ModelInfo("tiny", "lm", "Tiny", state="not-loaded", max_context=8192, capabilities=frozenset({"b", "a"}))
    described = for_openai(CatalogRow("lm/tiny", "Tiny", "lm", "tiny", info), 7)
    assert "context_length" not in described
    assert "loaded_context_length" not in described
    assert described["max_context_length"] == 8192
    assert described["state"] == "not-loaded"
    assert described["capabilities"] == ["a", "b"]
