"""`GET /v1/models` and `/v1/models/{id}`: what clients can name, and the windows that are really loaded."""

import time
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, RAW_MODEL, elbowroom_with_studio
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

DISABLED = f'[[agents]]\nid = "retired"\nenabled = false\nmodel = "{MODEL}"\n'


async def listed(served: Served) -> dict[str, dict[str, Any]]:
    """Return the rows of the list by id."""
    async with served.http.get(f"{served.url}/v1/models") as response:
        assert response.status == 200
        answer = await response.json()
    assert answer["object"] == "list"
    rows: list[dict[str, Any]] = answer["data"]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


async def test_agents_and_raw_models(tmp_path: Path) -> None:
    """Enabled agents come first, then raw models; a disabled agent and embedding models are no chat models."""
    async with elbowroom_with_studio(tmp_path, agents=AGENT + DISABLED) as (served, studio):
        studio.residency.models["vectors"] = SimulatedModel("vectors", type="embedding")
        studio.residency.models["publisher/other"] = SimulatedModel("publisher/other", "Other 3B")
        rows = await listed(served)
        assert list(rows) == ["writer", RAW_MODEL, "lmstudio/publisher/other"]
        assert rows["lmstudio/publisher/other"]["name"] == "Other 3B"
        assert (await served.chat("retired"))["error"]["code"] == "model_not_found"


async def test_fields_of_a_loaded_model(tmp_path: Path) -> None:
    """A row has OpenAI's fields and the true window: the loaded one, not the trained one."""
    model = SimulatedModel(MODEL, "Qwen", max_context_length=131_072, loaded_context_length=6_000)
    async with elbowroom_with_studio(tmp_path, model=model) as (served, _):
        rows = await listed(served)
        for row in rows.values():
            assert abs(row.pop("created") - time.time()) < 600
            names = ("context_length", "loaded_context_length", "context_window", "max_model_len", "max_input_tokens")
            assert [row[name] for name in names] == [6_000] * len(names)
            assert row["meta"]["n_ctx"] == 6_000
            assert row["max_output_tokens"] == 1_500
            assert row["window_is"] == "loaded"
            assert row["max_context_length"] == 131_072
            assert row["state"] == "loaded"
            assert row["object"] == "model"
            assert "tools" in row["capabilities"]
        assert rows["writer"]["name"] == "The Writer"
        assert rows["writer"]["owned_by"] == "elbowroom"
        assert rows[RAW_MODEL]["owned_by"] == "lmstudio"


async def test_model_that_is_not_loaded(tmp_path: Path) -> None:
    """A model that is not loaded has no window yet, and none is made up."""
    model = SimulatedModel(MODEL, max_context_length=131_072)
    async with elbowroom_with_studio(tmp_path, model=model) as (served, _):
        for row in (await listed(served)).values():
            assert row["state"] == "not-loaded"
            assert "context_length" not in row
            assert "loaded_context_length" not in row
            assert row["max_context_length"] == 131_072


async def test_a_model_that_was_unloaded(tmp_path: Path) -> None:
    """A model that was loaded before has the window that it had, marked as such, in every form of the list."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        assert {row["window_is"] for row in (await listed(served)).values()} == {"loaded"}
        body = {"instance_id": MODEL}
        async with served.http.post(f"{served.url}/api/v1/models/unload", json=body) as response:
            assert response.status == 200
        for row in (await listed(served)).values():
            assert row["state"] == "not-loaded"
            assert row["context_length"] == row["meta"]["n_ctx"] == 32_768
            assert row["window_is"] == "if_loaded"
            assert "loaded_context_length" not in row
        headers = {"anthropic-version": "2023-06-01"}
        async with served.http.get(f"{served.url}/v1/models/writer", headers=headers) as response:
            shown = await response.json()
        assert (shown["max_input_tokens"], shown["max_tokens"]) == (32_768, 8_192)
        assert shown["window_is"] == "if_loaded"


async def test_codex_gets_its_own_list_beside_the_other(tmp_path: Path) -> None:
    """Codex, which names its version, finds all fields that its versions need; other clients get none of them."""
    needed = {"slug", "display_name", "description", "supported_reasoning_levels", "shell_type", "visibility"}
    needed |= {"supported_in_api", "priority", "availability_nux", "upgrade", "base_instructions", "support_verbosity"}
    needed |= {"supports_reasoning_summaries", "default_verbosity", "apply_patch_tool_type", "truncation_policy"}
    needed |= {"supports_parallel_tool_calls", "experimental_supported_tools", "context_window", "input_modalities"}
    async with elbowroom_with_studio(tmp_path) as (served, _):
        async with served.http.get(f"{served.url}/v1/models?client_version=0.169.0") as response:
            answer = await response.json()
        async with served.http.get(f"{served.url}/v1/models") as response:
            assert await response.json() == {name: answer[name] for name in ("object", "data")}
    assert [row["slug"] for row in answer["models"]] == ["writer", RAW_MODEL]
    for row in answer["models"]:
        assert needed <= set(row)
        assert (row["context_window"], row["max_context_window"]) == (32_768, None)
        assert row["truncation_policy"] == {"mode": "tokens", "limit": 8_192}
        assert "apply_patch" in row["base_instructions"]


async def test_older_lm_studio(tmp_path: Path) -> None:
    """The window is found also where LM Studio has only its older list."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.native_api = "v0"
        assert (await listed(served))[RAW_MODEL]["loaded_context_length"] == 32_768


async def test_upstream_down(tmp_path: Path) -> None:
    """While LM Studio is down the list still answers: the agents are there, as unavailable."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        await studio.stop()
        rows = await listed(served)
        assert list(rows) == ["writer"]
        assert rows["writer"]["state"] == "unavailable"


async def test_models_that_were_seen_stay_listed(tmp_path: Path) -> None:
    """While LM Studio is down, its models stay in the list and say so, also after a restart; a request says what to do.

    A client that no longer finds the model of a chat moves the chat to another.
    """
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.residency.models["vectors"] = SimulatedModel("vectors", type="embedding")
        there, base_url = await listed(served), studio.base_url
    async with serve(tmp_path, settings_for(base_url, agents=AGENT)) as served:
        rows = await listed(served)
        assert list(rows) == list(there) == ["writer", RAW_MODEL]
        assert [row["name"] for row in rows.values()] == ["The Writer", f"{there[RAW_MODEL]['name']} (not reachable)"]
        assert {row["state"] for row in rows.values()} == {"unavailable"}
        for model in (MODEL, RAW_MODEL, "writer"):
            body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
            async with served.http.post(served.chat_url, json=body) as response:
                assert response.status == 503
                assert "Start its server: in LM Studio" in (await response.json())["error"]["message"]


async def test_agent_whose_model_is_gone(tmp_path: Path) -> None:
    """An agent whose model is not on the disk is listed as unavailable, and asking it names what there is."""
    agents = '[[agents]]\nid = "lost"\nmodel = "deleted-model"\n'
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, _):
        assert (await listed(served))["lost"]["state"] == "unavailable"
        error = (await served.chat("lost"))["error"]
        assert error["code"] == "model_not_found"
        assert "deleted-model" in error["message"]
        assert MODEL in error["message"]


@pytest.mark.parametrize("model_id", ["writer", RAW_MODEL, RAW_MODEL.replace("/", "%2F")])
async def test_one_model(tmp_path: Path, model_id: str) -> None:
    """One model can be asked for by its id, with its slash as it is or escaped."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        async with served.http.get(f"{served.url}/v1/models/{model_id}") as response:
            assert response.status == 200
            shown = await response.json()
        assert shown == (await listed(served))[shown["id"]]


async def test_one_model_that_is_not_there(tmp_path: Path) -> None:
    """An id that is not there is a 404 with those that are."""
    async with (
        elbowroom_with_studio(tmp_path) as (served, _),
        served.http.get(f"{served.url}/v1/models/nope") as response,
    ):
        assert response.status == 404
        error = (await response.json())["error"]
        assert error["code"] == "model_not_found"
        assert RAW_MODEL in error["message"]


async def test_window_after_a_reload(tmp_path: Path) -> None:
    """A model that was loaded anew shows its new window within seconds, and at once after its first refusal."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        assert (await listed(served))["writer"]["context_length"] == 32_768
        studio.unload(MODEL)
        studio.just_in_time = False
        assert "error" in await served.chat("writer")
        studio.load(MODEL, 4_096)
        assert (await listed(served))["writer"]["context_length"] == 4_096


async def test_two_providers(tmp_path: Path) -> None:
    """Models of several providers stand side by side; a bare name that two of them have is no model."""
    model = SimulatedModel(MODEL, loaded_context_length=4_096)
    async with SimulatedLMStudio([model]) as first, SimulatedLMStudio([model]) as second:
        other = f'[[providers]]\nid = "other"\nkind = "openai"\nbase_url = "{second.base_url}/v1"\n'
        async with serve(tmp_path, settings_for(first.base_url, agents=other)) as served:
            assert {RAW_MODEL, f"other/{MODEL}"} <= set(await listed(served))
            assert (await served.chat(f"other/{MODEL}"))["choices"]
            assert len(second.chats) == 1
            assert (await served.chat(MODEL))["error"]["code"] == "model_not_found"
            await second.stop()
            assert (await served.chat(RAW_MODEL))["choices"]
            assert len(first.chats) == 1
