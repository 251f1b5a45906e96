"""`/health`: 200 as long as the server runs, quickly, and the truth about the upstreams."""

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from fake_upstream import Answer, byte_server, fake_upstream, says
from pytest_aiohttp.plugin import AiohttpClient
from raw_http import ask, request_bytes
from serving import SETTINGS, elbowroom, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.providers.lmstudio import provider as lmstudio

NOBODY = "http://127.0.0.1:9"


async def health(client: TestClient[web.Request, web.Application]) -> dict[str, bool]:
    """Return which providers are reachable, after checking that all else is as promised."""
    async with client.get("/health") as response:
        answer = await response.json()
        assert response.status == 200
    assert answer["status"] == "ok"
    assert set(answer) == {"status", "version", "store", "providers"}
    assert answer["store"] == {"status": "opening"} or answer["store"] == {"status": "ok"}
    assert all(set(state) == {"id", "reachable"} for state in answer["providers"])
    return {state["id"]: state["reachable"] for state in answer["providers"]}


async def test_health_follows_lm_studio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aiohttp_client: AiohttpClient
) -> None:
    """It says that LM Studio is there, that it has gone, and that it is back, without a restart of elbowroom."""
    monkeypatch.setattr(lmstudio, "FRESH_SECONDS", 0.2)
    async with SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=4096)]) as studio:
        served = await aiohttp_client(elbowroom(tmp_path, settings_for(studio.base_url)))
        assert await health(served) == {"lmstudio": True}
        await studio.stop()
        for _ in range(100):  # a list of models is believed for a moment
            if await health(served) == {"lmstudio": False}:
                break
            await asyncio.sleep(0.1)
        assert await health(served) == {"lmstudio": False}
        await studio.start()
        assert await health(served) == {"lmstudio": True}


@pytest.mark.parametrize(
    "answer",
    [
        says({"error": "no"}, status=500),
        says({"error": {"message": "no", "code": "invalid_api_key"}}, status=401),
        says("<html>no</html>"),
        says({"models": 7}),
        says([[[]]]),
        says(b"\xff\xfe\x00"),
        says("[" * 100_000),
        says({"models": [{"name": ["a list"]}, {"name": None}, 7], "data": [{"id": {}}, None]}),
    ],
)
@pytest.mark.parametrize("kind", ["lmstudio", "ollama", "openai"])
async def test_no_answer_of_an_upstream_breaks_health(
    tmp_path: Path, kind: str, answer: Answer, aiohttp_client: AiohttpClient
) -> None:
    """Errors, pages, garbage and odd rows: /health and the list of models answer 200."""
    paths = ("/api/v1/models", "/api/v0/models", "/v1/models", "/api/tags", "/api/ps")
    async with fake_upstream(dict.fromkeys(paths, answer)) as upstream:
        served = await aiohttp_client(elbowroom(tmp_path, settings_for(upstream.url, kind=kind)))
        assert set(await health(served)) == {kind}
        async with served.get("/v1/models") as response:
            assert response.status == 200
            assert (await response.json())["data"] == []


async def test_an_upstream_that_hangs_does_not_hang_health(
    tmp_path: Path, aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an upstream that takes the request and says nothing, many at once learn so within their own time."""
    monkeypatch.setattr("elbowroom.server.models.PROBE_SECONDS", 0.2)

    async def silent(*_: object) -> None:
        await asyncio.sleep(600)

    async with byte_server(silent) as port:
        served = await aiohttp_client(elbowroom(tmp_path, settings_for(f"http://127.0.0.1:{port}")))
        answers = await asyncio.gather(*(asyncio.wait_for(health(served), 20) for _ in range(20)))
    assert answers == [{"lmstudio": False}] * 20


async def test_health_tells_strangers_no_more(tmp_path: Path) -> None:
    """It needs no token and no known host name, and shows neither address nor key nor models."""
    settings = settings_for(NOBODY, server='token = "file:token"').replace(
        'kind = "lmstudio"', 'kind = "lmstudio"\napi_key = "file:key"'
    )
    (tmp_path / "token").write_text("server-secret", encoding="utf-8")
    (tmp_path / "key").write_text("provider-secret", encoding="utf-8")
    async with serve(tmp_path, settings) as served:
        reply = await ask(served.port, request_bytes("GET /health HTTP/1.1", "Host: monitor.example"))
    assert reply.status == 200
    for secret in ("server-secret", "provider-secret", NOBODY, str(tmp_path)):
        assert secret not in reply.body.decode()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_health_can_only_be_read(tmp_path: Path, method: str, aiohttp_client: AiohttpClient) -> None:
    """Other methods are a 405 in OpenAI's form that names what is allowed."""
    served = await aiohttp_client(elbowroom(tmp_path, settings_for(NOBODY)))
    async with served.request(method, "/health") as response:
        assert response.status == 405
        assert "GET" in response.headers["Allow"]
        assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_health_survives_a_broken_settings_file(tmp_path: Path, aiohttp_client: AiohttpClient) -> None:
    """A settings file that becomes nonsense leaves the last good one in force, and `/health` says so until it is right.

    Where all of the file is wrong it is named by its own name, without its folder.
    """
    served = await aiohttp_client(elbowroom(tmp_path, settings_for(NOBODY)))
    assert await health(served) == {"lmstudio": False}
    (tmp_path / SETTINGS).write_text("[server\nport =", encoding="utf-8")
    async with served.get("/health") as response:
        assert (await response.json())["wrong_settings"] == [SETTINGS]
    (tmp_path / SETTINGS).write_text(settings_for(NOBODY), encoding="utf-8")
    assert await health(served) == {"lmstudio": False}


async def test_a_crowd_at_a_closed_port_does_not_queue_up(tmp_path: Path, aiohttp_client: AiohttpClient) -> None:
    """Fifty who ask for models of an upstream that is down are answered together."""
    served = await aiohttp_client(elbowroom(tmp_path, settings_for(NOBODY)))

    async def list_models() -> int:
        async with served.get("/v1/models") as response:
            return response.status

    began = time.monotonic()
    assert await asyncio.gather(*(list_models() for _ in range(50))) == [200] * 50
    assert time.monotonic() - began < 20
