"""LM Studio's routes for its models on elbowroom's root, as Open WebUI calls them for a connection to it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_upstream import fake_upstream, says
from serving import Served, serve, settings_for
from yarl import URL

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

TINY = SimulatedModel("tiny", loaded_context_length=4096)
IDLE = SimulatedModel("publisher/idle", default_context_length=2048)
NEW = SimulatedModel("new", size_bytes=1000)
KEY = "sk-lm-abcdefgh:abcdefghijklmnopqrst"
MODELS = "/api/v1/models"
CHANGES = ["load", "unload", "download"]


@pytest.fixture
async def studio() -> AsyncIterator[SimulatedLMStudio]:
    """Run a simulated LM Studio with one model loaded, one that is not, and one to download."""
    async with SimulatedLMStudio([TINY, IDLE], offered=[NEW]) as studio:
        yield studio


@pytest.fixture
async def served(studio: SimulatedLMStudio, tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom in front of it."""
    async with serve(tmp_path, settings_for(studio.base_url)) as served:
        yield served


async def get(served: Served, path: str, **headers: str) -> tuple[int, Any]:
    """Return status and body of a GET."""
    async with served.http.get(f"{served.url}{path}", headers=headers) as response:
        return response.status, await response.json()


async def post(served: Served, route: str, body: Any, **headers: str) -> tuple[int, Any]:
    """Return status and body of a POST to one of the routes."""
    async with served.http.post(f"{served.url}{MODELS}/{route}", json=body, headers=headers) as response:
        return response.status, await response.json()


async def states(served: Served) -> dict[str, tuple[str, int | None, list[str]]]:
    """Return each model of elbowroom's own list: its state, its window, the ids of its instances."""
    _, answer = await get(served, "/v1/models")
    return {
        row["id"]: (
            row["state"],
            row.get("loaded_context_length"),
            [instance["id"] for instance in row["loaded_instances"]],
        )
        for row in answer["data"]
    }


async def test_the_list_is_lm_studios_own(served: Served, studio: SimulatedLMStudio) -> None:
    """Its keys are what loading and unloading take; with a slash at the end or a base before it, it is another path."""
    async with served.http.get(f"{studio.base_url}{MODELS}") as response:
        own = await response.json()
    assert await get(served, MODELS) == (200, own)
    assert (await get(served, f"/v1{MODELS}"))[0] == 404


@pytest.mark.parametrize("name", ["publisher/idle", "lmstudio/publisher/idle"])
async def test_loading_and_unloading(served: Served, name: str) -> None:
    """A model is named as LM Studio names it or as elbowroom does; elbowroom's own list is up to date at once."""
    assert await states(served) == {
        "lmstudio/tiny": ("loaded", 4096, ["tiny"]),
        "lmstudio/publisher/idle": ("not-loaded", None, []),
    }
    status, loaded = await post(served, "load", {"model": name, "context_length": 8192, "echo_load_config": True})
    assert status == 200
    assert loaded["instance_id"] == "publisher/idle"
    assert loaded["load_config"]["context_length"] == 8192
    assert (await states(served))["lmstudio/publisher/idle"] == ("loaded", 8192, ["publisher/idle"])
    assert await post(served, "unload", {"instance_id": name}) == (200, {"instance_id": "publisher/idle"})
    assert (await states(served))["lmstudio/publisher/idle"] == ("not-loaded", None, [])


async def test_another_instance(served: Served) -> None:
    """Loading a loaded model makes an instance beside it, as in LM Studio; each can be unloaded by its own id."""
    _, loaded = await post(served, "load", {"model": "tiny"})
    assert loaded["instance_id"] == "tiny:2"
    assert (await states(served))["lmstudio/tiny"][2] == ["tiny", "tiny:2"]
    assert (await post(served, "unload", {"instance_id": "lmstudio/tiny:2"}))[0] == 200
    assert (await states(served))["lmstudio/tiny"][2] == ["tiny"]


async def test_downloading(served: Served, studio: SimulatedLMStudio) -> None:
    """A download is begun and followed; when it is complete the model is in elbowroom's list, and not before."""
    studio.downloads.seconds = 3600
    status, job = await post(served, "download", {"model": "new"})
    assert (status, job["status"]) == (200, "downloading")
    status, told = await get(served, f"{MODELS}/download/status/{job['job_id']}")
    assert (status, told["status"], told["total_size_bytes"]) == (200, "downloading", 1000)
    assert "lmstudio/new" not in await states(served)
    studio.downloads.seconds = 0
    _, job = await post(served, "download", {"model": "new"})
    assert (await get(served, f"{MODELS}/download/status/{job['job_id']}"))[1]["status"] == "completed"
    assert "lmstudio/new" in await states(served)
    assert await post(served, "download", {"model": "new"}) == (200, {"status": "already_downloaded"})


async def test_a_failed_download_is_told_as_it_is(tmp_path: Path) -> None:
    """That a job has failed is an answer about the job, not a failure of the request."""
    failed = {"job_id": "job_1", "status": "failed", "error": "The disk is full."}
    path = f"{MODELS}/download/status/job_1"
    async with fake_upstream({path: says(failed)}) as upstream, serve(tmp_path, settings_for(upstream.url)) as served:
        assert await get(served, path) == (200, failed)


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"7", b'{"error": "It is asleep."}'])
async def test_answers_that_are_none(tmp_path: Path, answer: bytes) -> None:
    """What is no JSON object, or an error with status 200, is LM Studio's failure and is told in words."""
    async with fake_upstream({MODELS: says(answer)}) as upstream, serve(tmp_path, settings_for(upstream.url)) as served:
        status, told = await get(served, MODELS)
        assert status == 502
        assert "LM Studio" in told["error"]["message"]


@pytest.mark.parametrize(
    ("route", "body"),
    [("load", {"model": "no-such"}), ("unload", {"instance_id": "no-such"}), ("download", {"model": "no-such"})],
)
async def test_what_lm_studio_refuses(served: Served, route: str, body: dict[str, str]) -> None:
    """Its status and its words, in the form that every client reads."""
    status, answer = await post(served, route, body)
    assert status == 404
    assert answer["error"]["code"] == "model_not_found"
    assert "'no-such' not found" in answer["error"]["message"]
    assert (await get(served, f"{MODELS}/download/status/..%2F..%2Fload"))[0] == 404


@pytest.mark.parametrize("job_id", ["%2e%2e", "%2e"])
async def test_a_job_that_is_a_path(served: Served, studio: SimulatedLMStudio, job_id: str) -> None:
    """No other route of LM Studio's can be reached by it."""
    url = URL(f"{served.url}{MODELS}/download/status/{job_id}", encoded=True)
    async with served.http.get(url) as response:
        assert response.status == 404
    assert not [record for record in studio.requests if "download" in record.path]


@pytest.mark.parametrize("route", CHANGES)
@pytest.mark.parametrize("body", [{}, [], {"model": "", "instance_id": 7}, "tiny"])
async def test_bodies_that_name_nothing(served: Served, studio: SimulatedLMStudio, route: str, body: Any) -> None:
    """They are refused before LM Studio is asked."""
    before = len(studio.requests)
    status, answer = await post(served, route, body)
    assert status == 400
    assert answer["error"]["param"] == ("instance_id" if route == "unload" else "model")
    assert len(studio.requests) == before


async def test_the_gates_and_the_key(tmp_path: Path) -> None:
    """Without elbowroom's token nothing gets through; with it, LM Studio gets its own key and nobody else's."""
    async with SimulatedLMStudio([TINY], api_token=KEY) as studio:
        settings = settings_for(studio.base_url, server='token = "env:OWN"', provider='api_key = "env:KEY"')
        async with serve(tmp_path, settings, environ={"OWN": "house", "KEY": KEY}) as served:
            assert (await get(served, MODELS))[0] == 401
            assert (await post(served, "unload", {"instance_id": "tiny"}))[0] == 401
            assert (await get(served, MODELS, Authorization="Bearer house"))[0] == 200
            foreign = {"Authorization": "Bearer house", "Origin": "https://example.com"}
            assert (await post(served, "unload", {"instance_id": "tiny"}, **foreign))[0] == 403
            assert "tiny" in studio.residency.instances
            assert (await post(served, "unload", {"instance_id": "tiny"}, Authorization="Bearer house"))[0] == 200
        [unloaded] = [request for request in studio.requests if request.path.endswith("/unload")]
        assert unloaded.headers["Authorization"] == f"Bearer {KEY}"


async def test_a_key_that_lm_studio_refuses_is_not_the_callers(tmp_path: Path) -> None:
    """A 401 would have the person look at elbowroom's token; it is the provider's key that is wrong."""
    async with SimulatedLMStudio([TINY], api_token=KEY) as studio:
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            status, answer = await get(served, MODELS)
            assert status == 502
            assert "api_key" in answer["error"]["message"]


async def test_an_older_lm_studio(served: Served, studio: SimulatedLMStudio) -> None:
    """One without these routes answers 200 to any path; here the person reads what to do."""
    studio.native_api = "v0"
    for status, answer in (await get(served, MODELS), await post(served, "load", {"model": "publisher/idle"})):
        assert status == 502
        assert "older than 0.4.0" in answer["error"]["message"]


async def test_lm_studio_is_down(served: Served, studio: SimulatedLMStudio) -> None:
    """As everywhere: 503, and how to start it."""
    await studio.stop()
    for status, answer in (await get(served, MODELS), await post(served, "load", {"model": "tiny"})):
        assert status == 503
        assert "lms server start" in answer["error"]["message"]


async def test_without_an_lm_studio(tmp_path: Path) -> None:
    """The routes say that there is none."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9/v1", kind="openai")) as served:
        status, answer = await get(served, MODELS)
        assert status == 404
        assert "LM Studio" in answer["error"]["message"]


async def test_two_lm_studios(tmp_path: Path) -> None:
    """A name that says whose the model is leads there; the first one has the rest."""
    async with SimulatedLMStudio([TINY]) as first, SimulatedLMStudio([IDLE]) as second:
        other = f'[[providers]]\nid = "attic"\nkind = "lmstudio"\nbase_url = "{second.base_url}"\n'
        async with serve(tmp_path, settings_for(first.base_url) + other) as served:
            assert (await post(served, "load", {"model": "attic/publisher/idle"}))[0] == 200
            assert "publisher/idle" in second.residency.instances
            assert [row["key"] for row in (await get(served, MODELS))[1]["models"]] == ["tiny"]
