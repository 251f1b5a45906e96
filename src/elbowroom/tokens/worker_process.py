"""The worker process as its parent sees it: start it, ask it, end it."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from elbowroom.tokens.template_worker import LENGTH_BYTES

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from asyncio.subprocess import Process

LONGEST_REPLY: Final = 128 * 2**20
BUFFERED: Final = 2**20
"""Bytes of a reply that are taken in one go."""
ENVIRONMENT: Final = (
    "PATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "SYSTEMROOT",
    "TEMP",
)
"""What the worker sees of this process's environment: enough to start Python, no tokens and keys."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerProcess:
    """A running worker. Whoever gives up in the middle of `ask` has to `kill` it: its reply would still come."""

    process: Process
    orders: StreamWriter
    replies: StreamReader

    @classmethod
    async def start(cls, memory: int) -> Self:
        """Start a worker that may take so many bytes of memory; `ready` tells when it can be asked."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "elbowroom.tokens.template_worker", str(memory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=BUFFERED,
            env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        )
        if process.stdin is None or process.stdout is None:
            raise OSError("it has no pipes")
        return cls(process, process.stdin, process.stdout)

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.process.returncode is None

    async def ready(self) -> None:
        """Wait until the worker has loaded what it needs. Raises `EOFError` when it ends instead."""
        await self._read_frame()

    async def ask(self, order: bytes) -> bytes:
        """Send an order and return the reply. Raises `OSError`, `EOFError` or `ValueError` when the worker breaks."""
        self.orders.write(len(order).to_bytes(LENGTH_BYTES, "big") + order)
        await self.orders.drain()
        return await self._read_frame()

    async def end(self, patience: float = 2.0) -> None:
        """Let the worker end by itself, and kill it when it doesn't."""
        self.orders.close()
        try:
            async with asyncio.timeout(patience):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End the worker at once."""
        if self.is_running:
            self.process.kill()
        await self.process.wait()

    async def _read_frame(self) -> bytes:
        length = int.from_bytes(await self.replies.readexactly(LENGTH_BYTES), "big")
        if length > LONGEST_REPLY:
            raise ValueError(f"a reply of {length} bytes")
        return await self.replies.readexactly(length)
