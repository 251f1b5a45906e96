"""One model as each kind of client reads it."""

from elbowroom.agents.catalog import CatalogRow
from elbowroom.providers.base import ModelInfo
from elbowroom.server.model_rows import for_anthropic, for_codex, for_openai


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


def test_advertised_window_stands_beside_the_one_that_is_loaded() -> None:
    """Clients that refuse small windows read another one, which is called what it is; the loaded one stays true."""
    info = ModelInfo("tiny", "lm", "Tiny", loaded_context=8192, state="loaded")
    row = CatalogRow("lm/tiny", "Tiny", "lm", "tiny", info, advertised_window=64_000)
    described = for_openai(row, 7)
    assert {described[name] for name in ("context_length", "context_window", "max_model_len", "max_input_tokens")} == {
        64_000
    }
    assert (described["advertised_window"], described["window_is"]) == (64_000, "advertised")
    assert (described["loaded_context_length"], described["max_output_tokens"]) == (8192, 2048)
    assert for_anthropic(row, 7)["max_input_tokens"] == 64_000
    assert for_anthropic(row, 7)["max_tokens"] == 2048
    assert for_codex(row, 0)["context_window"] == 64_000
    assert for_codex(row, 0)["truncation_policy"]["limit"] == 2048
