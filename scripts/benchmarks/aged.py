"""Time to the first content where the store is a year old, and the same beside it where the store is empty.

The model is counted by its file, and every request is a chat with a history as clients send it. A visit opens its
chats with requests that are not measured, waits until the server has nothing left to do, and then goes on with them.
"""

import asyncio
import json
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from client import Connection, Exchange, get, get_json
from load import Load
from past import GREETING, LONG_NAME, SYSTEM, YEAR, Past, Said, id_of, talk
from processes import Program
from servers import AGED, EMPTY, HERE, Checkout, Rig, Server, servers_running
from upstream import FILE_MODEL, Reply
from visit import PATIENCE, collector_off, missed, percentile_of, send_in_turn, sort_out

REPLY = Reply(tokens=30, burst=16)
ANSWERED: Said = {"role": "assistant", "content": REPLY.text()}
TURNS = 3
"""Measured turns of each chat."""
EARLIER = 9
"""Turns before those; with the system prompt and the question that makes 20 messages."""
MOST_SECONDS = 8.0
"""How long chats are opened, and how long they go on; a server that is very slow answers fewer requests."""
TOGETHER = 6
"""Requests after which a visit looks at the clock."""
IDLE_STEP, IDLE_SHARE, STEPS = 0.1, 0.05, 3
SLOWEST_START = 120.0
PAGE = f"/v1/conversations/{LONG_NAME.replace(' ', '%20')}?limit=50"
PAGES = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """The bodies of one visit: those that open its chats, and those that are measured.

    `known` are the stored conversations that those belong to, one after another, each with so many turns; empty where
    they belong to none.
    """

    opening: list[bytes]
    measured: list[bytes]
    known: list[str] = field(default_factory=list)
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Visitor:
    """What the chats of one visit need: the model's name, what makes them differ, how many, and what is stored."""

    model: str
    nonce: str
    chats: int
    past: Past

    def ask(self, question: str) -> Said:
        """Return the message that asks a question."""
        return {"role": "user", "content": f"{question} of {self.nonce}. {REPLY.order()}"}

    def request(self, messages: Sequence[Said], question: str, name: str = "") -> bytes:
        """Return the JSON of a request that asks a question after these messages."""
        named = {"metadata": {"conversation_id": name}} if name else {}
        body = {"model": self.model, "messages": [*messages, self.ask(question)], "stream": True, **named}
        return json.dumps({**body, "stream_options": {"include_usage": True}}, separators=(",", ":")).encode()

    def going_on(self, histories: Sequence[Sequence[Said]], name: str = "") -> Asked:
        """Return what opens chats with these histories and then goes on with each for some turns."""
        asked = Asked([], [])
        for number, history in enumerate(histories):
            messages = list(history)
            for turn in range(1 + TURNS):
                question = f"Question {turn} in chat {number}"
                (asked.measured if turn else asked.opening).append(self.request(messages, question, name))
                messages += [self.ask(question), ANSWERED]
        return asked

    def histories(self) -> list[list[Said]]:
        """Return the beginnings of chats that are in no store; every third begins with the greeting of the past."""
        found = []
        for number in range(self.chats):
            said = [{**message, "content": f"{self.nonce} {message['content']}"} for message in talk(number, EARLIER)]
            if number % 3 == 0:
                said[0] = {"role": "user", "content": GREETING}
            found.append([SYSTEM, *said])
        return found


def new_chats(visitor: Visitor) -> Asked:
    """Ask for the first time, after the system prompt that all share."""
    numbers = range(visitor.chats * TURNS)
    return Asked([], [visitor.request([SYSTEM], f"The first question in chat {number}") for number in numbers])


def next_turns(visitor: Visitor) -> Asked:
    """Go on with chats that were begun just now."""
    return visitor.going_on(visitor.histories())


def returned(visitor: Visitor) -> Asked:
    """Go on with stored conversations that this process has never seen."""
    chance = random.Random(visitor.nonce)
    count = min(visitor.chats * TURNS, visitor.past.conversations)
    numbers = chance.sample(range(visitor.past.conversations), count)
    said = [[SYSTEM, *talk(number, visitor.past.turns)] for number in numbers]
    bodies = [visitor.request(messages, "Another question") for messages in said]
    return Asked([], bodies, [id_of(number) for number in numbers], visitor.past.turns)


def edited(visitor: Visitor) -> Asked:
    """Go on with chats whose first answer is another each time, so that no stored conversation matches."""
    histories = visitor.histories()
    measured = []
    for number, history in enumerate(histories):
        for turn in range(TURNS):
            other = {"role": "assistant", "content": f"Edition {turn} of the first answer of {visitor.nonce}-{number}."}
            changed = [*history[:2], other, *history[3:]]
            measured.append(visitor.request(changed, f"Question {turn} in chat {number}"))
    return Asked(visitor.going_on(histories).opening, measured)


def long_turns(visitor: Visitor) -> Asked:
    """Go on with the long conversation, by its name and with its last messages, as a client that cuts its history."""
    begin = max(0, visitor.past.long - EARLIER)
    tail = [SYSTEM, *talk(visitor.past.conversations, visitor.past.long, begin)]
    return visitor.going_on([tail] * max(1, visitor.chats // 3), LONG_NAME)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request; `most` is how many milliseconds it may add to the control's first content, median and p99.

    `with_empty` tells whether it is asked of a server with an empty store as well.
    """

    name: str
    asked: Callable[[Visitor], Asked]
    most: tuple[float, float | None]
    with_empty: bool = True


KINDS = (
    Kind("new chat", new_chats, (3.0, 12.0)),
    Kind("next turn", next_turns, (3.0, 12.0)),
    Kind("next turn without a match", edited, (4.0, 12.0)),
    Kind("next turn of a conversation of the past", returned, (4.0, 12.0), with_empty=False),
    Kind("next turn in a conversation of 50,000 messages", long_turns, (3.0, None), with_empty=False),
)


@dataclass(frozen=True, slots=True)
class Chats:
    """The answers of one visit: the server, the kind of request, and seconds to the first content of each."""

    server: str
    kind: str
    first_contents: tuple[float, ...]
    broken: tuple[str, ...] = ()

    def first_content(self, percent: int) -> float:
        """Return a percentile (1 to 99) of the time to the first content; 0 where nothing was answered."""
        return percentile_of(self.first_contents, percent) or 0.0


@dataclass(frozen=True, slots=True)
class Pages:
    """Seconds to the last byte of the long conversation's first page, median of some requests."""

    server: str
    seconds: float
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgedRound:
    """What all servers took in one round."""

    chats: tuple[Chats, ...]
    pages: tuple[Pages, ...]


async def aged_rounds(
    names: Sequence[str], rig: Rig, count: int, rng: random.Random, *, quick: bool
) -> list[AgedRound]:
    """Make the stores, start the servers, and visit each with every kind, once a round in shuffled order."""
    past, chats = (YEAR.quick(), 2) if quick else (YEAR, 34)
    checkouts = {name: checkout for name, checkout in rig.checkouts.items() if name in names}
    for name, checkout in checkouts.items():
        make_store(checkout, rig, f"{name}{AGED}", past)
    relays = [name for name in names if name == "control"]
    with servers_running(
        [*relays, *(f"{name}{store}" for name in checkouts for store in (AGED, EMPTY))], rig
    ) as servers:
        for server in servers:
            await until_idle(server.program, SLOWEST_START)
        if not quick:
            await aged_round(servers, rig.upstream, "warm", 2, past, rng)
        return [await aged_round(servers, rig.upstream, f"round {number}", chats, past, rng) for number in range(count)]


def make_store(checkout: Checkout, rig: Rig, server: str, past: Past) -> None:
    """Write the database of a server by its own checkout's code."""
    folder = rig.data_folder(server)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [str(size) for size in (past.conversations, past.turns, past.long)]
    subprocess.run([checkout.python, str(HERE / "aged_store.py"), str(folder), *sizes], check=True)


async def until_idle(program: Program, most: float = PATIENCE) -> None:
    """Wait until a program has used next to no CPU for a moment."""
    deadline, still = time.perf_counter() + most, 0
    while still < STEPS and time.perf_counter() < deadline:
        used = program.cpu_seconds()
        await asyncio.sleep(IDLE_STEP)
        still = still + 1 if program.cpu_seconds() - used < IDLE_SHARE * IDLE_STEP else 0


async def aged_round(
    servers: Sequence[Server], upstream: Program, nonce: str, chats: int, past: Past, rng: random.Random
) -> AgedRound:
    """Visit every server with every kind that it is for, and read the long conversation's first page."""
    visits = [(server, kind) for server in servers for kind in KINDS if kind.with_empty or not is_empty(server)]
    seen = []
    for server, kind in rng.sample(visits, k=len(visits)):
        model = f"lmstudio/{FILE_MODEL}" if server.is_elbowroom else FILE_MODEL
        asked = kind.asked(Visitor(model, f"{nonce} {kind.name}", chats, past))
        seen.append(await answered(kind, server, asked, upstream))
    aged = [server for server in servers if server.name.endswith(AGED)]
    pages = [await first_page(server) for server in rng.sample(aged, k=len(aged))]
    return AgedRound(tuple(seen), tuple(pages))


def is_empty(server: Server) -> bool:
    """Tell whether a server's store was empty when it started."""
    return server.name.endswith(EMPTY)


async def answered(kind: Kind, server: Server, asked: Asked, upstream: Program) -> Chats:
    """Open the chats, then measure the requests; every answer is checked, those of the opening ones too."""
    opened = await send_for(server.program.port, asked.opening)
    measured = asked.measured[: TURNS * len(opened) if asked.opening else None]
    await until_idle(server.program)
    seen = await get_json(upstream.port, "/bench/counts")
    async with collector_off():
        exchanges = await send_for(server.program.port, measured)
    await until_idle(server.program)
    after = await get_json(upstream.port, "/bench/counts")
    sent = [len(body) for body in measured[: len(exchanges)]]
    load = Load("aged", "request", 1, len(exchanges), REPLY)
    answers, broken = sort_out(load, exchanges)
    broken += sort_out(load, opened)[1]
    broken += missed(sent, after["requests"] - seen["requests"], after["bytes"] - seen["bytes"])
    broken += await forgotten(server, asked, len(exchanges))
    return Chats(server.name, kind.name, tuple(answer.first_token for answer in answers), tuple(broken))


async def forgotten(server: Server, asked: Asked, count: int) -> list[str]:
    """Say which stored conversations have not been gone on with, of some of the first `count` that should have been."""
    meant = asked.known[: count if server.is_elbowroom else 0]
    lost = []
    for conversation in dict.fromkeys((*meant[:1], *meant[-1:])):
        kept = await get_json(server.program.port, f"/v1/conversations/{conversation}")
        if kept.get("usage", {}).get("steps", 0) <= asked.turns:
            lost.append(f"the history of {conversation} was not known again")
    return lost


async def send_for(port: int, bodies: Sequence[bytes]) -> list[Exchange | Exception]:
    """Send one request after another until all are answered or the time of a visit is over."""
    done: list[Exchange | Exception] = []
    began = time.perf_counter()
    while len(done) < len(bodies) and time.perf_counter() - began < MOST_SECONDS:
        done += await send_in_turn(port, bodies[len(done) : len(done) + TOGETHER], 0.0)
    return done


async def first_page(server: Server) -> Pages:
    """Read the first page of the long conversation some times."""
    seconds, broken = [], []
    for _ in range(PAGES):
        connection = await Connection.open(server.program.port)
        exchange = await connection.send(get(server.program.port, PAGE))
        connection.close()
        arrived, _data = exchange.reads[-1]
        seconds.append(arrived - exchange.sent_at)
        if b'"messages":{' not in b"".join(data for _, data in exchange.reads):
            broken.append(f"there are no messages in the page, which begins with {exchange.reads[0][1][:60]!r}")
    return Pages(server.name, percentile_of(seconds, 50) or 0.0, tuple(broken))
