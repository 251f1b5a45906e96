"""Rounds of SIGKILL: many chats at once under full CPU load, and which of the words they received are in the file."""

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from command_line import PATIENCE, running
from serving import settings_for
from soak_words import Kept, Lost, Received

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel

MODEL = "soak-model"
BUSY = "while True: pass"
WORDS = 3000


@dataclass(frozen=True, slots=True)
class Round:
    """What one round has found: how many words were received, and which of them are missing."""

    received: int
    lost: Lost


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Let so many other programs use all the CPU that they get."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


async def kill_rounds(
    folder: Path, count: int, *, chats: int, may_take: float, seed: int, is_fresh: bool = False
) -> list[Round]:
    """Kill the program again and again while chats are answered, each time on the same data, or on a new store."""
    rng, said = random.Random(seed), iter(range(10**9))

    def words(_: object) -> Script:
        number = next(said)
        return Script("".join(f"w{number}.{place} " for place in range(WORDS)))

    model = SimulatedModel(MODEL, loaded_context_length=100_000, max_context_length=100_000, parallel=chats)
    async with SimulatedLMStudio([model], on_request=words, tokens_per_second=30) as studio:
        settings = folder / "settings.toml"
        settings.write_text(settings_for(studio.base_url), encoding="utf-8")
        data, rounds = folder / "data", []
        kept = Kept(data / "elbowroom.db")
        for number in range(count):
            if is_fresh:
                data = folder / f"data {number}"
                kept = Kept(data / "elbowroom.db")
            rounds.append(await _round(folder, data, kept, number, chats, may_take, rng))
            studio.requests.clear()
        return rounds


async def _round(
    folder: Path, data: Path, kept: Kept, number: int, chats: int, may_take: float, rng: random.Random
) -> Round:
    variables = {"ELBOWROOM_DATA_DIR": str(data)}
    command = ("serve", "--config", str(folder / "settings.toml"))
    received = Received()
    async with running(folder, *command, variables=variables, is_fresh=True) as program:
        address = await program.address()
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
            talking = [
                asyncio.create_task(_talk(http, address, f"chat {chat}", f"{number}", received))
                for chat in range(chats)
            ]
            await _first_words(received)
            await asyncio.sleep(rng.uniform(0.2, 4.0))
            program.process.send_signal(signal.SIGKILL)
            killed = time.monotonic()
            await program.ended()
            await asyncio.gather(*talking, return_exceptions=True)
    return Round(received.count, kept.missing(received.times, killed, may_take))


async def _first_words(received: Received) -> None:
    async with asyncio.timeout(PATIENCE):
        while not received.times:  # noqa: ASYNC110  # words know no events
            await asyncio.sleep(0.01)


async def _talk(http: aiohttp.ClientSession, address: str, name: str, question: str, received: Received) -> None:
    body = {"model": f"lmstudio/{MODEL}", "messages": [{"role": "user", "content": question}], "stream": True}
    said, noted = "", 0
    headers = {"X-Conversation-Id": name}
    async with http.post(f"{address}/v1/chat/completions", json=body, headers=headers) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    said += choice["delta"].get("content") or ""
                noted = received.note(said, noted)
