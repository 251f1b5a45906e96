"""HTTP written byte by byte, for what no client library sends, and read back just as plainly."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class RawReply:
    """A response; `headers` are (lower-case name, value) pairs in the order in which they came."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


class RawConnection:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send these bytes now, as a packet of their own as far as the system allows."""
        self._writer.write(data)
        await self._writer.drain()

    async def reply(self) -> RawReply:
        """Return the next response that names its length; raises IncompleteReadError where none comes."""
        async with asyncio.timeout(PATIENCE):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            pairs = [line.partition(":") for line in lines]
            headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
            length = int(dict(headers).get("content-length", "0"))
            return RawReply(int(first.split()[1]), headers, await self._reader.readexactly(length))

    async def closed(self) -> bytes:
        """Wait until the server closes, and return what it sent before."""
        async with asyncio.timeout(PATIENCE):
            received = b""
            with suppress(ConnectionResetError):
                while part := await self._reader.read(65536):
                    received += part
            return received


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[RawConnection]:
    """Connect to 127.0.0.1 and close at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ask(port: int, request: bytes) -> RawReply:
    """Send a request on a connection of its own and return the response."""
    async with connected(port) as connection:
        await connection.send(request)
        return await connection.reply()


def request_bytes(line: str, *headers: str, body: bytes = b"") -> bytes:
    """Return a request of this request line and these header lines, to which nothing is added but the blank line."""
    head = "\r\n".join([line, *headers, "", ""])
    return head.encode("utf-8", "surrogateescape") + body
