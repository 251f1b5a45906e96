"""The last two gates: what a body claims to be, and the token."""

from itertools import product
from pathlib import Path

import psutil
import pytest
from cases import case
from command_line import run
from raw_http import ask, request_bytes
from serving import Served, serve, settings_for

from elbowroom.server.listen import listening
from elbowroom.settings.live import LiveSettings

NOBODY = "http://127.0.0.1:9"
TOKEN = "correct-horse-battery-staple"
WITH_TOKEN = 'token = "env:ELBOWROOM_TEST_TOKEN"'
ROUTES = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/some/model"),
    ("GET", "/models"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/chat/completions/"),
    ("GET", "/v1/nothing"),
    ("POST", "/"),
    ("DELETE", "/v1/models/x"),
    ("GET", "/health/"),
    ("GET", "/health/../v1/models"),
    ("GET", "/%2568ealth"),
    ("GET", "//health"),
]


@pytest.mark.threat("CSRF", "415")
@pytest.mark.parametrize(
    "header",
    [
        "Content-Type: text/plain",
        "Content-Type: text/plain;application/json",
        "Content-Type: text/plain; charset=application/json",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Type: multipart/form-data; boundary=x",
        "Content-Type: application/jsonp",
        "Content-Type: application/json-evil",
        "Content-Type: ",
        "X-Content-Type: application/json",
    ],
)
async def test_what_a_page_can_send_unasked_is_refused(tmp_path: Path, header: str) -> None:
    """A form or a "simple" POST, which needs no preflight, gets 415 even with good JSON in it."""
    body = b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        reply = await ask(served.port, posted(served, header, body=body))
    assert reply.status == 415
    assert "application/json" in reply.json["error"]["message"]


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON", "application/json; charset=utf-8"])
async def test_json_is_taken_however_it_is_spelled(tmp_path: Path, kind: str) -> None:
    """The type's case and its parameters do not matter."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        reply = await ask(served.port, posted(served, f"Content-Type: {kind}", body=b"[]"))
    assert reply.status == 400
    assert "object" in reply.json["error"]["message"]


def posted(served: Served, *headers: str, body: bytes, path: str = "/v1/chat/completions") -> bytes:
    """Return a POST to this server with these headers besides Host and Content-Length."""
    fixed = (f"Host: 127.0.0.1:{served.port}", f"Content-Length: {len(body)}")
    return request_bytes(f"POST {path} HTTP/1.1", *fixed, *headers, body=body)


WRONG_TOKENS: list[dict[str, str]] = [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN.upper()}"},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer"},
    {"Authorization": TOKEN},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": "Bearer wrong", "X-Api-Key": TOKEN},
    {"X-Api-Key": "wrong"},
    {"X-Api-Key": ""},
    {"Api-Key": TOKEN},
    {"Cookie": f"token={TOKEN}"},
    {"Authorization": "Bearer t\u00f6ken"},
]


@pytest.mark.threat("token", "401 on every route")
async def test_every_route_asks_for_the_token(tmp_path: Path) -> None:
    """With a token in the settings, no path but /health answers without exactly it, not even to say 404."""
    async with serve(
        tmp_path, settings_for(NOBODY, server=WITH_TOKEN), environ={"ELBOWROOM_TEST_TOKEN": TOKEN}
    ) as served:
        for headers, (method, path) in product(WRONG_TOKENS, ROUTES):
            with case(headers, method, path):
                lines = [f"{name}: {value}" for name, value in headers.items()]
                lines += [f"Host: 127.0.0.1:{served.port}", "Content-Type: application/json", "Content-Length: 0"]
                reply = await ask(served.port, request_bytes(f"{method} {path} HTTP/1.1", *lines))
                assert reply.status == 401
                assert reply.json["error"]["code"] == "invalid_api_key"
                assert TOKEN not in reply.body.decode()


async def test_a_wrong_token_is_told_from_none(tmp_path: Path) -> None:
    """Who has given a program a key is not told to send one, but that it is another, and where the right one stands."""
    settings = settings_for(NOBODY, server=WITH_TOKEN)
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": TOKEN}) as served:
        for headers, words in (
            ({}, "asks for its token"),
            ({"Authorization": "Bearer none"}, "is not this elbowroom's"),
        ):
            async with served.http.get(f"{served.url}/v1/models", headers=headers) as response:
                assert words in (await response.json())["error"]["message"]


@pytest.mark.threat("token", "never in an address")
async def test_the_token_is_not_taken_from_the_address(tmp_path: Path) -> None:
    """A token in the query, where logs and histories keep it, is no token."""
    settings = settings_for(NOBODY, server=WITH_TOKEN)
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": TOKEN}) as served:
        for name in ("token", "api_key", "key", "access_token"):
            async with served.http.get(f"{served.url}/v1/models?{name}={TOKEN}") as response:
                assert response.status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {TOKEN}"},
        {"Authorization": f"bearer {TOKEN}"},
        {"Authorization": f"Bearer   {TOKEN} "},
        {"X-Api-Key": TOKEN},
        {"Authorization": "Basic x", "x-api-key": TOKEN},
    ],
)
async def test_the_right_token_opens(tmp_path: Path, headers: dict[str, str]) -> None:
    """Both header forms are taken, the scheme in any case."""
    settings = settings_for(NOBODY, server=WITH_TOKEN)
    async with (
        serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": TOKEN}) as served,
        served.http.get(f"{served.url}/v1/models", headers=headers) as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize("header", ["", "Bearer ", "Bearer no api key required", "Bearer x"])
async def test_without_a_token_any_key_will_do(tmp_path: Path, header: str) -> None:
    """Clients that insist on a key, or send an empty one, work where no token is set."""
    async with (
        serve(tmp_path, settings_for(NOBODY)) as served,
        served.http.get(f"{served.url}/v1/models", headers={"Authorization": header}) as response,
    ):
        assert response.status == 200


async def test_gates_are_asked_cheapest_first(tmp_path: Path) -> None:
    """Host before origin before content type before token: a stranger does not learn that there is a token."""
    settings = settings_for(NOBODY, server=WITH_TOKEN)
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": TOKEN}) as served:
        host, evil_host = f"Host: 127.0.0.1:{served.port}", "Host: evil.example"
        plain, evil_origin = "Content-Type: text/plain", "Origin: https://evil.example"

        async def refusal(*headers: str) -> tuple[int, str]:
            reply = await ask(served.port, request_bytes("POST /v1/x HTTP/1.1", *headers, "Content-Length: 0"))
            return reply.status, reply.json["error"]["message"]

        assert (await refusal(evil_host, evil_origin, plain))[1].startswith("The Host header")
        assert (await refusal(host, evil_origin, plain))[1].startswith("Web pages from")
        assert (await refusal(host, plain))[0] == 415
        assert (await refusal(host, "Content-Type: application/json"))[0] == 401


@pytest.mark.threat("open address", "this machine alone")
async def test_the_server_listens_on_loopback_only(tmp_path: Path) -> None:
    """Without a word in the settings, nothing but this machine can reach the port."""
    path = tmp_path / "settings.toml"
    path.write_text("[server]\nport = 0\n", encoding="utf-8")
    before = listening_sockets()
    async with listening(LiveSettings(path, {}, {}), {}) as (_, address):
        assert {host for host, _ in listening_sockets() - before} == {"127.0.0.1"}
        assert address.startswith("http://127.0.0.1:")


def listening_sockets() -> set[tuple[str, int]]:
    """Return the addresses on which this process listens."""
    connections = psutil.Process().net_connections("inet")
    return {(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN}


@pytest.mark.threat("open address", "else a token is demanded")
def test_an_open_address_without_a_token_does_not_start(tmp_path: Path) -> None:
    """`--host 0.0.0.0` without a token ends with an error that says what is missing, before anything listens."""
    settings = tmp_path / "settings.toml"
    settings.write_text("", encoding="utf-8")
    ended = run(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0", ELBOWROOM_CONFIG=str(settings))
    assert ended.returncode != 0
    assert "token" in ended.stderr
    assert "Traceback" not in ended.stderr
