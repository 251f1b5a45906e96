"""A relay in front of a PostgreSQL server that cuts a connection at a message of choice, or hands answers on late."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

PIECE = 2**16
QUIET_SECONDS = 0.02
"""After so long without a byte the server has answered."""


@dataclass
class CuttingRelay:
    """Cuts the connection that brings the message with the number `cut_at`, counted from 1 over all connections.

    It does so `before` the server has the message, or `after` the server has answered it, which nobody gets to know.
    With `late` every answer takes so many seconds more; while `answers` is not set, none comes. `port` is where it
    listens.
    """

    server_port: int
    cut_at: int = 0
    when: Literal["before", "after"] = "before"
    late: float = 0.0
    port: int = 0
    messages: int = 0
    cuts: int = 0
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what comes on a connection."""
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            writer.close()
            return
        answering = asyncio.create_task(self._answer(server_reader, writer))
        try:
            await self._ask(reader, server_reader, server_writer, answering)
        finally:
            answering.cancel()
            for end in (writer, server_writer):
                end.transport.abort()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
        answering: "asyncio.Task[None]",
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(PIECE):
                self.messages += 1
                is_cut = self.messages == self.cut_at
                if is_cut:
                    self.cuts += 1
                    if self.when == "before":
                        return
                    answering.cancel()
                    await asyncio.wait([answering])
                server_writer.write(piece)
                await server_writer.drain()
                if is_cut:
                    await _has_answered(server_reader)
                    return

    async def _answer(self, server_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await server_reader.read(PIECE):
                if self.late:
                    await asyncio.sleep(self.late)
                await self.answers.wait()
                writer.write(piece)
                await writer.drain()
            writer.close()


async def _has_answered(server_reader: asyncio.StreamReader) -> None:
    """Wait until the server has answered, and says no more."""
    patience = 5.0
    with suppress(TimeoutError, OSError):
        while await asyncio.wait_for(server_reader.read(PIECE), patience):
            patience = QUIET_SECONDS


@asynccontextmanager
async def relayed(relay: CuttingRelay) -> AsyncIterator[CuttingRelay]:
    """Run a relay on a port of this machine."""
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
