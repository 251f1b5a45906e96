"""The bench's HTTP client. It shares a core with the upstream, so it only keeps what arrives, and when."""

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, Self

HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Exchange:
    """One request and the bytes that came back, each read with its arrival time in seconds."""

    sent_at: float = 0.0
    reads: list[tuple[float, bytes]] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """One keep-alive connection that carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._exchange = Exchange()
        self._ended: asyncio.Future[None] | None = None
        self._head = b""
        self._missing = -1  # bytes of the body that are still to come; below 0: not known beforehand
        self._tail = b""

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a server on this machine."""
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    @property
    def is_closed(self) -> bool:
        """Tell whether no further request can be sent here."""
        return self._transport.is_closing()

    async def send(self, request: bytes) -> Exchange:
        """Send one whole request; return when its answer has ended or the server has hung up."""
        self._ended = asyncio.get_running_loop().create_future()
        self._exchange, self._head, self._missing, self._tail = Exchange(), b"", -1, b""
        self._exchange.sent_at = time.perf_counter()
        self._transport.write(request)
        await self._ended
        return self._exchange

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        self._exchange.reads.append((time.perf_counter(), data))
        if self._missing > 0:
            self._missing -= len(data)
        elif HEAD_END not in self._head:
            self._head += data
            head, found, body = self._head.partition(HEAD_END)
            if found and (length := LENGTH.search(head)):
                self._missing = int(length[1]) - len(body)
        self._tail = (self._tail + data)[-7:]
        if self._missing == 0 or (self._missing < 0 and self._tail == b"\r\n0\r\n\r\n"):
            self._end()

    def _end(self) -> None:
        if self._ended and not self._ended.done():
            self._ended.set_result(None)


def post(port: int, path: str, body: bytes) -> bytes:
    """Return the bytes of a POST request with a JSON body."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def get(port: int, path: str) -> bytes:
    """Return the bytes of a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()


async def get_json(port: int, path: str) -> Any:
    """Fetch one JSON document from a server on this machine."""
    connection = await Connection.open(port)
    exchange = await connection.send(get(port, path))
    connection.close()
    return json.loads(b"".join(data for _, data in exchange.reads).partition(HEAD_END)[2])
