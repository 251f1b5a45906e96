"""A stream that is read while it comes, status by status."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from serving import Served

PATIENCE = 30.0


class WatchedStream:
    """One streamed answer; `received` is all of it so far."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.received = b""
        self._response = response

    async def next_status(self) -> dict[str, Any]:
        """Read on to the next chunk that carries a status; fails where the stream ends before."""
        async with asyncio.timeout(PATIENCE):
            async for line in self._response.content:
                self.received += line
                if line.startswith(b"data: {") and "event" in (chunk := json.loads(line[6:])):
                    assert isinstance(chunk, dict)
                    return chunk
        raise AssertionError("the stream ended without another status")

    async def until(self, words: str) -> None:
        """Read on to a line with these words, a comment or a frame."""
        async with asyncio.timeout(PATIENCE):
            async for line in self._response.content:
                self.received += line
                if words.encode() in line:
                    return
        raise AssertionError(f"the stream ended without {words!r}")

    async def rest(self) -> bytes:
        """Read to the end and return the whole stream."""
        async with asyncio.timeout(PATIENCE):
            self.received += await self._response.read()
        return self.received


@asynccontextmanager
async def watched(served: Served, body: Mapping[str, Any], **headers: str) -> AsyncIterator[WatchedStream]:
    """Ask for a stream and read it as it comes; at the end of the block the client leaves."""
    async with served.http.post(served.chat_url, json={**body, "stream": True}, headers=headers) as response:
        assert response.status == 200, await response.text()
        yield WatchedStream(response)


def statuses_of(stream: bytes) -> list[dict[str, Any]]:
    """Return what the statuses of a stream say, whether or not it ended well."""
    lines = [line[6:] for line in stream.decode().split("\n") if line.startswith("data: {")]
    return [chunk["event"]["data"] for line in lines if "event" in (chunk := json.loads(line))]
