"""Compressed bodies: each coding on each route, bombs, broken ones, and those that nobody opens."""

import gzip
import json
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import brotli
import pytest
from fake_upstream import FakeUpstream, completion, fake_upstream, says
from hypothesis import given
from hypothesis import strategies as st
from raw_http import RawReply, ask, request_bytes
from serving import Served, serve, settings_for

from elbowroom.errors import BodyTooLarge, RequestError
from elbowroom.server.request import MAX_BODY_BYTES
from elbowroom.server.request.decoding import opened

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def bare_deflate(body: bytes) -> bytes:
    """Return what some clients send as `deflate`: without the head of zlib's form."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKERS: Final[dict[str, tuple[str, Callable[[bytes], bytes]]]] = {
    "gzip": ("gzip", gzip.compress),
    "capitals": ("GZIP", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare_deflate),
    "br": ("br", partial(brotli.compress, quality=1)),
    "zstd": ("zstd", zstd.compress),
}
CHAT: Final = {"model": "openai/m", "messages": [{"role": "user", "content": "Hi, with an ü"}]}
VECTORS: Final = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "model": "m"}
ROUTES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "/v1/chat/completions": (CHAT, "/v1/chat/completions"),
    "/v1/responses": ({"model": "openai/m", "input": "Hi, with an ü"}, "/v1/chat/completions"),
    "/v1/messages": ({**CHAT, "max_tokens": 9}, "/v1/chat/completions"),
    "/v1/embeddings": ({"model": "openai/m", "input": "Hi, with an ü"}, "/v1/embeddings"),
}


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    """Run a generic upstream that answers chats and makes embeddings."""
    answers = {"/v1/chat/completions": says(completion()), "/v1/embeddings": says(VECTORS)}
    async with fake_upstream(answers) as running:
        yield running


@pytest.fixture
async def served(tmp_path: Path, upstream: FakeUpstream) -> AsyncIterator[Served]:
    """Run elbowroom in front of it."""
    async with serve(tmp_path, settings_for(upstream.url, kind="openai")) as running:
        yield running


async def post(served: Served, coding: str, body: bytes, path: str = "/v1/chat/completions") -> RawReply:
    """Send a body that says to be compressed in this way."""
    fixed = (f"Host: 127.0.0.1:{served.port}", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return await ask(served.port, request_bytes(f"POST {path} HTTP/1.1", *fixed, f"Content-Encoding: {coding}") + body)


@pytest.mark.parametrize("path", ROUTES)
async def test_a_compressed_body_is_answered_like_a_plain_one(
    served: Served, upstream: FakeUpstream, path: str
) -> None:
    """Each coding opens on each route, and the upstream is sent plain JSON."""
    body, above = ROUTES[path]
    for coding, pack in PACKERS.values():
        before = len(upstream.asked_at(above))
        reply = await post(served, coding, pack(json.dumps(body).encode()), path)
        assert reply.status == 200, reply.json
        [asked] = upstream.asked_at(above)[before:]
        assert "with an ü" in json.dumps(asked.json, ensure_ascii=False)
        assert "Content-Encoding" not in asked.headers


@pytest.mark.threat("body bombs", "413 at once")
@pytest.mark.parametrize("kind", ["gzip", "deflate", "br", "zstd"])
async def test_a_bomb_is_refused_when_it_passes_the_limit(served: Served, kind: str) -> None:
    """What would be half a gigabyte when opened is a 413, and no more than the limit of it is ever opened."""
    coding, pack = PACKERS[kind]
    reply = await post(served, coding, pack(bytes(MAX_BODY_BYTES + 1)))
    assert reply.status == 413
    assert "64 MiB" in reply.json["error"]["message"]


@pytest.mark.parametrize("kind", PACKERS)
def test_no_more_than_the_limit_is_opened(kind: str) -> None:
    """A body of just the limit opens whole, a byte more is refused, and little more than the limit is ever made."""
    coding, pack = PACKERS[kind]
    coding = coding.lower()
    assert opened(coding, pack(b"x" * 300_000), 300_000) == b"x" * 300_000
    with pytest.raises(BodyTooLarge):
        opened(coding, pack(b"x" * 300_001), 300_000)


@pytest.mark.parametrize("kind", PACKERS)
@given(body=st.binary(max_size=300), cut=st.integers(1, 400), flip=st.integers(0, 10_000))
def test_broken_bodies_are_refused_and_whole_ones_come_back(kind: str, body: bytes, cut: int, flip: int) -> None:
    """A body cut short or with more after it is refused in words; a wrong bit gives at most other bytes."""
    coding, pack = PACKERS[kind]
    coding, packed = coding.lower(), pack(body)
    assert opened(coding, packed, 300) == body
    for broken in (packed[: max(0, len(packed) - cut)], packed + b"more"):
        with pytest.raises(RequestError, match="cut short"):
            opened(coding, broken, 300)
    wrong = bytearray(packed)
    wrong[flip % len(wrong)] ^= 1 << flip % 8
    with suppress(RequestError, BodyTooLarge):
        assert len(opened(coding, wrong, 300)) <= 300


@pytest.mark.parametrize("kind", ["gzip", "br", "zstd"])
def test_large_bodies_open_whole(kind: str) -> None:
    """Megabytes that hardly shrink, in many pieces, come back byte for byte."""
    coding, pack = PACKERS[kind]
    body = b"".join(zlib.crc32(b"%d" % number).to_bytes(4) for number in range(500_000))
    assert opened(coding, pack(body), MAX_BODY_BYTES) == body


@pytest.mark.threat("body bombs", "no large window")
def test_a_window_of_zstd_beyond_eight_mebibytes_is_refused() -> None:
    """A frame cannot make the decoder keep a window of 128 MiB."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    packed = packer.compress(b"x" * 100) + packer.flush()
    with pytest.raises(RequestError):
        opened("zstd", packed, MAX_BODY_BYTES)
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 23})
    assert opened("zstd", packer.compress(b"x" * 100) + packer.flush(), MAX_BODY_BYTES) == b"x" * 100


@pytest.mark.threat("body bombs", "415 unopened")
@pytest.mark.parametrize("coding", ["gzip, gzip", "identity, gzip", "gzip\r\nContent-Encoding: br", "compress", "x"])
async def test_what_is_packed_otherwise_is_refused_unopened(served: Served, coding: str) -> None:
    """An unknown coding, and several on top of each other, are a 415 that tells what is taken."""
    reply = await post(served, coding, gzip.compress(gzip.compress(bytes(2**20))))
    assert reply.status == 415
    assert reply.all("accept-encoding") == ["gzip, deflate, br, zstd"]
    assert "gzip, deflate, br or zstd" in reply.json["error"]["message"]


async def test_a_broken_body_is_a_400(served: Served) -> None:
    """Plain JSON that claims to be compressed is refused with a sentence."""
    reply = await post(served, "zstd", json.dumps(CHAT).encode())
    assert reply.status == 400
    assert "cannot be opened as zstd" in reply.json["error"]["message"]
