"""Addresses that others have chosen: neither a message nor an MCP server makes elbowroom ask them."""

import hmac
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from aiohttp import web
from chatting import AGENT, MODEL, RAW_MODEL, chat_body, elbowroom_with_studio
from fake_upstream import fake_upstream, says
from mcp_sample import Sample, http_server
from serving import Served, serve, settings_for
from small_window import ask_whole

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.server import guard

SEES = SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768)
SECRET = "canary-of-the-settings"


@pytest.mark.threat("addresses in messages", "elbowroom fetches no image; the engine gets the address as it was sent")
@pytest.mark.parametrize("model", [RAW_MODEL, "writer"])
async def test_an_image_at_an_inner_address_is_not_fetched(tmp_path: Path, model: str) -> None:
    """Neither for the chat nor for a count, for raw models and agents: nobody comes to the inner server."""
    async with (
        fake_upstream({"/latest": says(b"\x89PNG")}) as inner,
        elbowroom_with_studio(tmp_path, agents=AGENT, model=SEES) as (served, studio),
    ):
        parts = [
            {"type": "text", "text": "What is this?"},
            *(
                {"type": "image_url", "image_url": {"url": url}}
                for url in (f"{inner.url}/latest", "file:///etc/passwd")
            ),
        ]
        body = chat_body(parts, model=model)
        status, answer = await ask_whole(served, body)
        assert status == 200, answer
        async with served.http.post(f"{served.chat_url}/input_tokens", json=body) as response:
            assert response.status == 200
        assert studio.chats[0].body["messages"][-1]["content"] == parts
        assert inner.asked == []


@pytest.mark.threat("addresses of MCP servers", "a redirect to another server is not followed, and gets no key")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_of_an_mcp_server_is_not_followed(tmp_path: Path, status: int) -> None:
    """Whoever has an MCP server could lead its client, and the key for it, to an inner address."""
    async with fake_upstream({}) as inner, fake_upstream({}) as moved:

        async def elsewhere(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": f"{inner.url}/mcp"})

        moved.answers["/mcp"] = elsewhere
        sample = Sample.of(tmp_path, http_server("moved", f"{moved.url}/mcp", f'headers = {{ X-Key = "{SECRET}" }}'))
        try:
            assert await sample.tools("moved") == []
            assert moved.asked
            assert inner.asked == []
        finally:
            await sample.servers.aclose()


@pytest.mark.threat("addresses of MCP servers", "a page of another origin cannot put one into the settings")
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "app://obsidian.md"])
async def test_a_page_cannot_name_an_mcp_server(tmp_path: Path, origin: str) -> None:
    """Not even a page that may chat: an MCP server is a program to start, or an address to ask."""
    change = {"mcp_servers": [{"name": "inner", "url": "http://169.254.169.254/mcp"}]}
    async with SimulatedLMStudio([]) as studio, serve(tmp_path, settings_for(studio.base_url)) as served:
        before = served.settings.read_text(encoding="utf-8")
        url = f"{served.url}/api/settings"
        async with served.http.patch(url, json=change, headers={"Origin": origin}) as response:
            assert response.status == 403
        assert served.settings.read_text(encoding="utf-8") == before


@pytest.mark.threat("token", "compared in constant time, however it is sent")
@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key"])
@pytest.mark.parametrize("token", ["", "r", "right-toke", "right-token", "right-token-and-more", "ünicode"])
async def test_every_token_is_compared_in_constant_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, token: str
) -> None:
    """A comparison that ends at the first wrong letter would tell by its time how many are right."""
    compared: list[tuple[bytes, bytes]] = []

    def compare_digest(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(guard, "hmac", type("Watched", (), {"compare_digest": staticmethod(compare_digest)}))
    async with SimulatedLMStudio([]) as studio, with_token(tmp_path, studio) as served:
        given = f"Bearer {token}" if header == "Authorization" else token
        async with served.http.get(f"{served.url}/v1/models", headers={header: given}) as response:
            assert response.status == (200 if token == "right-token" else 401)
    assert compared == [(token.encode(), b"right-token")]


def with_token(folder: Path, studio: SimulatedLMStudio) -> AbstractAsyncContextManager[Served]:
    """Run elbowroom with a token."""
    settings = settings_for(studio.base_url, server='token = "env:ELBOWROOM_TOKEN"')
    return serve(folder, settings, environ={"ELBOWROOM_TOKEN": "right-token"})
