"""Reads the messages of an MCP program, each a line of JSON, within a limit and without joining them piece by piece.

The library's own reader copies all of a line again for every 64 KiB that come: a line of 45 MB held the event loop for
some twenty seconds.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, Self

import anyio
import msgspec
from mcp.client import stdio
from mcp.types import INVALID_REQUEST

from elbowroom.agents.tools.mcp.convert import MOST_TOOLS

LARGEST_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of one message; what is larger is dropped, and the call that it answers fails."""
MOST_DROPPED: Final = 256 * 1024 * 1024
"""Bytes of one message after which the connection ends: the message may have no end."""
LARGE: Final = 256 * 1024
"""Bytes from which on a message is looked at in a thread: the library reads one on the event loop."""
END_KEPT: Final = 512
"""Bytes of the end of a dropped message, where its id may stand."""
ID_AT_THE_BEGINNING: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*,')
ID_AT_THE_END: Final = re.compile(rb',\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
END_CONNECTION: Final[ContextVar[Callable[[], None]]] = ContextVar("END_CONNECTION")
"""What ends the connection to the program that the tasks of this context read."""


def read_whole_lines(end_connection: Callable[[], None]) -> None:
    """Let the library read the output of the program that the current task starts next with `WholeLines`."""
    END_CONNECTION.set(end_connection)
    stdio.TextReceiveStream = WholeLines  # type: ignore[attr-defined,assignment]


class WholeLines:
    """The lines that a stream of bytes brings, as texts; an answer that is too large becomes an error with its id."""

    def __init__(self, stream: Any, encoding: str = "utf-8", errors: str = "strict") -> None:
        self._stream = stream
        self._encoding = encoding
        self._errors = errors
        self._line = bytearray()
        self._dropped = 0
        self._is_answered = False
        self._ready: list[str] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Return the lines that came together, each with its end."""
        while not self._ready:
            if self._dropped > MOST_DROPPED:
                END_CONNECTION.get()()
                raise StopAsyncIteration
            try:
                piece = await self._stream.receive()
            except anyio.EndOfStream:
                raise StopAsyncIteration from None
            self._ready += self._lines(piece)
        lines, self._ready = self._ready, []
        return "".join([await self._bounded(line) for line in lines])

    async def _bounded(self, line: str) -> str:
        if len(line) <= LARGE:
            return line
        return (await without_more_tools(line.encode("utf-8", "surrogatepass"))).decode("utf-8", "surrogatepass")

    def _lines(self, piece: bytes) -> Iterator[str]:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield from self._grown(end)
            yield from self._ended()
        yield from self._grown(rest)

    def _grown(self, piece: bytes) -> Iterator[str]:
        """Add a piece to the line; yield the error where it becomes too large and begins with its id."""
        self._line += piece
        if self._dropped:
            self._dropped += len(piece)
        elif len(self._line) > LARGEST_MESSAGE:
            self._dropped = len(self._line)
            yield from self._refused(ID_AT_THE_BEGINNING.match(self._line))
        if self._dropped:
            del self._line[:-END_KEPT]

    def _ended(self) -> Iterator[str]:
        """Yield the line, or the error where it was dropped and ends with its id."""
        if not self._dropped:
            yield f"{self._line.decode(self._encoding, self._errors)}\n"
        elif not self._is_answered:
            yield from self._refused(ID_AT_THE_END.search(self._line))
        self._line.clear()
        self._dropped, self._is_answered = 0, False

    def _refused(self, found: re.Match[bytes] | None) -> Iterator[str]:
        if found is not None:
            self._is_answered = True
            yield refusal(int(found[1])) + "\n"


async def without_more_tools(message: bytes) -> bytes:
    """Return a message of JSON; of a list of tools only those that are taken, and one more, by which more are seen.

    Whatever is no such list stays as it is.
    """
    return await asyncio.to_thread(_shortened, message) if len(message) > LARGE and b'"tools"' in message else message


def _shortened(message: bytes) -> bytes:
    try:
        match answer := msgspec.json.decode(message):
            case {"result": {"tools": list(tools)}} if len(tools) > MOST_TOOLS + 1:
                del tools[MOST_TOOLS + 1 :]
                return msgspec.json.encode(answer) + message[len(message.rstrip()) :]
    except (ValueError, RecursionError):  # the library says what is wrong with it
        pass
    return message


def refusal(call: int | str) -> str:
    """Return the error that stands for the answer to a call where that is too large."""
    size = f"{LARGEST_MESSAGE // (1024 * 1024)} MB"
    why = f"The result was larger than {size} and was refused. Ask for less at once, such as a part of it."
    return json.dumps({"jsonrpc": "2.0", "id": call, "error": {"code": INVALID_REQUEST, "message": why}})
