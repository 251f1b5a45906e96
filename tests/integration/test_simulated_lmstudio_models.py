"""The simulated LM Studio's models: lists, loading, unloading, and which of them answers."""

import asyncio
from typing import Any

import aiohttp
import pytest

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor

QWEN = SimulatedModel(
    "qwen/qwen3-8b",
    "Qwen3 8B",
    publisher="qwen",
    architecture="qwen3",
    params="8B",
    size_bytes=5_030_000_000,
    max_context_length=131_072,
    reasoning=True,
    loaded_context_length=8_192,
)
LLAMA = SimulatedModel("llama-3.2-3b-instruct", architecture="llama")
GEMMA = SimulatedModel("gemma-3-4b-it", type="vlm", architecture="gemma3", format="mlx", quantization="4bit")
EMBEDDER = SimulatedModel("nomic-embed", type="embedding", tool_use=False)


async def get(studio: SimulatedLMStudio, path: str) -> Any:
    """Return the JSON at a path."""
    async with aiohttp.ClientSession(studio.base_url) as http, http.get(path) as response:
        return await response.json()


async def post(studio: SimulatedLMStudio, path: str, body: Any) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    async with aiohttp.ClientSession(studio.base_url) as http, http.post(path, json=body) as response:
        return response.status, await response.json()


async def chat(studio: SimulatedLMStudio, model: str | None, **more: Any) -> tuple[int, Any]:
    """Ask a model, or nobody in particular, something short."""
    named = {} if model is None else {"model": model}
    body = {"messages": [{"role": "user", "content": "Hi"}], **named, **more}
    return await post(studio, "/v1/chat/completions", body)


async def test_v1_models_lists_every_model_while_they_load_just_in_time() -> None:
    """Names only, as LM Studio gives them; without just-in-time loading only what is loaded."""
    async with SimulatedLMStudio([QWEN, LLAMA]) as studio:
        row = {"id": "qwen/qwen3-8b", "object": "model", "owned_by": "organization_owner"}
        assert await get(studio, "/v1/models") == {
            "object": "list",
            "data": [row, row | {"id": "llama-3.2-3b-instruct"}],
        }
        studio.just_in_time = False
        assert await get(studio, "/v1/models") == {"object": "list", "data": [row]}


async def test_api_v0_shows_the_window_only_of_what_is_loaded() -> None:
    """The legacy rows, for a loaded text model, a vision model on disk and an embedding model."""
    async with SimulatedLMStudio([QWEN, GEMMA, EMBEDDER]) as studio:
        loaded, seeing, embedding = (await get(studio, "/api/v0/models"))["data"]
        one = await get(studio, "/api/v0/models/qwen/qwen3-8b")
        missing = await get(studio, "/api/v0/models/none")
    assert loaded == {
        "id": "qwen/qwen3-8b",
        "object": "model",
        "type": "llm",
        "publisher": "qwen",
        "arch": "qwen3",
        "compatibility_type": "gguf",
        "quantization": "Q4_K_M",
        "state": "loaded",
        "max_context_length": 131072,
        "loaded_context_length": 8192,
        "capabilities": ["tool_use"],
    }
    assert one == loaded
    assert (seeing["type"], seeing["state"], seeing["compatibility_type"]) == ("vlm", "not-loaded", "mlx")
    assert "loaded_context_length" not in seeing
    assert embedding["type"] == "embeddings"
    assert isinstance(missing["error"], str)


async def test_api_v1_shows_instances_with_their_windows() -> None:
    """The row of a loaded model, key for key; embedding rows lack what has no meaning for them."""
    async with SimulatedLMStudio([QWEN, GEMMA, EMBEDDER]) as studio:
        loaded, seeing, embedding = (await get(studio, "/api/v1/models"))["models"]
    config = {
        "context_length": 8192,
        "eval_batch_size": 512,
        "parallel": 4,
        "flash_attention": True,
        "offload_kv_cache_to_gpu": True,
    }
    assert loaded == {
        "type": "llm",
        "publisher": "qwen",
        "key": "qwen/qwen3-8b",
        "display_name": "Qwen3 8B",
        "architecture": "qwen3",
        "quantization": {"name": "Q4_K_M", "bits_per_weight": 4},
        "size_bytes": 5_030_000_000,
        "params_string": "8B",
        "loaded_instances": [{"id": "qwen/qwen3-8b", "config": config}],
        "max_context_length": 131072,
        "format": "gguf",
        "capabilities": {
            "vision": False,
            "trained_for_tool_use": True,
            "reasoning": {"allowed_options": ["off", "on"], "default": "on"},
        },
        "description": None,
        "variants": ["qwen/qwen3-8b@q4_k_m"],
        "selected_variant": "qwen/qwen3-8b@q4_k_m",
    }
    assert seeing["loaded_instances"] == []
    assert seeing["capabilities"]["vision"] is True
    assert embedding["type"] == "embedding"
    assert not {"architecture", "capabilities"} & set(embedding)


async def test_load_over_http_makes_another_instance_and_echoes_its_window() -> None:
    """A loaded model gets a second instance `key:2` with a window of its own, reachable by that id."""
    async with SimulatedLMStudio([QWEN]) as studio:
        body = {"model": QWEN.key, "context_length": 16384, "echo_load_config": True}
        status, answer = await post(studio, "/api/v1/models/load", body)
        _, silent = await post(studio, "/api/v1/models/load", {"model": QWEN.key})
        _, reply = await chat(studio, "qwen/qwen3-8b:2")
        assert await post(studio, "/api/v1/models/unload", {"instance_id": "qwen/qwen3-8b:2"}) == (
            200,
            {"instance_id": "qwen/qwen3-8b:2"},
        )
        rows = (await get(studio, "/api/v1/models"))["models"]
    assert (status, answer["type"], answer["status"]) == (200, "llm", "loaded")
    assert answer["instance_id"] == "qwen/qwen3-8b:2"
    assert answer["load_config"]["context_length"] == 16384
    assert "load_config" not in silent
    assert reply["model"] == "qwen/qwen3-8b:2"
    assert studio.chats[0].window == 16384
    assert [one["id"] for one in rows[0]["loaded_instances"]] == ["qwen/qwen3-8b", "qwen/qwen3-8b:3"]


async def test_native_routes_name_what_is_missing_in_an_error_object() -> None:
    """Unlike the chat route, they answer with an object that has a type and a code."""
    async with SimulatedLMStudio([QWEN]) as studio:
        for path, body in (("load", {"model": "none"}), ("unload", {"instance_id": "none"}), ("load", {})):
            status, answer = await post(studio, f"/api/v1/models/{path}", body)
            assert status == 404
            assert answer["error"]["type"] == answer["error"]["code"] == "model_not_found"
            assert answer["error"]["param"] == "model"


async def test_granted_window_may_differ_from_the_one_asked_for() -> None:
    """Auto-fit overrides any wish, up and down; otherwise the trained maximum is the limit."""
    fitted = SimulatedModel("fitted", auto_fit=4864, loaded_context_length=32_768)
    async with SimulatedLMStudio([fitted, LLAMA]) as studio:
        body = {"model": "fitted", "context_length": 2048, "echo_load_config": True}
        _, answer = await post(studio, "/api/v1/models/load", body)
        large = studio.load(LLAMA.key, context_length=1_000_000)
    assert answer["load_config"]["context_length"] == 4864
    assert [one.context_length for one in studio.residency.of("fitted")] == [4864, 4864]
    assert large.context_length == LLAMA.max_context_length


async def test_first_request_loads_the_model_just_in_time() -> None:
    """It takes the model's time, shows as loading meanwhile, and gives the small default window."""
    slow = SimulatedModel("slow", load_seconds=0.2)
    async with SimulatedLMStudio([slow]) as studio:
        first, second = asyncio.create_task(chat(studio, "slow")), asyncio.create_task(chat(studio, "slow"))
        await studio.wait_until(lambda: studio.residency.instances)
        (row,) = (await get(studio, "/api/v0/models"))["data"]
        (native,) = (await get(studio, "/api/v1/models"))["models"]
        answers = await asyncio.gather(first, second)
        (after,) = (await get(studio, "/api/v0/models"))["data"]
    assert (row["state"], row["loaded_context_length"]) == ("loading", 4096)
    assert native["loaded_instances"] == []
    assert after["state"] == "loaded"
    assert [(status, answer["model"]) for status, answer in answers] == [(200, "slow"), (200, "slow")]


async def test_just_in_time_model_makes_room_for_the_next_but_not_for_itself() -> None:
    """One such model stays resident; one loaded by hand is never evicted; with the switch off all stay."""
    other = SimulatedModel("other")
    async with SimulatedLMStudio([QWEN, LLAMA, other]) as studio:
        await chat(studio, LLAMA.key)
        await chat(studio, "other")
        assert list(studio.residency.instances) == [QWEN.key, "other"]
        studio.auto_evict = False
        await chat(studio, LLAMA.key)
        assert list(studio.residency.instances) == [QWEN.key, "other", LLAMA.key]


async def test_idle_model_expires_by_the_clock() -> None:
    """After the time to live, the default hour or the request's own `ttl`, the model is gone."""
    now = 1000.0
    async with SimulatedLMStudio([QWEN, LLAMA], clock=lambda: now) as studio:
        await chat(studio, LLAMA.key, ttl=60)
        now += 59
        assert (await get(studio, "/api/v1/models"))["models"][1]["loaded_instances"]
        now += 2
        assert not (await get(studio, "/api/v1/models"))["models"][1]["loaded_instances"]
        await chat(studio, LLAMA.key)
        now += 3599
        await chat(studio, LLAMA.key)
        now += 3599
        assert LLAMA.key in [row["id"] for row in (await get(studio, "/v1/models"))["data"]]
        assert (await get(studio, "/api/v0/models/" + LLAMA.key))["state"] == "loaded"
        now += 2
        assert (await get(studio, "/api/v0/models/" + LLAMA.key))["state"] == "not-loaded"
        assert (await get(studio, "/api/v0/models/" + QWEN.key))["state"] == "loaded"


async def test_unknown_model_is_answered_by_the_loaded_one() -> None:
    """Status 200, and only the reply's `model` tells; a known model counts as unknown with loading off."""
    async with SimulatedLMStudio([QWEN, LLAMA], just_in_time=False) as studio:
        answers = [await chat(studio, name) for name in ("gpt-4o", LLAMA.key, None)]
    assert [(status, answer["model"]) for status, answer in answers] == [(200, QWEN.key)] * 3


@pytest.mark.parametrize("name", [None, "gpt-4o"])
async def test_several_loaded_and_none_meant_is_refused(name: str | None) -> None:
    """The words and the code of LM Studio, status 400."""
    async with SimulatedLMStudio([QWEN]) as studio:
        studio.load(QWEN.key)
        status, answer = await chat(studio, name)
    assert status == 400
    assert answer["error"]["code"] == "model_not_found"
    assert answer["error"]["message"] == (
        "Multiple models are loaded. Please specify a model by providing a 'model' field."
    )


async def test_nothing_loaded_and_nothing_to_load_is_refused() -> None:
    """Status 404 and code model_not_found."""
    async with SimulatedLMStudio([LLAMA]) as studio:
        status, answer = await chat(studio, "gpt-4o")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("lose", "message"),
    [
        (lambda studio: studio.unload(QWEN.key), "Model is unloaded."),
        (lambda studio: studio.crash(QWEN.key), "The model has crashed"),
        (lambda studio: studio.crash(QWEN.key, "Channel Error"), "Channel Error"),
    ],
)
async def test_model_lost_in_mid_stream_ends_the_stream_with_an_error(lose: Any, message: str) -> None:
    """The error event, no [DONE], and the model is no longer loaded."""
    async with SimulatedLMStudio([QWEN]) as studio, aiohttp.ClientSession(studio.base_url) as http:
        studio.enqueue(Script("Hello", WaitFor(asyncio.Event())))
        body = {"model": QWEN.key, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        async with http.post("/v1/chat/completions", json=body) as response:
            await response.content.readuntil(b"\n\n")
            lose(studio)
            rest = await response.text()
        assert (await get(studio, "/api/v1/models"))["models"][0]["loaded_instances"] == []
    assert rest.startswith("event: error\ndata: ")
    assert message in rest
    assert "[DONE]" not in rest
