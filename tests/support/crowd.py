"""A crowd of clients at several servers; servers and LM Studios are killed."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import psycopg
from command_line import PATIENCE
from processes import free_port
from server_processes import BEARER, OneServer, starved
from soak_words import WORD
from studio_process import LONG, MODEL

MAY_TAKE: Final = 0.5
"""Seconds after which a word that a client has received outlives its server."""
THINKING: Final = (0.5, 3.0)
ACTS: Final = {"ask": 60, "cancel": 15, "queue": 25}
KILL_EVERY: Final = (4.0, 9.0)
SEEN_EVERY: Final = 0.1
MOST_TOKENS: Final = {"What about": 512, LONG: 1536, "Look at": 1536}
"""How long an answer to a question with such words may get, so that more than four share a window."""
OLD_FRIENDS: Final = 4
"""How many people have talked for long already: their histories fit into no window."""
PAST: Final = 400
"""How many messages of each."""
LOST: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What a client sees of a server that is killed."""


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

    def lines(self, kind: str) -> list[dict[str, int]]:
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


@dataclass(slots=True)
class Person:
    """A client with one conversation; `heard` is how many words of the newest answer have come.

    `queued` are the texts that it has put in the queue, in order: True where the server has said that it is stored,
    False where nobody has answered.
    """

    name: str
    model: str
    rng: random.Random
    messages: list[dict[str, str]] = field(default_factory=list)
    queued: dict[str, bool] = field(default_factory=dict)
    asked: int = 0
    heard: int = 0


@dataclass(frozen=True, slots=True)
class Slowness:
    """How slow this machine was: when, for how long each server had had no processor by then, and a question took."""

    when: float
    starved: dict[OneServer, float]
    asked: float


@dataclass(slots=True)
class Found:
    """What the clients have seen: words with when and from which server, seconds that cancels took, and how it went.

    Of a cancel's seconds those do not count in which a server or the client was ready and another program had its
    processor.
    """

    words: dict[str, tuple[float, OneServer]] = field(default_factory=dict)
    cancels: list[float] = field(default_factory=list)
    went: Counter[str] = field(default_factory=Counter)
    slowness: list[Slowness] = field(default_factory=list)

    def slow(self, server: OneServer, since: float, until: float) -> float:
        """Return for how much of this time the server had no processor, or waited for a database that had none."""
        before = [seen for seen in self.slowness if seen.when <= since]
        seen = [*before[-1:], *(seen for seen in self.slowness if since < seen.when <= until)]
        starved = [seen.starved[server] for seen in seen]
        return starved[-1] - starved[0] + max(seen.asked for seen in seen) if seen else 0.0


class Crowd:
    """Clients, servers and LM Studios, and the hand that kills."""

    def __init__(
        self, servers: Sequence[OneServer], studios: Sequence[Studio], database: str, size: int, seed: int
    ) -> None:
        self.servers = servers
        self._database = database
        self.studios = studios
        self.found = Found()
        self._rng = random.Random(seed)
        self.people = [
            Person(f"person {number}", f"{studio.name}/{MODEL}", random.Random(f"{seed} {number}"))
            for number, studio in zip(range(size), itertools.cycle(studios), strict=False)
        ]
        for person in self.people[:OLD_FRIENDS]:
            person.messages = [
                {
                    "role": ("user", "assistant")[number % 2],
                    "content": f"Of {person.name} and {number}. " + "We sang. " * 9,
                }
                for number in range(PAST)
            ]
        self._up = list(servers)
        self._http: aiohttp.ClientSession
        self._stops = asyncio.Event()

    async def live(self, seconds: float) -> None:
        """Let all live for so long while servers and LM Studios are killed, then read what still waits in queues."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=BEARER, timeout=timeout, connector=connector) as self._http:
            living = [asyncio.create_task(self._live(person)) for person in self.people]
            watching = asyncio.create_task(self._watch())
            await self._kill_for(seconds)
            watching.cancel()
            self._stops.set()
            await asyncio.gather(*living)
            await asyncio.gather(*(self._come_to_an_end(person) for person in self.people))

    async def _watch(self) -> None:
        """See how slow this machine is, several times a second."""
        with psycopg.connect(self._database, autocommit=True) as database:
            while True:
                starved = {server: server.starved for server in self.servers}
                when = time.monotonic()
                await asyncio.to_thread(database.execute, "SELECT 1")
                self.found.slowness.append(Slowness(when, starved, time.monotonic() - when))
                await asyncio.sleep(SEEN_EVERY)

    async def _kill_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._rng.uniform(*KILL_EVERY)))
            if self._rng.random() < 0.7:
                server = self._rng.choice(self.servers)
                self._up.remove(server)
                await server.kill()
                await server.start()
                self._up.append(server)
                self.found.went["servers killed"] += 1
            else:
                studio = self._rng.choice(self.studios)
                await studio.kill()
                await studio.start()
                self.found.went["LM Studios killed"] += 1

    async def _live(self, person: Person) -> None:
        acts = {"ask": self._ask, "cancel": self._ask_and_cancel, "queue": self._ask_and_add}
        while not self._stops.is_set():
            (act,) = person.rng.choices(list(ACTS), list(ACTS.values()))
            try:
                went = await acts[act](person)
            except LOST as error:
                went = type(error).__name__
            self.found.went[f"{act}: {went}"] += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stops.wait(), person.rng.uniform(*THINKING))

    async def _come_to_an_end(self, person: Person) -> None:
        """Ask until an answer comes whole, so that all that waits is read."""
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                with contextlib.suppress(*LOST):
                    if await self._ask(person) == "answered" and not await self._waiting(person):
                        return
                await asyncio.sleep(person.rng.uniform(*THINKING))

    async def _ask(self, person: Person, words: str = "What about", server: OneServer | None = None) -> str:
        """Ask a question and note the words of its answer; keep both where it came whole."""
        server = server or person.rng.choice(self._up)
        person.asked, person.heard = person.asked + 1, 0
        question = {"role": "user", "content": f"{words} {person.name} {person.asked}? " + "On it goes. " * 20}
        most = MOST_TOKENS[words]
        body = {"model": person.model, "messages": [*person.messages, question], "stream": True, "max_tokens": most}
        said, noted, is_whole = "", 0, False
        headers = {"X-Conversation-Id": person.name}
        async with self._http.post(f"{server.url}/v1/chat/completions", json=body, headers=headers) as response:
            if response.status != 200:
                return f"status {response.status}"
            async for line in response.content:
                if line.startswith(b"data: {"):
                    chunk = json.loads(line[6:])
                    if "error" in chunk:
                        return "error in the stream"
                    said += "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))
                    noted = self._note(person, said, noted, server)
                is_whole = is_whole or line.startswith(b"data: [DONE]")
        if not is_whole:
            return "cut"
        self.found.went["whole answers"] += 1
        person.messages += [question, {"role": "assistant", "content": said}]
        return "answered"

    def _note(self, person: Person, said: str, begin: int, server: OneServer) -> int:
        """Note the whole words from a place on; return the place up to which there are whole ones."""
        now = time.monotonic()
        for word in WORD.finditer(said, begin):
            self.found.words.setdefault(word[0], (now, server))
            person.heard += 1
            begin = word.end()
        return begin

    async def _ask_and_cancel(self, person: Person) -> str:
        """Ask on one server, and cancel on another once words have come."""
        before = len(person.messages)
        one, other = self._two(person)
        asking = asyncio.create_task(self._ask(person, LONG, one))
        if not await self._speaks(person, asking):
            return await asking
        began, waited = time.monotonic(), self._starved(one, other)
        cancelling = asyncio.create_task(self._post(other, person, "cancel", {}))
        went = await asking
        took = time.monotonic() - began - (self._starved(one, other) - waited)
        dropped = list(person.queued)  # where its server is killed, nobody tells which of them went
        with contextlib.suppress(*LOST):
            dropped = [row["message"]["content"] for row in (await cancelling).get("dropped", ())]
        self.found.went["dropped by a cancel"] += sum(person.queued[text] for text in dropped)
        person.queued |= dict.fromkeys(dropped, False)
        del person.messages[before:]  # the client has seen a part only
        if went == "answered" and not any(kill > began - MAY_TAKE for server in (one, other) for kill in server.killed):
            self.found.cancels.append(took)
        return "cancelled"

    def _starved(self, one: OneServer, other: OneServer) -> float:
        """Return how long this process and these servers, of which each waits for the next, have had no processor."""
        return sum(server.starved for server in {one, other}) + starved(os.getpid())

    async def _ask_and_add(self, person: Person) -> str:
        """Ask on one server, and put messages in the queue on another while it answers."""
        one, other = self._two(person)
        asking = asyncio.create_task(self._ask(person, "Look at", one))
        if await self._speaks(person, asking):
            for _ in range(person.rng.randint(1, 3)):
                text = f"{person.name} adds {len(person.queued)}."
                person.queued[text] = False
                with contextlib.suppress(*LOST):
                    added = await self._post(other, person, "queue", {"content": text})
                    person.queued[text] = bool(added.get("stored"))
        return await asking

    async def _speaks(self, person: Person, asking: "asyncio.Task[str]") -> bool:
        """Wait until some words of the answer have come; tell whether that happens before its end."""
        while not asking.done() and person.heard < 5:  # noqa: ASYNC110  # words know no events
            await asyncio.sleep(0.02)
        return not asking.done()

    def _two(self, person: Person) -> tuple[OneServer, OneServer]:
        """Return two servers that are up; twice the same where only one is."""
        chosen = person.rng.sample(self._up, k=min(2, len(self._up)))
        return chosen[0], chosen[-1]

    async def _post(self, server: OneServer, person: Person, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._http.post(f"{server.url}/v1/conversations/{person.name}/{path}", json=body) as response:
            answer: dict[str, Any] = await response.json()
            told = {name: answer[name] for name in ("cancelled", "stored") if name in answer}
            self.found.went[f"{path} elsewhere: {response.status} {told or ''}".rstrip()] += 1
            return answer

    async def _waiting(self, person: Person) -> bool:
        """Tell whether anything waits in the conversation's queue."""
        server = person.rng.choice(self._up)
        async with self._http.get(f"{server.url}/v1/conversations/{person.name}/queue") as response:
            return bool((await response.json()).get("data"))
