"""How fast a server listens after the start of its process, and how much memory it holds then and later."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from load import Load
from servers import Rig, Server
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


async def start(name: str, rig: Rig, idle: float) -> Start:
    """Start a server, leave it alone for `idle` seconds, chat with it, and end it."""
    with rig.running(name) as program:
        seconds = program.wait_until_healthy()
        listening = program.rss()
        await asyncio.sleep(idle)
        rested = program.rss()
        chats = await visit(CHATS, Server(name, program), rig.upstream, "start")
        return Start(name, seconds, listening, rested, program.rss(), chats.broken)


async def starts(names: Sequence[str], rig: Rig, idle: float, count: int, rng: random.Random) -> list[Start]:
    """Start every server `count` times, in shuffled rounds."""
    return [await start(name, rig, idle) for _ in range(count) for name in rng.sample(list(names), k=len(names))]
