"""The connection to an upstream: down, silent, stale, redirecting, and kept from proxies and strangers."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_upstream import FakeUpstream, byte_server, chunk, completion, fake_upstream, read_request, says, streams
from outcome import chat
from serving import serve, settings_for
from spread_variants import spread
from waiting import until

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.providers import upstream as posting

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
WHOLE = b'{"model": "m", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(WHOLE), WHOLE)
AGENT = '[[agents]]\nid = "writer"\nprovider = "{kind}"\nmodel = "m"\n'


@pytest.mark.fault("connection refused", "first", "503 with what to start")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("kind", "hint"),
    [("lmstudio", "lms server start"), ("ollama", "ollama serve"), ("openai", "put its address into base_url")],
)
async def test_an_upstream_that_is_down_is_a_503_that_says_what_to_start(
    tmp_path: Path, kind: str, hint: str, *, stream: bool
) -> None:
    """Raw model or agent, streamed or not: the address, the remedy, quickly; and the server keeps serving."""
    url = "http://127.0.0.1:9"
    async with serve(tmp_path, settings_for(url, kind=kind, agents=AGENT.format(kind=kind))) as served:
        began = time.monotonic()
        for model in (f"{kind}/m", "writer"):
            outcome = await chat(served, model, stream=stream)
            assert outcome.status == 503
            assert outcome.error is not None
            assert outcome.error["code"] == "upstream_unreachable"
            assert url in outcome.message
            assert hint in outcome.message
        assert time.monotonic() - began < 15
        async with served.http.get(f"{served.url}/health") as response:
            assert response.status == 200
        async with served.http.get(f"{served.url}/v1/models") as response:
            assert [row["id"] for row in (await response.json())["data"]] == ["writer"]


async def test_an_upstream_that_does_not_take_connections_is_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that swallows the connection without a word is given up after a moment, for a whole crowd at once."""
    monkeypatch.setattr("elbowroom.providers.upstream.CONNECT_SECONDS", 0.3)
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        settings = settings_for(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        async with serve(tmp_path, settings) as served:
            began = time.monotonic()
            outcomes = await asyncio.gather(*(chat(served, "lmstudio/m", stream=True) for _ in range(10)))
            assert time.monotonic() - began < 10
    assert {outcome.status for outcome in outcomes} == {503}


async def test_a_connection_that_breaks_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Whoever it is that breaks off in the middle of a frame, the name stands where a sentence has it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    said = chunk({"content": "Half"})

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head + b"%x\r\n%s\r\nff\r\n" % (len(said), said))
        await writer.drain()

    async with byte_server(break_off) as port:
        async with serve(tmp_path, settings_for(f"http://127.0.0.1:{port}", kind="openai")) as served:
            outcome = await chat(served, "openai/m", stream=True)
    assert outcome.text == "Half"
    assert outcome.message.startswith("The upstream server broke off")


async def test_an_unknown_host_is_a_503(tmp_path: Path) -> None:
    """A name that does not resolve is said to be wrong, not a mistake of the server's."""
    async with serve(tmp_path, settings_for("http://no-such-host.invalid:1234")) as served:
        outcome = await chat(served, "lmstudio/m", stream=True)
    assert outcome.status == 503
    assert "no-such-host.invalid" in outcome.message


async def test_lm_studio_may_come_later_and_come_back(tmp_path: Path) -> None:
    """Down, up, down and up again: each request sees what is there."""
    studio = SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=4096)])
    await studio.start()
    await studio.stop()
    async with serve(tmp_path, settings_for(studio.base_url)) as served:
        for _ in range(2):
            assert (await chat(served, "lmstudio/tiny", stream=True)).status == 503
            await studio.start()
            assert (await chat(served, "lmstudio/tiny", stream=True)).text
            await studio.stop()
            await asyncio.sleep(0)
            assert (await chat(served, "lmstudio/tiny", stream=True)).status == 503


@pytest.mark.fault("silence before the headers", "first", "waited for; closed as soon as the client leaves")
@pytest.mark.parametrize(("kind", "stream"), spread(["lmstudio", "openai"], [True, False]))
async def test_a_client_may_leave_an_upstream_that_says_nothing(tmp_path: Path, kind: str, *, stream: bool) -> None:
    """Before the response headers, which may take minutes, leaving closes the upstream connection."""
    arrived, left = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, _ = await read_request(reader)
        if "chat" not in line:
            listing = b'{"models": [{"key": "m", "loaded_instances": [{"id": "m", "config": {"context_length": 99}}]}]}'
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(listing) + listing)
            await writer.drain()
            return
        arrived.set()
        await reader.read()
        left.set()

    async with (
        byte_server(hang) as port,
        serve(tmp_path, settings_for(f"http://127.0.0.1:{port}", kind=kind)) as served,
    ):
        asking = asyncio.create_task(chat(served, f"{kind}/m", stream=stream))
        async with asyncio.timeout(20):
            await arrived.wait()
            asking.cancel()
            await left.wait()


async def test_an_error_that_never_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error whose body hangs does not hold the request: what has come of it is enough."""
    monkeypatch.setattr(posting, "ERROR_BODY_SECONDS", 0.2)

    async def never_ending_error(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(
            b'HTTP/1.1 400 Bad\r\nContent-Length: 1000\r\n\r\n{"error": "Input length 9 exceeds context length 8"}'
        )
        await writer.drain()
        await asyncio.sleep(600)

    async with (
        byte_server(never_ending_error) as port,
        serve(tmp_path, settings_for(f"http://127.0.0.1:{port}", kind="openai")) as served,
    ):
        outcome = await asyncio.wait_for(chat(served, "openai/m", stream=True), 30)
    assert outcome.status == 400
    assert outcome.error is not None
    assert outcome.error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_a_connection_that_went_stale_is_not_noticed(tmp_path: Path, pause: float) -> None:
    """A server that closes kept connections after each answer costs no request, however soon the next one comes."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER)  # as if the connection were to be kept
        await writer.drain()

    async with (
        byte_server(once) as port,
        serve(tmp_path, settings_for(f"http://127.0.0.1:{port}", kind="openai")) as served,
    ):
        for number in range(8):
            assert (await chat(served, "openai/m", stream=bool(number % 2))).text == "Hi"
            await asyncio.sleep(pause)


async def test_connections_to_the_upstream_are_reused_and_returned(tmp_path: Path) -> None:
    """Streams read to their end give their connection back: fifty requests in a row do not take fifty."""
    connections = 0

    async def serve_many(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        body = chunk({"content": "Hi"}) + chunk({}, "stop") + DONE
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
        while True:
            await read_request(reader)
            writer.write(head + body)
            await writer.drain()

    async with (
        byte_server(serve_many) as port,
        serve(tmp_path, settings_for(f"http://127.0.0.1:{port}", kind="openai")) as served,
    ):
        for _ in range(50):
            assert (await chat(served, "openai/m", stream=True)).text == "Hi"
    assert connections < 10


@pytest.fixture
async def trap() -> AsyncIterator[FakeUpstream]:
    """Run a server that should never be asked anything."""
    async with fake_upstream({}) as trap:
        yield trap
        assert trap.asked == []


@pytest.mark.threat("addresses in bodies and redirects", "502 that names the redirect")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("kind", ["lmstudio", "ollama", "openai"])
async def test_no_redirect_is_followed(tmp_path: Path, trap: FakeUpstream, kind: str, status: int) -> None:
    """Neither prompt nor key goes where an upstream points: it is a 502 that tells what to change."""
    away = says(b"", status=status, headers={"Location": f"{trap.url}/v1/chat/completions"})
    answers = dict.fromkeys((CHAT, "/api/v1/models", "/api/tags", "/v1/models"), away)
    settings = '\napi_key = "file:key"\n'
    (tmp_path / "key").write_text("secret", encoding="utf-8")
    async with (
        fake_upstream(answers) as upstream,
        serve(tmp_path, settings_for(upstream.url, kind=kind) + settings) as served,
    ):
        for stream in (True, False):
            outcome = await chat(served, f"{kind}/m", stream=stream)
            assert outcome.status == 502
            assert "redirects" in outcome.message
            assert trap.url not in outcome.message
        async with served.http.get(f"{served.url}/v1/models") as response:
            assert response.status == 200


async def test_no_proxy_of_the_environment_is_asked(
    tmp_path: Path, trap: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts for a local model do not pass through a company's proxy because a variable is set."""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, trap.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with (
        SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=4096)]) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        assert (await chat(served, "lmstudio/tiny", stream=True)).text


async def test_no_key_of_a_netrc_file_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that is kept for this host for other programs stays where it is."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password canary\n", encoding="utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with fake_upstream({CHAT: says(completion())}) as upstream:
        async with serve(tmp_path, settings_for(upstream.url, kind="openai")) as served:
            await chat(served, "openai/m", stream=False)
        assert "Authorization" not in upstream.asked[0].headers


@pytest.mark.threat("addresses in bodies and redirects", "nothing in a body moves a request or a key")
@pytest.mark.parametrize("stream", [True, False])
async def test_each_key_goes_to_its_own_provider(tmp_path: Path, trap: FakeUpstream, *, stream: bool) -> None:
    """Nothing in a body can send a request, or a key, somewhere else; no provider gets another one's key."""
    answer = streams(chunk({"content": "Hi"}), chunk({}, "stop"), DONE) if stream else says(completion())
    (tmp_path / "a").write_text("key-of-a", encoding="utf-8")
    (tmp_path / "b").write_text("key-of-b", encoding="utf-8")
    async with (
        fake_upstream({CHAT: answer}) as a,
        fake_upstream({CHAT: answer}) as b,
        fake_upstream({CHAT: answer}) as c,
    ):
        providers = "".join(
            f'[[providers]]\nid = "{name}"\nkind = "openai"\nbase_url = "{upstream.url}"\n{key}'
            for name, upstream, key in (
                ("a", a, 'api_key = "file:a"\n'),
                ("b", b, 'api_key = "file:b"\n'),
                ("c", c, ""),
            )
        )
        async with serve(tmp_path, f"[server]\nport = 0\n{providers}") as served:
            routing = {
                "api_base": trap.url,
                "base_url": trap.url,
                "api_key": "stolen",
                "extra_headers": {"Host": "evil.example", "Authorization": "Bearer stolen"},
                "custom_llm_provider": "evil",
                "provider": "b",
                "proxy": trap.url,
            }
            for name in ("a", "b", "c"):
                body = {
                    "model": f"{name}/m",
                    "messages": [{"role": "user", "content": "Hi"}],
                    "stream": stream,
                    **routing,
                }
                headers = {"Authorization": "Bearer of-the-client", "X-Api-Key": "of-the-client", "Cookie": "c=1"}
                async with served.http.post(served.chat_url, json=body, headers=headers) as response:
                    assert response.status == 200
        keys = [[asked.headers.get("Authorization") for asked in upstream.asked] for upstream in (a, b, c)]
        assert keys == [["Bearer key-of-a"], ["Bearer key-of-b"], [None]]
        for upstream in (a, b, c):
            assert "of-the-client" not in str(upstream.asked[0].headers)
            assert "Cookie" not in upstream.asked[0].headers


async def test_cookies_of_an_upstream_are_not_kept(tmp_path: Path) -> None:
    """An upstream cannot mark requests of different people as one."""
    answer = says(completion(), headers={"Set-Cookie": "track=1; Path=/"})
    async with fake_upstream({CHAT: answer}) as upstream:
        async with serve(
            tmp_path, settings_for(upstream.url.replace("127.0.0.1", "localhost"), kind="openai")
        ) as served:
            for _ in range(2):
                assert (await chat(served, "openai/m", stream=False)).text
        assert "Cookie" not in upstream.asked[1].headers


async def test_a_hanging_provider_does_not_hold_up_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat with one provider does not wait for the list of models of one that says nothing."""
    monkeypatch.setattr("elbowroom.server.models.PROBE_SECONDS", 0.3)
    hung = 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hung
        hung += 1
        await reader.read()

    async with fake_upstream({CHAT: says(completion())}) as upstream, byte_server(hang) as port:
        silent = f'[[providers]]\nid = "silent"\nkind = "lmstudio"\nbase_url = "http://127.0.0.1:{port}"\n'
        async with serve(tmp_path, settings_for(upstream.url, kind="openai") + silent) as served:
            async with asyncio.TaskGroup() as group:
                probe = group.create_task(served.http.get(f"{served.url}/health"))
                await until(lambda: hung)
                assert (await asyncio.wait_for(chat(served, "openai/m", stream=False), 5)).text == "Hi"
            assert probe.result().status == 200
            probe.result().release()
