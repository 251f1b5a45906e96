"""How a server's memory grows: many short chats that all go on, in a server that nothing else has asked."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from aged import ANSWERED, REPLY, Visitor, until_idle
from load import Load
from past import SYSTEM, YEAR
from processes import Program
from servers import GROWING, Rig, Server
from upstream import FILE_MODEL
from visit import send_in_turn, sort_out

CHATS, TURNS = 1_000, 10
QUICK_CHATS, QUICK_TURNS = 20, 2
STREAMS = 4
SETTLE = 2.0  # seconds until what is given back late is given back


@dataclass(frozen=True, slots=True)
class Growth:
    """MiB resident after the first request of every chat, and after the last."""

    server: str
    first: float
    last: float
    broken: tuple[str, ...] = ()


async def growths(names: Sequence[str], rig: Rig, rng: random.Random, *, quick: bool) -> list[Growth]:
    """Measure each checkout's elbowroom of these names, one after another in shuffled order."""
    sizes = (QUICK_CHATS, QUICK_TURNS) if quick else (CHATS, TURNS)
    chosen = [name for name in rig.checkouts if name in names]
    return [await growth(name, rig, *sizes) for name in rng.sample(chosen, k=len(chosen))]


async def growth(name: str, rig: Rig, chats: int, turns: int) -> Growth:
    """Begin all chats, and then go on with all of them again and again."""
    with rig.running(f"{name}{GROWING}") as program:
        program.wait_until_healthy()
        sizes, broken = list[float](), list[str]()
        for turn in range(turns):
            broken += await one_turn(Server(name, program), turn, chats)
            if turn in (0, turns - 1):
                sizes.append(await settled_rss(program))
        return Growth(name, sizes[0], sizes[-1], tuple(broken))


async def one_turn(server: Server, turn: int, chats: int) -> list[str]:
    """Ask the next question in every chat; return what was wrong with answers."""
    visitor = Visitor(f"lmstudio/{FILE_MODEL}", "growth", chats, YEAR)
    bodies = [request(visitor, number, turn) for number in range(chats)]
    shares = [bodies[stream::STREAMS] for stream in range(STREAMS)]
    answers = await asyncio.gather(*(send_in_turn(server.program.port, share, 0.0) for share in shares))
    exchanges = [exchange for share in answers for exchange in share]
    return sort_out(Load("growth", "request", 1, len(exchanges), REPLY), exchanges)[1]


def request(visitor: Visitor, number: int, turn: int) -> bytes:
    """Return the body of one turn of one chat."""
    questions = [f"Question {turn} in {number}" for turn in range(turn + 1)]
    said = [message for question in questions[:-1] for message in (visitor.ask(question), ANSWERED)]
    return visitor.request([SYSTEM, *said], questions[-1])


async def settled_rss(program: Program) -> float:
    """Return the resident memory in MiB once a program has nothing left to do."""
    await until_idle(program)
    await asyncio.sleep(SETTLE)
    return program.rss()
