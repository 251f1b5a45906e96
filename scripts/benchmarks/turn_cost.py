"""What a long history costs a turn that needs nothing: the same chat goes on, and all of it fits the window.

Every conversation is opened by a request that is not measured; each one after it brings the answer before and another
question, as chat clients do. What a turn with 501 messages costs more than one with 5 is taken within a round, and so
is what a plain relay's turn costs more: that is the price of moving the larger body, and nobody's to save.
"""

import asyncio
import json
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from client import Exchange, get_json
from load import History, Load
from processes import Program
from servers import FORGETFUL, Server
from upstream import FILE_MODEL, MODEL, UNKNOWN_TEMPLATE_MODEL, Reply
from visit import SETTLE, collector_off, missed, send_in_turn, sort_out

SHORT, LONG = 5, 501
TURNS = 3
REPLY = Reply(tokens=30, burst=16)
CHARACTERS = 300
WAYS = {
    "the model's file": FILE_MODEL,
    "its file with an unknown template": UNKNOWN_TEMPLATE_MODEL,
    "its family": MODEL,
}
"""How elbowroom counts, and the model that it counts so."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of one visit: CPU seconds of one, on average, and the median seconds to its first token."""

    way: str
    server: str
    messages: int
    cpu: float
    first_token: float
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat, whose measured requests have `messages` messages, some two more and some two less."""

    model: str
    messages: int
    nonce: str

    def bodies(self) -> Iterator[bytes]:
        """Yield the request that opens it, and those that are measured."""
        before = History(self.messages - 2 - TURNS, CHARACTERS, unseen=True).build(self.nonce)
        for turn in range(1 + TURNS):
            before.append({"role": "user", "content": f"Question {turn} of {self.nonce}. {REPLY.order()}"})
            request = {"model": self.model, "messages": before, "stream": True}
            yield json.dumps({**request, "stream_options": {"include_usage": True}}, separators=(",", ":")).encode()
            before.append({"role": "assistant", "content": REPLY.text()})


async def turns(way: str, server: Server, conversations: Sequence[Conversation], upstream: Program) -> Turns:
    """Open all conversations, then go on with them and measure that."""
    bodies = [list(conversation.bodies()) for conversation in conversations]
    opened = await send_in_turn(server.program.port, [opening for opening, *_ in bodies], 0.0)
    measured = [body for _, *later in bodies for body in later]
    await asyncio.sleep(SETTLE)
    seen = await get_json(upstream.port, "/bench/counts")
    async with collector_off():
        cpu = server.program.cpu_seconds()
        exchanges = await send_in_turn(server.program.port, measured, 0.0)
        await asyncio.sleep(SETTLE)
        cpu = server.program.cpu_seconds() - cpu
    after = await get_json(upstream.port, "/bench/counts")
    broken = missed(
        [len(body) for body in measured], after["requests"] - seen["requests"], after["bytes"] - seen["bytes"]
    )
    return judged(way, server, conversations[0].messages, cpu / len(measured), [*opened, *exchanges], broken)


def judged(
    way: str, server: Server, messages: int, cpu: float, exchanges: Sequence[Exchange | Exception], broken: list[str]
) -> Turns:
    """Check every answer; those that opened the conversations come first, and are checked only."""
    load = Load("turns", "request", 1, len(exchanges), REPLY)
    answers, wrong = sort_out(load, exchanges)
    measured = [answer.first_token for answer in answers[len(exchanges) // (1 + TURNS) :]]
    first_token = statistics.median(measured) if measured else 0.0
    return Turns(way, server.name, messages, cpu, first_token, (*broken, *wrong))


async def turn_rounds(
    servers: Sequence[Server], upstream: Program, count: int, conversations: int, rng: random.Random
) -> list[list[Turns]]:
    """Visit every server with short and long chats, for each way that it counts, once a round in shuffled order."""
    visits = [
        (way, server, model, length)
        for server in servers
        if not server.is_direct and server.name != FORGETFUL
        for way, model in (WAYS.items() if server.is_elbowroom else [("", MODEL)])
        for length in (SHORT, LONG)
    ]
    rounds = []
    for number in range(count):
        seen = []
        for way, server, model, length in rng.sample(visits, k=len(visits)):
            name = f"lmstudio/{model}" if server.is_elbowroom else model
            chats = [Conversation(name, length, f"chat {number} {place}") for place in range(conversations)]
            seen.append(await turns(way, server, chats, upstream))
        rounds.append(seen)
    return rounds
