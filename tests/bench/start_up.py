"""How fast a server listens after the start of its process, and how much memory it holds then and later."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from load import Load
from processes import Command, Cores, Program
from servers import Server, model_of
from upstream import Reply
from visit import visit

CHATS = Load("chats", "request", streams=1, requests=20, reply=Reply(tokens=50))


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds to the first 200 of /health; MiB resident then, later idle, and after chats."""

    server: str
    seconds: float
    rss_listening: float
    rss_idle: float
    rss_after_chats: float
    broken: tuple[str, ...]


async def start(
    name: str, command: Command, upstream: Program, cores: Cores, folder: Path, idle: float
) -> Start:
    """Start a server, leave it alone for `idle` seconds, chat with it, and end it."""
    with command.running(cores.server, cores, folder / f"start-{name}.log") as program:
        seconds = program.wait_until_healthy()
        listening = program.rss()
        await asyncio.sleep(idle)
        rested = program.rss()
        chats = await visit(CHATS, Server(name, model_of(name), program), upstream, "start")
        return Start(name, seconds, listening, rested, program.rss(), chats.broken)


async def starts(
    commands: Mapping[str, Command],
    upstream: Program,
    cores: Cores,
    folder: Path,
    idle: float,
    count: int,
    rng: random.Random,
) -> list[Start]:
    """Start every command `count` times, in shuffled rounds."""
    return [
        await start(name, commands[name], upstream, cores, folder, idle)
        for _ in range(count)
        for name in rng.sample(sorted(commands), k=len(commands))
    ]
