"""Simulated LM Studios in processes of their own, which are killed and started again on the same port."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from command_line import PATIENCE
from processes import free_port


class Studio:
    """A simulated LM Studio in a process, with a port and a journal that outlive it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = free_port()
        self.journal = folder / f"{name}.jsonl"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        program = Path(__file__).with_name("studio_process.py")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(program), str(self.port), self.name, str(self.journal)),
            env={"PYTHONPATH": ":".join(part for part in sys.path if part)},
        )
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                assert self._process.returncode is None
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Kill it, where it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return the journal's lines of one kind; the last one may have been cut by a kill."""
        found = []
        for line in self.journal.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [line for line in found if kind in line]


@asynccontextmanager
async def studios(folder: Path, count: int) -> AsyncIterator[list[Studio]]:
    """Run so many LM Studios; the words of each begin with a letter of its own."""
    running = [Studio(chr(ord("a") + number), folder) for number in range(count)]
    try:
        await asyncio.gather(*(studio.start() for studio in running))
        yield running
    finally:
        await asyncio.gather(*(studio.kill() for studio in running))
