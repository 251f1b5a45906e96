"""CORS headers: on every kind of answer to an allowed page, once each, and on none to another."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from fake_upstream import FakeUpstream, completion, fake_upstream, says
from pytest_aiohttp.plugin import AiohttpClient
from raw_http import ask, request_bytes
from serving import elbowroom, serve, settings_for

from elbowroom.demo import Error, Script, SimulatedLMStudio, SimulatedModel

OBSIDIAN = "app://obsidian.md"
ALLOW_ORIGIN = "Access-Control-Allow-Origin"
TOKEN = 'token = "env:ELBOWROOM_TEST_TOKEN"'
CHAT = {"model": "lmstudio/tiny", "messages": [{"role": "user", "content": "Hi"}]}


Client = TestClient[web.Request, web.Application]


@pytest.fixture
async def served(tmp_path: Path, aiohttp_client: AiohttpClient) -> AsyncIterator[Client]:
    """Run elbowroom in front of a simulated LM Studio with one model, whose answers are scripted to fail or not."""
    async with SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=4096)], cors=True) as studio:
        studio.enqueue(Script("Hello", Error("The model has crashed.")), when=lambda body: "crash" in str(body))
        yield await aiohttp_client(elbowroom(tmp_path, settings_for(studio.base_url)))


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models", None, 200),
        ("GET", "/health", None, 200),
        ("GET", "/v1/nothing", None, 404),
        ("GET", "/v1/models/none", None, 404),
        ("DELETE", "/v1/models", None, 405),
        ("POST", "/v1/chat/completions", CHAT, 200),
        ("POST", "/v1/chat/completions", {**CHAT, "stream": True}, 200),
        ("POST", "/v1/chat/completions", {**CHAT, "model": "none"}, 404),
        ("POST", "/v1/chat/completions", {}, 400),
        (
            "POST",
            "/v1/chat/completions",
            {**CHAT, "stream": True, "messages": [{"role": "user", "content": "crash"}]},
            200,
        ),
    ],
)
async def test_every_answer_can_be_read_by_an_allowed_page(
    served: Client, method: str, path: str, body: object, status: int
) -> None:
    """Answers, errors, streams and streams that fail carry the page's exact origin, once, and say so to caches."""
    async with served.request(method, path, json=body, headers={"Origin": OBSIDIAN}) as response:
        await response.read()
        assert response.status == status
        assert response.headers.getall(ALLOW_ORIGIN) == [OBSIDIAN]
        assert response.headers.getall("Vary") == ["Origin"]
        assert "Access-Control-Allow-Credentials" not in response.headers


async def test_an_answer_to_a_program_has_no_cors_headers(served: Client) -> None:
    """Where no page asks, no page is let in; caches still learn that it depends on the origin."""
    async with served.get("/v1/models") as response:
        assert ALLOW_ORIGIN not in response.headers
        assert response.headers["Vary"] == "Origin"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/health", "/", "/v1/mistyped", "/v1/v1/x/"])
async def test_a_preflight_is_answered_on_any_path(served: Client, path: str) -> None:
    """OPTIONS gets 204 wherever it goes, and whatever headers were asked for are allowed."""
    asked = "authorization,content-type,x-stainless-os,dangerously-allow-browser"
    headers = {
        "Origin": OBSIDIAN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": asked,
        "Access-Control-Request-Private-Network": "true",
    }
    async with served.options(path, headers=headers) as response:
        assert response.status == 204
        assert response.headers.getall(ALLOW_ORIGIN) == [OBSIDIAN]
        assert response.headers["Access-Control-Allow-Headers"] == asked
        assert {"GET", "POST", "PATCH"} <= set(response.headers["Access-Control-Allow-Methods"].split(", "))
        assert await response.read() == b""


async def test_a_preflight_needs_no_token_and_a_refusal_can_be_read(
    tmp_path: Path, aiohttp_client: AiohttpClient
) -> None:
    """Browsers send preflights without the token; the 401 that a wrong token gets can be shown by the page."""
    settings = settings_for("http://127.0.0.1:9", server=TOKEN)
    served = await aiohttp_client(elbowroom(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": "secret"}))
    async with served.options("/v1/models", headers={"Origin": OBSIDIAN}) as response:
        assert response.status == 204
    async with served.get("/v1/models", headers={"Origin": OBSIDIAN}) as response:
        assert response.status == 401
        assert response.headers[ALLOW_ORIGIN] == OBSIDIAN
    body = b"Origin: app://obsidian.md"
    async with served.post("/v1/x", data=body, headers={"Origin": OBSIDIAN}) as response:
        assert response.status == 415
        assert response.headers[ALLOW_ORIGIN] == OBSIDIAN


@pytest.mark.threat("foreign origins", "preflights too")
@pytest.mark.parametrize("path", ["/health", "/v1/chat/completions"])
async def test_a_foreign_preflight_is_refused(served: Client, path: str) -> None:
    """A page that is not on the list learns from its preflight that it may not call, on /health too."""
    async with served.options(path, headers={"Origin": "https://evil.example"}) as response:
        assert response.status == 403
        assert ALLOW_ORIGIN not in response.headers


async def test_a_foreign_page_cannot_read_health(served: Client) -> None:
    """/health answers everybody, but gives a foreign page no permission to read."""
    async with served.get("/health", headers={"Origin": "https://evil.example"}) as response:
        assert response.status == 200
        assert ALLOW_ORIGIN not in response.headers


@pytest.fixture
async def upstream_with_headers() -> AsyncIterator[FakeUpstream]:
    """Run a generic upstream that sets headers of its own on a chat's answer."""
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Set-Cookie": "spy=1",
        "Server": "upstream/1",
        "X-Powered-By": "Express",
        "Retry-After": "7",
        "Location": "https://evil.example",
    }
    async with fake_upstream({"/v1/chat/completions": says(completion(), headers=headers)}) as upstream:
        yield upstream


@pytest.mark.threat("frames and headers", "headers of the upstream stay behind")
async def test_upstream_headers_are_not_relayed(
    upstream_with_headers: FakeUpstream, tmp_path: Path, aiohttp_client: AiohttpClient
) -> None:
    """The upstream's CORS headers, cookies and banners stay behind: a doubled CORS header breaks browsers."""
    served = await aiohttp_client(elbowroom(tmp_path, settings_for(upstream_with_headers.url, kind="openai")))
    body = {**CHAT, "model": "openai/m"}
    async with served.post("/v1/chat/completions", json=body, headers={"Origin": OBSIDIAN}) as response:
        assert response.status == 200
        assert response.headers.getall(ALLOW_ORIGIN) == [OBSIDIAN]
        for name in ("Set-Cookie", "X-Powered-By", "Retry-After", "Location"):
            assert name not in response.headers
        assert response.headers["Server"] != "upstream/1"


async def test_a_star_in_the_settings_lets_all_pages_in(tmp_path: Path) -> None:
    """`*` is an explicit choice; even then the exact origin is echoed, never the star."""
    settings = settings_for("http://127.0.0.1:9", server='allowed_origins = ["*"]')
    async with serve(tmp_path, settings) as served:
        host = f"Host: 127.0.0.1:{served.port}"
        reply = await ask(served.port, request_bytes("GET /v1/models HTTP/1.1", host, "Origin: https://any.example"))
    assert reply.status == 200
    assert reply.all("access-control-allow-origin") == ["https://any.example"]
