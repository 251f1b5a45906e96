"""LM Studio's models as elbowroom shows and uses them: windows, instances, switches, impostors."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_upstream import completion, fake_upstream, says
from outcome import chat
from serving import Served, serve, settings_for

from elbowroom.demo import Reply, Script, SimulatedLMStudio, SimulatedModel
from elbowroom.providers import upstream
from elbowroom.providers.lmstudio import provider

TINY = SimulatedModel("tiny", loaded_context_length=4096, max_context_length=32_768)
OTHER = SimulatedModel("other", loaded_context_length=8192)
IDLE = SimulatedModel("idle", default_context_length=2048)
EMBEDDING = SimulatedModel("embed", type="embedding", loaded_context_length=512)


@pytest.fixture
async def studio() -> AsyncIterator[SimulatedLMStudio]:
    """Run a simulated LM Studio with two loaded models, one that is not, and one for embeddings."""
    async with SimulatedLMStudio([TINY, OTHER, IDLE, EMBEDDING]) as studio:
        yield studio


@pytest.fixture
async def served(studio: SimulatedLMStudio, tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom in front of it."""
    async with serve(tmp_path, settings_for(studio.base_url)) as served:
        yield served


async def listed(served: Served) -> dict[str, dict[str, Any]]:
    """Return the rows of /v1/models by id."""
    async with served.http.get(f"{served.url}/v1/models") as response:
        assert response.status == 200
        answer = await response.json()
    return {row["id"]: row for row in answer["data"]}


@pytest.mark.parametrize("api", ["v1", "v0"])
async def test_models_are_listed_with_their_real_windows(served: Served, studio: SimulatedLMStudio, api: Any) -> None:
    """From either list: the loaded window, the trained maximum apart, no window where nothing is loaded."""
    studio.native_api = api
    rows = await listed(served)
    assert set(rows) == {"lmstudio/tiny", "lmstudio/other", "lmstudio/idle"}
    tiny, idle = rows["lmstudio/tiny"], rows["lmstudio/idle"]
    assert (tiny["context_length"], tiny["max_context_length"], tiny["state"]) == (4096, 32_768, "loaded")
    assert "context_length" not in idle
    assert idle["state"] == "not-loaded"
    assert (await chat(served, "lmstudio/tiny", stream=False)).text


async def test_an_older_server_gets_a_clear_error(served: Served, studio: SimulatedLMStudio) -> None:
    """Without either list there is no window, and nothing is guessed: the answer says what to do."""
    studio.native_api = "none"
    outcome = await chat(served, "lmstudio/tiny", stream=True)
    assert outcome.status == 502
    assert "does not tell the windows" in outcome.message
    assert "kind = 'openai'" in outcome.message
    assert not studio.chats


async def test_an_embedding_model_is_hidden_and_cannot_chat(served: Served, studio: SimulatedLMStudio) -> None:
    """It is not offered, and who names it all the same learns why not; nothing is loaded or asked for it."""
    for loaded in (True, False):
        outcome = await chat(served, "lmstudio/embed", stream=False)
        assert outcome.status == 404
        assert "embeddings" in outcome.message
        if loaded:
            studio.unload("embed")
    assert not studio.chats


async def test_an_unknown_model_is_a_404_with_what_there_is(served: Served, studio: SimulatedLMStudio) -> None:
    """LM Studio would let any loaded model answer; elbowroom says that there is none of that name."""
    outcome = await chat(served, "lmstudio/no-such", stream=True)
    assert outcome.status == 404
    assert outcome.error is not None
    assert outcome.error["code"] == "model_not_found"
    assert "tiny, other, idle" in outcome.message
    assert "embed" not in outcome.message
    assert not studio.chats


async def test_an_instance_is_asked_by_its_own_id(served: Served, studio: SimulatedLMStudio) -> None:
    """`tiny:2` reaches the second instance."""
    studio.load("tiny", 1024)
    assert (await chat(served, "lmstudio/tiny:2", stream=True)).text
    assert studio.chats[-1].instance_id == "tiny:2"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_by_another_instance_of_the_model_is_taken(
    served: Served, studio: SimulatedLMStudio, *, stream: bool
) -> None:
    """With only `tiny:2` loaded, LM Studio answers for `tiny` under that name: it is the same model."""
    studio.load("tiny", 1024)
    studio.unload("tiny")
    outcome = await chat(served, "lmstudio/tiny", stream=stream)
    assert outcome.error is None
    assert studio.chats[-1].instance_id == "tiny:2"


async def test_an_instance_may_answer_under_the_models_key(tmp_path: Path) -> None:
    """Where `tiny:2` was asked and the answer names the model's key, it is the same model, too."""
    instances = [{"id": name, "config": {"context_length": 4096}} for name in ("tiny", "tiny:2")]
    answers = {
        "/api/v1/models": says({"models": [{"key": "tiny", "loaded_instances": instances}]}),
        "/v1/chat/completions": says(completion("Hi", model="tiny")),
    }
    async with fake_upstream(answers) as upstream, serve(tmp_path, settings_for(upstream.url)) as served:
        assert (await chat(served, "lmstudio/tiny:2", stream=True)).text == "Hi"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("managed", [True, False])
async def test_an_answer_by_another_model_is_refused(
    studio: SimulatedLMStudio, tmp_path: Path, *, managed: bool, stream: bool
) -> None:
    """A model that is swapped for another as the request arrives: the other's words never reach the client."""

    def swapped(body: dict[str, Any]) -> str:
        if studio.residency.named("tiny"):
            studio.unload("tiny")
        return "I am somebody else"

    manage = "" if managed else "manage_context = false\n"
    async with serve(tmp_path, settings_for(studio.base_url) + manage) as served:
        await listed(served)
        studio.just_in_time = False
        studio.on_request = swapped
        outcome = await chat(served, "lmstudio/tiny", stream=stream)
        assert outcome.status == 503
        assert "'tiny'" in outcome.message
        assert outcome.text == ""
        studio.load("tiny", 4096)
        studio.on_request = None
        assert (await chat(served, "lmstudio/tiny", stream=stream)).error is None


async def test_a_reload_with_another_window_is_seen_within_seconds(
    studio: SimulatedLMStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No restart, no request in between: the list shows the new window soon after."""
    assert upstream.FRESH_SECONDS <= 3.0
    monkeypatch.setattr(provider, "FRESH_SECONDS", 0.3)
    async with serve(tmp_path, settings_for(studio.base_url)) as served:
        assert (await listed(served))["lmstudio/tiny"]["context_length"] == 4096
        studio.reload("tiny", 1024)
        for _ in range(200):
            if (await listed(served))["lmstudio/tiny"]["context_length"] == 1024:
                return
            await asyncio.sleep(0.05)
    pytest.fail("the old window was shown for ten seconds")


async def test_a_refused_prompt_has_the_window_read_again_at_once(served: Served, studio: SimulatedLMStudio) -> None:
    """An overflow means that the window is not what it was thought to be."""
    assert (await listed(served))["lmstudio/tiny"]["context_length"] == 4096
    studio.reload("tiny", 1024)
    studio.enqueue(Script(Reply(400, {"error": "Context size has been exceeded."})), repeat=True)
    assert (await chat(served, "lmstudio/tiny", stream=True)).status == 400
    assert (await listed(served))["lmstudio/tiny"]["context_length"] == 1024


async def test_a_lost_model_is_not_shown_as_loaded(served: Served, studio: SimulatedLMStudio) -> None:
    """A failure has the list read again, too: the next request loads the model anew."""
    await listed(served)
    studio.unload("tiny")
    studio.enqueue(Script(Reply(400, {"error": "Model is unloaded."})))
    outcome = await chat(served, "lmstudio/tiny", stream=False)
    assert outcome.status == 503
    assert "Load it there" in outcome.message
    assert (await listed(served))["lmstudio/tiny"]["state"] == "not-loaded"
    assert (await chat(served, "lmstudio/tiny", stream=False)).text


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [None, 7, "x", [], {}],
        [{"key": 7}, {"key": None}, {"key": ["x"]}],
        [{"key": "tiny"}],
        [{"key": "tiny", "loaded_instances": None}],
        [{"key": "tiny", "loaded_instances": [None, {}, {"id": "tiny"}, {"id": 7, "config": {"context_length": 1}}]}],
        [{"key": "tiny", "loaded_instances": [{"id": "tiny", "config": {"context_length": -1}}]}],
        [{"key": "tiny", "loaded_instances": [{"id": "tiny", "config": []}], "capabilities": [], "type": 7}],
    ],
)
async def test_garbage_rows_are_no_models_and_no_windows(tmp_path: Path, rows: list[Any]) -> None:
    """Whatever is listed, a model without a credible window is not answered with a guess."""
    answers = {"/api/v1/models": says({"models": rows}), "/v1/chat/completions": says({"error": "no"}, status=400)}
    async with fake_upstream(answers) as upstream, serve(tmp_path, settings_for(upstream.url)) as served:
        assert set(await listed(served)) <= {"lmstudio/tiny"}
        outcome = await chat(served, "lmstudio/tiny", stream=True)
        assert outcome.status in (404, 503)


async def test_an_api_token_opens_lm_studio(studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """With its authentication on, the key of the settings goes along with lists and chats; without it, words help."""
    token = "sk-lm-abcdefgh:0123456789abcdefghij"
    studio.api_token = token
    async with serve(tmp_path, settings_for(studio.base_url), environ={"LM_API_TOKEN": token}) as served:
        assert (await chat(served, "lmstudio/tiny", stream=True)).text
        by_http = [request for request in studio.requests if request.path != "/llm"]
        assert {request.headers["Authorization"] for request in by_http} == {f"Bearer {token}"}
    wrong = "sk-lm-abcdefgh:wrong6789abcdefghij0"
    for environ in ({}, {"LM_API_TOKEN": wrong}, {"LM_API_TOKEN": "nonsense-token"}):
        async with serve(tmp_path, settings_for(studio.base_url), environ=environ) as served:
            outcome = await chat(served, "lmstudio/tiny", stream=True)
            assert outcome.status == 502
            assert "api_key" in outcome.message
            assert not any(key in outcome.message for key in environ.values())
