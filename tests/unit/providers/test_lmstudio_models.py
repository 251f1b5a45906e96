"""LM Studio's two lists of models, whole and damaged."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.providers.base import ModelInfo
from elbowroom.providers.lmstudio.provider import find_model, find_owner, parse_v0_models, parse_v1_models

V1_ROW: dict[str, Any] = {
    "type": "llm",
    "publisher": "qwen",
    "key": "qwen/qwen3-8b",
    "display_name": "Qwen3 8B",
    "architecture": "qwen3",
    "loaded_instances": [{"id": "qwen/qwen3-8b", "config": {"context_length": 8192, "parallel": 4}}],
    "max_context_length": 131072,
    "format": "gguf",
    "capabilities": {"vision": False, "trained_for_tool_use": True, "reasoning": {"default": "on"}},
}
V0_ROW: dict[str, Any] = {
    "id": "gemma-3-4b-it",
    "object": "model",
    "type": "vlm",
    "arch": "gemma3",
    "state": "loaded",
    "max_context_length": 131072,
    "loaded_context_length": 4096,
    "capabilities": ["tool_use"],
}


def v1(**changes: Any) -> ModelInfo:
    """Return the one model of a v1 list whose row has these changes."""
    (model,) = parse_v1_models([{**V1_ROW, **changes}], "lmstudio")
    return model


def v0(**changes: Any) -> ModelInfo:
    """Return the one model of a v0 list whose row has these changes."""
    (model,) = parse_v0_models([{**V0_ROW, **changes}], "lmstudio")
    return model


def instance(name: Any, window: Any) -> dict[str, Any]:
    """Return a loaded instance as it stands in a v1 row."""
    return {"id": name, "config": {"context_length": window}}


def test_the_window_is_the_loaded_instances() -> None:
    """Never the trained maximum, however much larger it is."""
    model = v1()
    assert (model.loaded_context, model.max_context, model.state) == (8192, 131072, "loaded")
    assert (model.name, model.architecture) == ("Qwen3 8B", "qwen3")
    assert model.capabilities == {"tools", "reasoning"}


def test_nothing_loaded_means_no_window() -> None:
    """A model that is not loaded has no window, whatever it was trained for."""
    for model in (v1(loaded_instances=[]), v0(state="not-loaded"), v0(state="loading")):
        assert model.loaded_context is None
        assert model.max_context == 131072
    assert (v1(loaded_instances=[]).state, v0(state="loading").state) == ("not-loaded", "loading")


def test_of_two_instances_the_one_of_that_name_counts_else_the_smallest() -> None:
    """The bare key means its own instance; where that is gone, the smallest window is the safe one."""
    both = v1(loaded_instances=[instance("qwen/qwen3-8b", 8192), instance("qwen/qwen3-8b:2", 4096)])
    assert both.loaded_context == 8192
    others = v1(loaded_instances=[instance("qwen/qwen3-8b:3", 16384), instance("qwen/qwen3-8b:2", 4096)])
    assert others.loaded_context == 4096


def test_an_instance_is_found_by_its_own_id() -> None:
    """`key:2` is that one instance with its own window, and it belongs to the model of the key."""
    models = [v1(loaded_instances=[instance("qwen/qwen3-8b", 8192), instance("qwen/qwen3-8b:2", 4096)])]
    second = find_model(models, "qwen/qwen3-8b:2")
    assert second is not None
    assert (second.id, second.loaded_context, second.max_context) == ("qwen/qwen3-8b:2", 4096, 131072)
    assert find_owner(models, "qwen/qwen3-8b:2") is models[0] is find_owner(models, "qwen/qwen3-8b")
    assert find_model(models, "qwen/qwen3-8b") is models[0]
    assert find_model(models, "qwen3-8b") is find_owner(models, "") is None


def test_a_key_goes_before_an_instance_of_the_same_name() -> None:
    """A model whose key is another model's instance id is found by its key."""
    models = [v1(loaded_instances=[instance("b", 1024)]), v1(key="b", loaded_instances=[])]
    assert find_model(models, "b") is models[1]


@pytest.mark.parametrize(
    ("kind", "expected"), [("embedding", "embedding"), ("embeddings", "embedding"), ("vlm", "vlm")]
)
def test_kinds_of_both_lists(kind: str, expected: str) -> None:
    """Both spellings of embedding models are known, so that they can be hidden."""
    assert v1(type=kind).kind == v0(type=kind).kind == expected


def test_the_older_list_tells_the_same() -> None:
    """v0 has the window in a field of its own, and capabilities as words."""
    model = v0()
    assert (model.id, model.kind, model.loaded_context, model.architecture) == ("gemma-3-4b-it", "vlm", 4096, "gemma3")
    assert model.capabilities == {"tools", "vision"}


@pytest.mark.parametrize("window", [0, -1, None, True, "8192", 8192.5, [8192], {}, float("nan")])
def test_a_window_that_is_no_size_is_none(window: Any) -> None:
    """Nothing is guessed from a number that makes no sense."""
    assert v1(loaded_instances=[instance("qwen/qwen3-8b", window)]).loaded_context is None
    assert v0(loaded_context_length=window).loaded_context is None


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*V1_ROW, *V0_ROW, "config"]), inner),
    max_leaves=12,
)


@given(rows=st.lists(JUNK | st.dictionaries(st.sampled_from([*V1_ROW, *V0_ROW]), JUNK), max_size=4))
def test_no_junk_breaks_the_lists(rows: list[Any]) -> None:
    """Whatever stands in a list, the good rows beside it are read and every window is a positive size."""
    for parsed in (parse_v1_models([*rows, V1_ROW], "p"), parse_v0_models([*rows, V0_ROW], "p")):
        assert parsed[-1].id in ("qwen/qwen3-8b", "gemma-3-4b-it")
        for model in parsed:
            assert model.loaded_context is None or model.loaded_context > 0
            assert find_model(parsed, model.id) is not None
