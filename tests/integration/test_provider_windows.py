"""The windows of servers of the kind `openai` whose context is managed: each server tells them in its own form."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fake_upstream import Answer, chunk, fake_upstream, says, streams
from outcome import chat
from serving import Served, serve, settings_for

from elbowroom.providers.openai_compatible import OpenAICompatible
from elbowroom.providers.upstream import open_session
from elbowroom.providers.windows import SLOTS_WITHIN

CHAT = "/v1/chat/completions"
REPLY = streams(chunk({"content": "Hi"}), chunk({}, "stop"), b"data: [DONE]\n\n")


def listing(**fields: Any) -> Answer:
    """Return a list with the one model `m`."""
    return says({"object": "list", "data": [{"id": "m", "object": "model", "created": 1, **fields}]})


def shown(parameters: str) -> Answer:
    """Return what Ollama shows of a model that was trained for 32768 tokens."""
    facts = {"general.architecture": "qwen2", "qwen2.context_length": 32_768}
    return says({"parameters": parameters, "model_info": facts})


V1_MODEL = {
    "type": "llm",
    "key": "m",
    "max_context_length": 131_072,
    "loaded_instances": [{"id": "m", "config": {"context_length": 6144}}],
}
V0_MODEL = {"id": "m", "type": "llm", "state": "loaded", "loaded_context_length": 6144, "max_context_length": 131_072}
RUNNING = says({"models": [{"name": [1]}, {"name": "m", "context_length": 8192}]})
SERVERS: dict[str, tuple[Mapping[str, Answer], int]] = {
    "llama.cpp": ({"/v1/models": listing(meta={"n_ctx": 4096, "n_ctx_train": 131_072})}, 4096),
    "llama.cpp, older": (
        {
            "/v1/models": listing(meta={"n_ctx_train": 131_072}),
            "/props": says({"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4}),
        },
        2048,
    ),
    "vLLM": ({"/v1/models": listing(max_model_len=16_384)}, 16_384),
    "Ollama": ({"/v1/models": listing(), "/api/ps": RUNNING, "/api/show": shown('stop  "<|im_end|>"')}, 8192),
    "Ollama, set up": (
        {"/v1/models": listing(), "/api/ps": says({"models": []}), "/api/show": shown("num_ctx      4096\ntop_k 1")},
        4096,
    ),
    "Ollama, set up and running with more": (
        {"/v1/models": listing(), "/api/ps": RUNNING, "/api/show": shown("num_ctx 6000")},
        6000,
    ),
    "Ollama, set up with more than the model has": (
        {"/v1/models": listing(), "/api/ps": says({"models": []}), "/api/show": shown("num_ctx 999999")},
        32_768,
    ),
    "TabbyAPI": (
        {
            "/v1/models": listing(owned_by="tabbyAPI"),
            "/v1/model": says({"id": "m", "parameters": {"max_seq_len": 12_288, "cache_size": 65_536}}),
        },
        12_288,
    ),
    "LM Studio": ({"/v1/models": listing(), "/api/v1/models": says({"models": [V1_MODEL]})}, 6144),
    "LM Studio, older": (
        {
            "/v1/models": listing(),
            "/api/v1/models": says({"error": "no"}),
            "/api/v0/models": says({"data": [V0_MODEL]}),
        },
        6144,
    ),
}
SILENT: dict[str, Mapping[str, Answer]] = {
    "nothing but names": {"/v1/models": listing()},
    "what it was trained for": {"/v1/models": listing(meta={"n_ctx_train": 131_072})},
    "another model's": {"/v1/models": listing(), "/v1/model": says({"id": "n", "parameters": {"max_seq_len": 9}})},
    "no numbers": {"/v1/models": listing(max_model_len=True, meta={"n_ctx": 0}), "/props": says([])},
    "every path refused": {"/v1/models": listing(), "/props": says("no", 401), "/api/ps": says("no", 500)},
    "not loaded in LM Studio": {
        "/v1/models": listing(),
        "/api/v1/models": says({"models": [{**V1_MODEL, "loaded_instances": []}]}),
    },
}


async def window_of(served: Served) -> int | None:
    """Return the window of `m` in the list of models."""
    async with served.http.get(f"{served.url}/v1/models") as response:
        [row] = (await response.json())["data"]
        window: int | None = row.get("context_length")
        return window


@pytest.mark.fault("window told in another way", "first", "found")
@pytest.mark.parametrize("name", SERVERS)
async def test_the_window_is_found(tmp_path: Path, name: str) -> None:
    """The number is what one request may fill, and a chat is answered within it."""
    answers, window = SERVERS[name]
    async with fake_upstream({**answers, CHAT: REPLY}) as upstream:
        settings = settings_for(upstream.url, kind="openai") + "manage_context = true\n"
        async with serve(tmp_path, settings) as served:
            assert await window_of(served) == window
            assert (await chat(served, "openai/m", stream=True)).text == "Hi"
            assert upstream.asked_at(CHAT)[0].json["max_tokens"] <= window


@pytest.mark.parametrize("name", SILENT)
async def test_a_window_is_never_guessed(tmp_path: Path, name: str) -> None:
    """Where nobody tells it, that is said, and nothing is sent."""
    async with fake_upstream({**SILENT[name], CHAT: REPLY}) as upstream:
        settings = settings_for(upstream.url, kind="openai") + "manage_context = true\n"
        async with serve(tmp_path, settings) as served:
            assert await window_of(served) is None
            outcome = await chat(served, "openai/m", stream=True)
            assert outcome.error is not None
            assert outcome.error["code"] == "window_unknown"
            assert not upstream.asked_at(CHAT)


async def test_several_models_of_one_llama_cpp(tmp_path: Path) -> None:
    """A server that loads models on request is asked for each loaded one by name, and loads none for the question."""
    rows = [{"id": "a/b", "status": {"value": "loaded"}}, {"id": "c", "status": {"value": "unloaded"}}]
    asked: list[dict[str, str]] = []

    async def props(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        return web.json_response({"default_generation_settings": {"n_ctx": 1024}})

    async with fake_upstream({"/v1/models": says({"data": rows}), "/props": props}) as upstream:
        settings = settings_for(upstream.url, kind="openai") + "manage_context = true\n"
        async with serve(tmp_path, settings) as served, served.http.get(f"{served.url}/v1/models") as response:
            windows = {row["id"]: row.get("context_length") for row in (await response.json())["data"]}
    assert windows == {"openai/a/b": 1024, "openai/c": None}
    assert asked == [{"model": "a/b", "autoload": "false"}]


async def test_a_form_that_is_known_is_asked_for_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a server has told a window in one form, the others are not tried at each look."""
    monkeypatch.setattr("elbowroom.providers.openai_compatible.FRESH_SECONDS", 0.0)
    answers, window = SERVERS["TabbyAPI"]
    async with fake_upstream(answers) as upstream:
        settings = settings_for(upstream.url, kind="openai") + "manage_context = true\n"
        async with serve(tmp_path, settings) as served:
            assert await window_of(served) == window
            upstream.asked.clear()
            assert await window_of(served) == window
            assert {one.path for one in upstream.asked} == {"/v1/models", "/v1/model"}


async def test_a_server_that_is_passed_through_is_asked_for_its_list_alone(tmp_path: Path) -> None:
    """Without context management nobody needs the window, and nothing is asked for it."""
    async with fake_upstream(SERVERS["TabbyAPI"][0]) as upstream:
        async with serve(tmp_path, settings_for(upstream.url, kind="openai")) as served:
            assert await window_of(served) is None
        assert {one.path for one in upstream.asked} == {"/v1/models"}


@pytest.mark.slow
async def test_slots_that_are_not_told_keep_nobody_waiting() -> None:
    """Models are listed a second later at most, and at once after that, where llama.cpp does not tell its slots."""
    release, asked = asyncio.Event(), list[str]()

    async def hangs(request: web.Request) -> web.Response:
        asked.append(request.query["model"])
        await release.wait()
        return web.json_response({"total_slots": 4})

    fields = {"status": {"value": "loaded"}, "meta": {"n_ctx": 8192}}
    owners = {"m": "llamacpp", "n": "llamacpp", "o": "you"}
    rows = [{"id": name, "owned_by": owner, **fields} for name, owner in owners.items()]
    answers: dict[str, Answer] = {"/v1/models": says({"data": rows}), "/props": hangs}
    async with fake_upstream(answers) as upstream, open_session() as http:
        provider = OpenAICompatible("llama", f"{upstream.url}/v1", http, manages_context=True)
        loop = asyncio.get_running_loop()
        for _ in range(2):
            began = loop.time()
            infos = await provider.models()
            assert [(info.loaded_context, info.slots) for info in infos] == [(8192, None)] * 3
            assert loop.time() - began < 2 * SLOTS_WITHIN
            provider._models.forget()
        assert sorted(asked) == ["m", "n"]
        release.set()
