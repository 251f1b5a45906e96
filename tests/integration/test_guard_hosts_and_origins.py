"""The first two gates: under which name elbowroom is called, and from which web pages."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from raw_http import ask, connected, request_bytes
from serving import Served, serve, settings_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOBODY = "http://127.0.0.1:9"
PAST_THE_GATES = 404  # what a path that does not exist is answered with, once a request is through


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Run elbowroom with two host names and one origin of the user's own."""
    server = (
        'allowed_hosts = ["Notes.lan", "proxy.lan:8443"]\n'
        'allowed_origins = ["https://notes.example:8443"]\ntoken = "env:NONE"\n'
    ).replace('token = "env:NONE"\n', "")
    async with serve(tmp_path_factory.mktemp("served"), settings_for(NOBODY, server=server)) as served:
        yield served


async def status_under(served: Served, *headers: str, line: str = "GET /v1/nothing HTTP/1.1") -> int:
    """Return the status of a request with exactly these headers; PORT stands for the server's port."""
    port = str(served.port)
    request = request_bytes(line.replace("PORT", port), *(header.replace("PORT", port) for header in headers))
    return (await ask(served.port, request)).status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:PORT",
        "localhost:PORT",
        "LocalHost:PORT",
        "[::1]:PORT",
        "host.docker.internal:PORT",
        "localhost",
        "localhost:9999",
        "127.0.0.1:1",
        "[::1]:9999",
        "host.docker.internal:9999",
        "notes.lan",
        "NOTES.LAN:80",
        "proxy.lan:8443",
    ],
)
async def test_own_names_are_answered(served: Served, host: str) -> None:
    """Loopback under any port, as behind a tunnel, and the names of the settings reach the routes."""
    assert await status_under(served, f"Host: {host}") == PAST_THE_GATES


@pytest.mark.threat("DNS rebinding", "every other Host is refused")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:PORT",
        "127.0.0.1.evil.example:PORT",
        "localhost.evil.example:PORT",
        "localhost.:PORT",
        "evil.localhost:PORT",
        "printer.local:PORT",
        "127.0.0.1:0PORT",
        "127.0.0.1:PORT@evil.example",
        "evil.example@127.0.0.1:PORT",
        "127.0.0.1:PORT, evil.example",
        "127.0.0.1:PORT/evil",
        "127.0.0.1:",
        ":PORT",
        "",
        "127.1:PORT",
        "2130706433:PORT",
        "0.0.0.0:PORT",
        "[::]:PORT",
        "[0:0:0:0:0:0:0:1]:PORT",
        "::1",
        "[::1",
        "[::1]evil:PORT",
        "proxy.lan:8444",
        "proxy.lan",
        "notes.lan.",
    ],
)
async def test_every_other_name_is_refused(served: Served, host: str) -> None:
    """A page that rebinds its own name to this address gets nothing, however the name is dressed up."""
    assert await status_under(served, f"Host: {host}") == 403


async def test_a_tunnel_keeps_its_page_and_other_pages_out(served: Served) -> None:
    """Under another port its own page may see settings; one of yet another port, or under a rebound name, may not."""
    line, host = "GET /api/settings HTTP/1.1", "Host: localhost:9999"
    assert await status_under(served, host, "Origin: http://localhost:9999", line=line) == 200
    assert await status_under(served, host, "Origin: http://localhost:3000", line=line) == 403
    assert await status_under(served, "Host: evil.example:9999", "Origin: http://localhost:9999", line=line) == 403


async def test_digits_of_other_scripts_are_no_port(served: Served) -> None:
    """A port in full-width digits, which Python's `int` would read, is not this port."""
    wide = str(served.port).translate({ord(str(digit)): chr(0xFF10 + digit) for digit in range(10)})
    assert await status_under(served, f"Host: 127.0.0.1:{wide}") in (400, 403)
    assert await status_under(served, "Host: 127.0.0.1:PORT", f"Origin: http://localhost:{wide}") in (400, 403)


@pytest.mark.threat("DNS rebinding", "so are two")
@pytest.mark.parametrize("names", [("127.0.0.1:PORT", "evil.example"), ("evil.example", "127.0.0.1:PORT")])
async def test_two_host_headers_are_refused(served: Served, names: tuple[str, str]) -> None:
    """With two Host headers neither counts, so that no proxy in front can see another one than elbowroom."""
    assert await status_under(served, *(f"Host: {name}" for name in names)) in (400, 403)


async def test_a_request_without_a_host_is_refused(served: Served) -> None:
    """HTTP/1.0 can leave the Host header out; then there is no telling which name was meant."""
    assert await status_under(served, line="GET /v1/nothing HTTP/1.0") == 403
    assert await status_under(served, line="GET /v1/nothing HTTP/1.1") in (400, 403)
    assert await status_under(served, "Host: localhost:PORT", line="GET /v1/nothing HTTP/1.0") == PAST_THE_GATES


@pytest.mark.threat("DNS rebinding", "and a whole address as target")
@pytest.mark.parametrize("target", ["http://evil.example/v1/models", "http://127.0.0.1:PORT/v1/models", "evil.example"])
async def test_a_whole_address_as_target_is_refused(served: Served, target: str) -> None:
    """A request in the form that proxies get is refused even where its Host header is right."""
    assert await status_under(served, "Host: 127.0.0.1:PORT", line=f"GET {target} HTTP/1.1") in (400, 403)


async def test_a_path_that_begins_with_two_slashes_is_no_host(served: Served) -> None:
    """What follows two slashes is a path here, not the name of another server."""
    assert await status_under(served, "Host: 127.0.0.1:PORT", line="GET //evil.example/v1/models HTTP/1.1") == 404


@pytest.mark.parametrize(
    "origin",
    [
        "app://obsidian.md",
        "capacitor://localhost",
        "http://localhost",
        "http://localhost:3000",
        "https://localhost:8443",
        "http://127.0.0.1:8080",
        "http://[::1]:5173",
        "https://notes.example:8443",
    ],
)
async def test_known_pages_are_answered(served: Served, origin: str) -> None:
    """Obsidian on every device, development servers on this machine, and the origins of the settings may call."""
    assert await status_under(served, "Host: 127.0.0.1:PORT", f"Origin: {origin}") == PAST_THE_GATES


FOREIGN_ORIGINS = [
    "https://evil.example",
    "null",
    "",
    "app://obsidian.md.evil",
    "app://obsidian.md:1",
    "app://obsidianXmd",
    "App://Obsidian.md",
    "http://localhost.evil.com",
    "http://localhost:80@evil.example",
    "http://evil.example/http://localhost",
    "http://localhost:",
    "http://localhost:123456",
    "http://127.0.0.1.evil.example",
    "https://notes.example",
    "https://notes.example:8443.evil.example",
    "file://",
    "http://localhost, https://evil.example",
    "capacitor://localhost.evil",
]


@pytest.mark.threat("foreign origins", "403")
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
async def test_foreign_pages_are_refused(served: Served, origin: str) -> None:
    """Any other web page gets 403, for what it asks and for its preflight, and nothing that lets it read that."""
    host = f"Host: 127.0.0.1:{served.port}"
    for line in ("GET /v1/models HTTP/1.1", "OPTIONS /v1/chat/completions HTTP/1.1"):
        reply = await ask(served.port, request_bytes(line, host, f"Origin: {origin}"))
        assert reply.status == 403
        assert not reply.all("access-control-allow-origin")
        assert set(reply.json["error"]) == {"message", "type", "param", "code"}


async def test_one_foreign_origin_among_two_is_enough(served: Served) -> None:
    """A second Origin header does not hide the first."""
    good, evil = "Origin: app://obsidian.md", "Origin: https://evil.example"
    assert await status_under(served, "Host: 127.0.0.1:PORT", good, evil) in (400, 403)
    assert await status_under(served, "Host: 127.0.0.1:PORT", evil, good) in (400, 403)


@pytest.mark.parametrize("wrong", ["Host: evil.example", "Origin: https://evil.example"])
async def test_a_refusal_does_not_wait_for_the_body(served: Served, wrong: str) -> None:
    """A foreign request is refused while its body is still to come."""
    headers = [f"Host: 127.0.0.1:{served.port}", "Content-Type: application/json", "Content-Length: 1000000"]
    headers = [wrong, *headers[1:]] if wrong.startswith("Host") else [*headers, wrong]
    async with connected(served.port) as connection:
        await connection.send(request_bytes("POST /v1/chat/completions HTTP/1.1", *headers))
        reply = await connection.reply()
    assert reply.status == 403
    assert reply.json["error"]["type"] == "invalid_request_error"


async def test_settings_change_the_rules_without_a_restart(served: Served) -> None:
    """A host that is taken out of the file is refused from the next request on, one that is added is answered."""
    kept = served.settings.read_text(encoding="utf-8")
    assert await status_under(served, "Host: notes.lan") == PAST_THE_GATES
    try:
        served.settings.write_text(settings_for(NOBODY, server='allowed_hosts = ["other.lan"]'), encoding="utf-8")
        assert await status_under(served, "Host: notes.lan") == 403
        assert await status_under(served, "Host: other.lan") == PAST_THE_GATES
    finally:
        served.settings.write_text(kept, encoding="utf-8")
