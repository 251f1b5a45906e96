"""Requests that never quite arrive: closed at their deadline, and in nobody's way until then."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from raw_http import RawConnection, connected, request_bytes
from serving import Served, serve, settings_for

from elbowroom.server import app
from elbowroom.server.state import Timing

HURRIED = Timing(idle=0.6, body_pause=0.3, body_total=0.8)
CHAT = b'{"model": "m", "messages": []}'


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """Run elbowroom with short deadlines and no upstream."""
    monkeypatch.setattr(app, "LINGERING_SECONDS", 0.3)
    async with serve(tmp_path, settings_for("http://127.0.0.1:9"), timing=HURRIED) as served:
        yield served


def body_head(served: Served, length: int) -> bytes:
    """Return the head of a request whose body is still to come."""
    headers = (f"Host: 127.0.0.1:{served.port}", "Content-Type: application/json", f"Content-Length: {length}")
    return request_bytes("POST /v1/chat/completions HTTP/1.1", *headers)


async def drip(connection: RawConnection, data: bytes, pause: float) -> None:
    """Send byte after byte until the server has closed."""
    try:
        for at in range(len(data)):
            await connection.send(data[at : at + 1])
            await asyncio.sleep(pause)
    except ConnectionError:
        return


@pytest.mark.slow
@pytest.mark.fault("many idle connections", "first", "closed; `/health` answers")
@pytest.mark.threat("slow requests", "closed; `/health` answers")
async def test_hundreds_of_half_requests_are_closed_and_block_nobody(served: Served) -> None:
    """300 silent, half-headed or half-bodied connections: /health answers meanwhile, and all are closed."""
    beginnings = [
        b"",
        b"G",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX: ",
        body_head(served, 1000),
        body_head(served, 1000) + CHAT,
    ]
    async with AsyncExitStack() as stack:
        half = []
        for number in range(300):
            half.append(await stack.enter_async_context(connected(served.port)))
            await half[-1].send(beginnings[number % len(beginnings)])
        async with served.http.get(f"{served.url}/health") as response:
            assert response.status == 200
        answers = await asyncio.gather(*(connection.closed() for connection in half))
    for number, answer in enumerate(answers):
        if number % len(beginnings) < 3:
            assert answer == b""
        else:
            assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.slow
async def test_a_dripping_head_does_not_win_time(served: Served) -> None:
    """One byte of the head now and then does not move the deadline."""
    endless = b"GET /v1/models HTTP/1.1\r\n" + b"X: y\r\n" * 1000
    async with connected(served.port) as connection:
        dripping = asyncio.create_task(drip(connection, endless, 0.05))
        assert await connection.closed() == b""
        dripping.cancel()


@pytest.mark.slow
async def test_a_dripping_body_does_not_win_time(served: Served) -> None:
    """One byte of the body now and then reaches the total limit, and the client is told."""
    async with connected(served.port) as connection:
        await connection.send(body_head(served, 10_000))
        dripping = asyncio.create_task(drip(connection, b" " * 10_000, 0.05))
        reply = await connection.reply()
        dripping.cancel()
    assert reply.status == 408
    assert "too long" in reply.json["error"]["message"]


@pytest.mark.slow
async def test_a_paused_body_is_told_and_closed(served: Served) -> None:
    """A body that stops half-way gets a 408 in OpenAI's form, then the connection ends."""
    async with connected(served.port) as connection:
        await connection.send(body_head(served, 10_000) + CHAT)
        reply = await connection.reply()
        assert reply.status == 408
        assert reply.all("connection") == ["close"]
        assert reply.json["error"]["type"] == "invalid_request_error"
        assert await connection.closed() == b""


@pytest.mark.slow
async def test_an_idle_connection_is_closed_after_its_answer(served: Served) -> None:
    """Keep-alive is kept, but not for ever; a second half request on it is closed as well."""
    request = request_bytes("GET /v1/none HTTP/1.1", f"Host: 127.0.0.1:{served.port}")
    async with connected(served.port) as connection:
        for _ in range(2):
            await connection.send(request)
            assert (await connection.reply()).status == 404
        await connection.send(request[:20])
        assert await connection.closed() == b""


async def test_a_slow_but_steady_body_is_taken(tmp_path: Path) -> None:
    """A body in pieces, each within its deadline, is answered."""
    settings, unhurried = settings_for("http://127.0.0.1:9"), Timing(idle=60.0, body_pause=30.0, body_total=60.0)
    async with serve(tmp_path, settings, timing=unhurried) as served, connected(served.port) as connection:
        await connection.send(body_head(served, len(CHAT)))
        for at in range(0, len(CHAT), 10):
            await connection.send(CHAT[at : at + 10])
            await asyncio.sleep(0.1)
        assert (await connection.reply()).status == 400  # there are no messages in it


async def test_the_defaults_close_a_half_request_within_half_a_minute() -> None:
    """What is promised to people: head, pause of a body and idling all end within 30 seconds."""
    assert max(Timing().idle, Timing().body_pause) <= 30.0


@pytest.mark.long
async def test_half_requests_are_closed_within_half_a_minute(tmp_path: Path) -> None:
    """500 half requests under the real deadlines: /health answers all the while, and all are closed in 30 seconds."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served, AsyncExitStack() as stack:
        half = [await stack.enter_async_context(connected(served.port)) for _ in range(500)]
        began = time.monotonic()
        for number, connection in enumerate(half):
            await connection.send(body_head(served, 1000) if number % 2 else b"POST / HTTP/1.1\r\nX: ")
        closing = asyncio.gather(*(closed_at(connection) for connection in half))
        while not closing.done():
            asked = time.monotonic()
            async with served.http.get(f"{served.url}/health") as response:
                assert response.status == 200
            assert time.monotonic() - asked < 1
            await asyncio.sleep(0.5)
        assert max(await closing) - began < 30


async def closed_at(connection: RawConnection) -> float:
    """Return when the server closed this connection."""
    await connection.closed(40)
    return time.monotonic()
