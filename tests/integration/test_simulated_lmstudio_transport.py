"""What the simulated LM Studio does around its answers: tokens, web pages, unknown paths, restarts."""

from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from elbowroom.demo import SimulatedLMStudio

TOKEN = "sk-lm-abcd1234:ABCDEFGHIJKLMNOPQRST"
BODY = {"messages": [{"role": "user", "content": "Hi"}]}


async def ask(studio: SimulatedLMStudio, method: str, path: str, **more: Any) -> tuple[int, Any, Mapping[str, str]]:
    """Return status, JSON and headers of an answer."""
    async with (
        aiohttp.ClientSession(studio.base_url) as http,
        http.request(method, path, **more) as response,
    ):
        return response.status, await response.json(content_type=None), response.headers


async def test_greeting() -> None:
    """The positive sign of an LM Studio, on Express, without a word about what really serves it."""
    async with SimulatedLMStudio() as studio:
        status, answer, headers = await ask(studio, "GET", "/lmstudio-greeting")
    assert (status, answer) == (200, {"lmstudio": True})
    assert headers["X-Powered-By"] == "Express"
    assert "Server" not in headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/props"),
        ("GET", "/api/tags"),
        ("POST", "/tokenize"),
        ("GET", "/v1/chat/completions"),
        ("GET", "/llm"),
    ],
)
async def test_unknown_path_is_answered_with_status_200(method: str, path: str) -> None:
    """Only the body tells that there is nothing; wrong methods and plain requests to sockets too."""
    async with SimulatedLMStudio() as studio:
        status, answer, _ = await ask(studio, method, path)
    assert (status, answer) == (200, {"error": f"Unexpected endpoint or method. ({method} {path})"})


@pytest.mark.parametrize(
    ("authorization", "beginning"),
    [
        (None, "An LM Studio API token is required"),
        ("Bearer lm-studio", "Malformed LM Studio API token provided"),
        ("Bearer sk-lm-abcd1234:ABCDEFGHIJKLMNOPQRSU", "Invalid LM Studio API token provided"),
    ],
)
async def test_without_the_token_everything_is_401(authorization: str | None, beginning: str) -> None:
    """Code invalid_api_key; the greeting stays open."""
    headers = {} if authorization is None else {"Authorization": authorization}
    async with SimulatedLMStudio(api_token=TOKEN) as studio:
        for method, path in (("GET", "/api/v1/models"), ("POST", "/v1/chat/completions")):
            status, answer, _ = await ask(studio, method, path, headers=headers, json=BODY)
            assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
            assert answer["error"]["message"].startswith(beginning)
        assert (await ask(studio, "GET", "/lmstudio-greeting"))[0] == 200


async def test_web_pages_are_let_in_by_the_switch_only() -> None:
    """Off: no header, and the preflight fails with 400. On: any origin, any header."""
    async with SimulatedLMStudio() as studio:
        status, _, headers = await ask(studio, "OPTIONS", "/v1/chat/completions")
        assert status == 400
        assert "Access-Control-Allow-Origin" not in headers
        studio.cors = True
        status, _, headers = await ask(studio, "OPTIONS", "/v1/chat/completions")
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, "*")
        async with (
            aiohttp.ClientSession(studio.base_url) as http,
            http.post("/v1/chat/completions", json=BODY | {"stream": True}) as response,
        ):
            assert response.headers["Access-Control-Allow-Origin"] == "*"
            assert response.headers["Access-Control-Allow-Headers"] == "*"


@pytest.mark.parametrize(("age", "known"), [("v1", [1, 1]), ("v0", [1, 0]), ("none", [0, 0])])
async def test_older_apps_lack_native_routes(age: Any, known: list[int]) -> None:
    """Missing routes are unknown paths, status 200 and all; the OpenAI routes stay."""
    async with SimulatedLMStudio(native_api=age) as studio:
        answers = [(await ask(studio, "GET", f"/api/{version}/models"))[1] for version in ("v0", "v1")]
        assert [int("error" not in answer) for answer in answers] == known
        assert "data" in (await ask(studio, "GET", "/v1/models"))[1]
