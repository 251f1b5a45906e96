"""Bodies that are too large, dripping, packed or broken."""

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_upstream import completion, fake_upstream, says
from raw_http import RawReply, ask, connected, request_bytes
from serving import Served, serve, settings_for

from elbowroom.server.request import MAX_BODY_BYTES

CHAT = b'{"model": "openai/m", "messages": [{"role": "user", "content": "Hi"}]}'


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom in front of a generic upstream that answers every chat."""
    async with (
        fake_upstream({"/v1/chat/completions": says(completion())}) as upstream,
        serve(tmp_path, settings_for(upstream.url, kind="openai")) as served,
    ):
        yield served


def head(served: Served, *headers: str) -> bytes:
    """Return the head of a chat request."""
    fixed = (f"Host: 127.0.0.1:{served.port}", "Content-Type: application/json")
    return request_bytes("POST /v1/chat/completions HTTP/1.1", *fixed, *headers)


@pytest.mark.threat("body bombs", "413 at once")
async def test_a_declared_giant_is_refused_at_once(served: Served) -> None:
    """Ten gigabytes in the Content-Length are a 413 before the first byte of them."""
    async with connected(served.port) as connection:
        await connection.send(head(served, "Content-Length: 10000000000"))
        reply = await connection.reply()
    assert reply.status == 413
    assert "64 MiB" in reply.json["error"]["message"]


async def test_an_undeclared_giant_is_refused_at_the_limit(served: Served) -> None:
    """A chunked body that says nothing of its length is cut off when it passes the limit, not held whole."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 2**20 + 1):
            yield b" " * 2**20

    headers = {"Content-Type": "application/json"}
    async with served.http.post(served.chat_url, data=endless(), headers=headers) as response:
        assert response.status == 413


@pytest.mark.slow
async def test_a_body_just_below_the_limit_is_taken(served: Served) -> None:
    """White space up to the limit is JSON all the same."""
    body = CHAT + b" " * (MAX_BODY_BYTES - len(CHAT))
    headers = {"Content-Type": "application/json"}
    async with served.http.post(served.chat_url, data=io.BytesIO(body), headers=headers) as response:
        assert response.status == 200
    async with served.http.post(served.chat_url, data=io.BytesIO(body + b" "), headers=headers) as response:
        assert response.status == 413


async def test_megabytes_of_images_arrive_whole(tmp_path: Path) -> None:
    """A request with a large image in it goes upstream byte for byte, with its length in front."""
    url = "data:image/png;base64," + "A" * (5 * 2**20)
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    async with (
        fake_upstream({"/v1/chat/completions": says(completion())}) as upstream,
        serve(tmp_path, settings_for(upstream.url, kind="openai")) as served,
    ):
        body = io.BytesIO(json.dumps({"model": "openai/m", "messages": messages}).encode())
        headers = {"Content-Type": "application/json"}
        async with served.http.post(served.chat_url, data=body, headers=headers) as response:
            assert response.status == 200
        assert upstream.asked[-1].json["messages"] == messages
        assert upstream.asked[-1].headers["Content-Length"] == str(len(upstream.asked[-1].raw))


async def test_a_body_in_chunks_of_one_byte_is_taken(served: Served) -> None:
    """Two hundred thousand chunks of one byte each are read in one go and answered."""
    body = CHAT + b" " * (200_000 - len(CHAT))
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with connected(served.port) as connection:
        await connection.send(head(served, "Transfer-Encoding: chunked") + chunks)
        assert (await connection.reply()).status == 200


async def test_packed_bytes_without_a_word_are_no_json(served: Served) -> None:
    """A gzip body that does not say so is not opened either."""
    body = gzip.compress(CHAT)
    reply = await ask(served.port, head(served, f"Content-Length: {len(body)}") + body)
    assert reply.status == 400


@pytest.mark.threat("body bombs", "400 and closed")
async def test_a_hundred_thousand_headers_are_refused(served: Served) -> None:
    """A head that never ends is answered with 400 and closed, not kept in memory."""
    async with connected(served.port) as connection:
        many = b"".join(b"X-%d: y\r\n" % number for number in range(100_000))
        await connection.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n")
        try:
            await connection.send(many)
        except ConnectionError:
            return
        assert (await connection.closed()).split()[1] == b"400"


@pytest.mark.parametrize(
    "request_line_and_headers",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v1/models\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/models HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nBad Name: x\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused(served: Served, request_line_and_headers: bytes) -> None:
    """Overlong, ambiguous and foreign heads get a 4xx that shows nothing of the program, and the server goes on."""
    async with connected(served.port) as connection:
        await connection.send(request_line_and_headers)
        answer = await connection.closed()
    assert answer.startswith(b"HTTP/")
    assert answer.split()[1].startswith(b"4")
    assert b"Traceback" not in answer
    async with served.http.get(f"{served.url}/health") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "chunks", [b"ZZ\r\nxx\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n", b"-1\r\n", b"FFFFFFFFFFFFFFFFFF\r\nx"]
)
async def test_broken_chunks_are_the_clients_fault(
    served: Served, chunks: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A chunked body that breaks its own rules is a 400, not a mistake of elbowroom's with a traceback in the log."""
    async with connected(served.port) as connection:
        await connection.send(head(served, "Transfer-Encoding: chunked") + chunks)
        assert (await connection.reply()).status == 400
    assert "unexpected" not in caplog.text.lower()


async def test_a_body_that_ends_early_is_forgotten(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A client that promises more than it sends and leaves does no harm."""
    async with connected(served.port) as connection:
        await connection.send(head(served, "Content-Length: 1000") + CHAT)
    await asyncio.sleep(0.1)
    async with served.http.post(served.chat_url, json=json.loads(CHAT)) as response:
        assert response.status == 200
    assert "unexpected" not in caplog.text.lower()


async def test_requests_in_a_row_on_one_connection_do_not_mix(served: Served) -> None:
    """A refused request whose body comes later does not turn that body into the next request."""
    smuggled = request_bytes("GET /v1/models HTTP/1.1", f"Host: 127.0.0.1:{served.port}")
    async with connected(served.port) as connection:
        await connection.send(head(served, "Origin: https://evil.example", f"Content-Length: {len(smuggled)}"))
        first: RawReply = await connection.reply()
        await connection.send(smuggled)
        await connection.send(request_bytes("GET /v1/none HTTP/1.1", f"Host: 127.0.0.1:{served.port}"))
        second = await connection.reply()
    assert (first.status, second.status) == (403, 404)
