"""How fast a server listens after the start of its process, and how much memory it holds then and later."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from load import Load
from servers import Checkout, Rig, Server
from upstream import Reply
from visit import visit

LOAD_TOKENIZER = """
import psutil
from elbowroom.tokens.families import family_of
from elbowroom.tokens.families.counter import FamilyCounter
process = psutil.Process()
before = process.memory_info().rss
FamilyCounter(family_of("bench-model")).count_text("Hello")
print((process.memory_info().rss - before) / 2**20)
"""
CHATS = Load("chats", "request", streams=1, requests=20, reply=Reply(tokens=50))


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds to the first 200 of /health; MiB resident then, later idle, and after chats.

    `tokenizer` is what the tokenizer that counts for these chats takes of that by itself.
    """

    server: str
    seconds: float
    rss_listening: float
    rss_idle: float
    rss_after_chats: float
    tokenizer: float
    broken: tuple[str, ...]


def tokenizer_mib(checkout: Checkout) -> float:
    """Return by how much a process grows that loads the tokenizer of a model of unknown family, in MiB."""
    return float(checkout.evaluate("import start_up; exec(start_up.LOAD_TOKENIZER)"))


async def start(name: str, rig: Rig, idle: float, tokenizer: float) -> Start:
    """Start a server, leave it alone for `idle` seconds, chat with it, and end it."""
    with rig.running(name) as program:
        seconds = program.wait_until_healthy()
        listening = program.rss()
        await asyncio.sleep(idle)
        rested = program.rss()
        chats = await visit(CHATS, Server(name, program), rig.upstream, "start")
        return Start(name, seconds, listening, rested, program.rss(), tokenizer, chats.broken)


async def starts(names: Sequence[str], rig: Rig, idle: float, count: int, rng: random.Random) -> list[Start]:
    """Start every server `count` times, in shuffled rounds."""
    mib = {name: await asyncio.to_thread(tokenizer_mib, checkout) for name, checkout in rig.checkouts.items()}
    own = {name: 0.0 if name == "control" else mib.get(name, mib["elbowroom"]) for name in names}
    order = [name for _ in range(count) for name in rng.sample(list(names), k=len(names))]
    return [await start(name, rig, idle, own[name]) for name in order]
