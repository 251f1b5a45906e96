"""Whatever form of the address people paste as a base, the routes are there; beyond them there is a clear 404."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fake_upstream import completion, fake_upstream, says
from raw_http import ask, request_bytes
from serving import Served, serve, settings_for

BASES = [
    "",
    "/",
    "//",
    "/v1",
    "/v1/",
    "/v1//",
    "//v1",
    "/v1/v1",
    "/v1/v1/",
    "/v1/v1/v1",
    "/v1/chat/completions",
    "/v1/chat/completions/",
    "/chat/completions",
    "/v1/v1/chat/completions",
]
pytestmark = pytest.mark.asyncio(loop_scope="module")
BODY = {"model": "openai/m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Run elbowroom in front of a generic upstream with one model that has a slash in its name."""
    answers = {
        "/v1/chat/completions": says(completion()),
        "/v1/models": says({"data": [{"id": "m"}, {"id": "org/n"}, {"id": "odd name:7b@q4"}]}),
    }
    async with (
        fake_upstream(answers) as upstream,
        serve(tmp_path_factory.mktemp("served"), settings_for(upstream.url, kind="openai")) as served,
    ):
        yield served


@pytest.mark.parametrize("end", ["", "/", "//"])
@pytest.mark.parametrize("base", BASES)
async def test_every_base_reaches_the_routes(served: Served, base: str, end: str) -> None:
    """Chat and models under each base that clients are given, with and without a slash at the end."""
    host = f"Host: 127.0.0.1:{served.port}"
    reply = await ask(served.port, request_bytes(f"GET {base}/models{end} HTTP/1.1", host))
    assert reply.status == 200
    assert [row["id"] for row in reply.json["data"]] == ["openai/m", "openai/org/n", "openai/odd name:7b@q4"]
    body = b'{"model": "openai/m", "messages": [{"role": "user", "content": "Hi"}]}'
    headers = (host, "Content-Type: application/json", f"Content-Length: {len(body)}")
    reply = await ask(served.port, request_bytes(f"POST {base}/chat/completions{end} HTTP/1.1", *headers, body=body))
    assert reply.status == 200


@pytest.mark.parametrize("query", ["?", "?api-version=1", "?key=a/b&c=%2F"])
async def test_a_query_makes_no_difference(served: Served, query: str) -> None:
    """Some clients add a version to every address."""
    async with served.http.post(f"{served.chat_url}{query}", json=BODY) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("openai/m", "openai/m"),
        ("openai/m/", "openai/m"),
        ("openai/org/n", "openai/org/n"),
        ("openai%2Forg%2Fn", "openai/org/n"),
        ("openai/odd%20name:7b@q4", "openai/odd name:7b@q4"),
        ("openai/none", None),
        ("none", None),
        ("..%2F..%2Fetc%2Fpasswd", None),
    ],
)
async def test_one_model_is_shown_by_its_name(served: Served, path: str, found: str | None) -> None:
    """Names with slashes, encoded or not; an unknown one is a 404 that lists what there is."""
    host = f"Host: 127.0.0.1:{served.port}"
    reply = await ask(served.port, request_bytes(f"GET /v1/models/{path} HTTP/1.1", host))
    if found is None:
        assert reply.status == 404
        assert reply.json["error"]["code"] == "model_not_found"
        assert "openai/org/n" in reply.json["error"]["message"]
    else:
        assert (reply.status, reply.json["id"]) == (200, found)


@pytest.mark.parametrize(
    "path",
    ["/v2/models", "/v1/model", "/v1x/models", "/models.json", "/v1/completion", "/api", "/%00", "/v1/\u00fc", "/*"],
)
async def test_beyond_the_routes_there_is_a_clear_404(served: Served, path: str) -> None:
    """A mistyped path is told in OpenAI's form, with the paths there are."""
    async with served.http.get(served.url + path) as response:
        assert response.status == 404
        error = (await response.json())["error"]
    assert "/v1/chat/completions" in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/chat/completions"), ("POST", "/v1/models"), ("PUT", "/v1")])
async def test_a_wrong_method_is_told(served: Served, method: str, path: str) -> None:
    """A 405 names the methods there are."""
    async with served.http.request(method, served.url + path, json=BODY) as response:
        assert response.status == (405 if path != "/v1" else 404)
        assert response.status == 404 or response.headers["Allow"]
        assert (await response.json())["error"]["message"]
