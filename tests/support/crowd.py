"""A crowd of clients at several servers, while these, LM Studios and the database are killed or stand still."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import psycopg
from chaos import Hand
from command_line import PATIENCE
from server_processes import BEARER, OneServer, starved
from soak_words import WORD
from studio_process import LONG, MODEL
from studio_processes import Studio

MAY_TAKE: Final = 0.5
"""Seconds after which a word that a client has received outlives its server."""
THINKING: Final = (0.5, 3.0)
ACTS: Final = {"ask": 45, "cancel": 20, "queue": 20, "edit": 10, "compact": 5}
SEEN_EVERY: Final = 0.1
MOST_TOKENS: Final = {"What about": 512, LONG: 1536, "Look at": 1536}
"""How long an answer to a question with such words may get, so that more than four share a window."""
OLD_FRIENDS: Final = 4
"""How many people have talked for long already: their histories fit into no window."""
PAST: Final = 400
"""How many messages of each."""
LOST: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What a client sees of a server that is killed."""
UNANSWERED: Final = 5.0
"""Seconds after which a client sends a message for the queue again, to another server."""


@dataclass(slots=True)
class Person:
    """A client with one conversation; `heard` is how many words of the newest answer have come.

    `conversation` is its id, as the newest answer names it: while the database is away, servers that cannot look may
    begin two under one name.
    `queued` are the texts that it has put in the queue, in order: True where a server has said that it is stored,
    False where a cancel may have dropped it. `lived` is what it did, with when.
    """

    name: str
    model: str
    rng: random.Random
    conversation: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)
    queued: dict[str, bool] = field(default_factory=dict)
    asked: int = 0
    heard: int = 0
    lived: list[tuple[float, str]] = field(default_factory=list)

    def between(self, since: float, until: float) -> str:
        """Return in words what it has done in this time."""
        return "; ".join(f"{when - since:.2f} s {went}" for when, went in self.lived if since - 5 <= when <= until + 5)


@dataclass(frozen=True, slots=True)
class Slowness:
    """How slow this machine was: when, for how long each server had had no processor by then, and a question took."""

    when: float
    starved: dict[OneServer, float]
    asked: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """Seconds that a cancel took while nothing was killed or stood still, and for how many of them others were served.

    These are the seconds in which a server or the client was ready and another program had its processor, and those
    that the database took for a question that is none.
    """

    began: float
    took: float
    waited: float

    @property
    def own(self) -> float:
        """Return the seconds that it would have taken alone."""
        return self.took - self.waited


@dataclass(slots=True)
class Found:
    """What the clients have seen: words with when and from which server, cancels, and how it went."""

    words: dict[str, tuple[float, OneServer]] = field(default_factory=dict)
    cancels: list[Cancel] = field(default_factory=list)
    went: Counter[str] = field(default_factory=Counter)
    slowness: list[Slowness] = field(default_factory=list)

    def slow(self, server: OneServer, since: float, until: float) -> float:
        """Return for how much of this time the server had no processor, or waited for a database that had none."""
        starved = [seen.starved[server] for seen in self._seen(since, until)]
        return max(starved) - starved[0] + self.asked(since, until) if starved else 0.0  # a new process begins at 0

    def asked(self, since: float, until: float) -> float:
        """Return how long the database took at most for a question that is none."""
        return max((seen.asked for seen in self._seen(since, until)), default=0.0)

    def _seen(self, since: float, until: float) -> list[Slowness]:
        before = [seen for seen in self.slowness if seen.when <= since]
        return [*before[-1:], *(seen for seen in self.slowness if since < seen.when <= until)]


class Crowd:
    """Clients of servers and LM Studios, beside the hand that does these harm."""

    def __init__(
        self, servers: Sequence[OneServer], studios: Sequence[Studio], database: str, size: int, seed: int, hand: Hand
    ) -> None:
        self.servers = servers
        self.database = database
        self.studios = studios
        self.found = Found()
        self.hand = hand
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
        self._http: aiohttp.ClientSession
        self._stops = asyncio.Event()

    async def live(self, seconds: float) -> None:
        """Let all live for so long while the hand acts, then read what still waits in queues."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=BEARER, timeout=timeout, connector=connector) as self._http:
            living = [asyncio.create_task(self._live(person)) for person in self.people]
            watching = asyncio.create_task(self._watch())
            await self.hand.act(seconds)
            watching.cancel()
            self._stops.set()
            await asyncio.gather(*living)
            await asyncio.gather(*(self._come_to_an_end(person) for person in self.people))

    async def _watch(self) -> None:
        """See how slow this machine is, several times a second."""
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                with psycopg.connect(self.database, autocommit=True) as database:
                    while True:
                        starved = {server: server.starved for server in self.servers}
                        when = time.monotonic()
                        await asyncio.to_thread(database.execute, "SELECT 1")
                        self.found.slowness.append(Slowness(when, starved, time.monotonic() - when))
                        await asyncio.sleep(SEEN_EVERY)
            await asyncio.sleep(SEEN_EVERY)

    async def _live(self, person: Person) -> None:
        acts = {
            "ask": self._ask,
            "cancel": self._ask_and_cancel,
            "queue": self._ask_and_add,
            "edit": self._edit,
            "compact": self._compact,
        }
        while not self._stops.is_set():
            (act,) = person.rng.choices(list(ACTS), list(ACTS.values()))
            person.lived.append((time.monotonic(), act))
            try:
                went = await acts[act](person)
            except LOST as error:
                went = type(error).__name__
            self.found.went[f"{act}: {went}"] += 1
            person.lived.append((time.monotonic(), f"{act}: {went}"))
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
        server = server or person.rng.choice(self.hand.up)
        person.asked, person.heard = person.asked + 1, 0
        question = {"role": "user", "content": f"{words} {person.name} {person.asked}? " + "On it goes. " * 20}
        most = MOST_TOKENS[words]
        body = {"model": person.model, "messages": [*person.messages, question], "stream": True, "max_tokens": most}
        said, noted, is_whole = "", 0, False
        headers = {"X-Conversation-Id": person.name}
        async with self._http.post(f"{server.url}/v1/chat/completions", json=body, headers=headers) as response:
            person.conversation = response.headers.get("X-Conversation-Id", "") or person.conversation
            if response.status != 200:
                return f"status {response.status} {(await response.json())['error']['code']}"
            async for line in response.content:
                if line.startswith(b"data: {"):
                    chunk = json.loads(line[6:])
                    if "error" in chunk:
                        return f"error in the stream: {chunk['error'].get('code')}"
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
        try:
            went = await asking
        finally:
            ended, waited = time.monotonic(), self._starved(one, other) - waited
            await self._see_dropped(person, cancelling)
            del person.messages[before:]  # the client has seen a part only
        if went == "answered" and self.hand.is_calm(began, ended):
            self.found.cancels.append(Cancel(began, ended - began, waited + self.found.asked(began, ended)))
        return "cancelled"

    async def _see_dropped(self, person: Person, cancelling: "asyncio.Task[dict[str, Any]]") -> None:
        """Note which messages of the queue a cancel has dropped; where nobody tells, any of them may be."""
        dropped = list(person.queued)
        with contextlib.suppress(*LOST):
            dropped = [row["message"]["content"] for row in (await cancelling).get("dropped", ())]
        self.found.went["dropped by a cancel"] += sum(person.queued[text] for text in dropped)
        person.queued |= dict.fromkeys(dropped, False)

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
                await self._add(person, text, other)
        return await asking

    async def _add(self, person: Person, text: str, server: OneServer) -> None:
        """Put a message in the queue; where no answer comes, send it to others until one has stored it."""
        person.queued[text] = False
        while not person.queued[text]:
            with contextlib.suppress(*LOST):
                async with asyncio.timeout(UNANSWERED):
                    added = await self._post(server, person, "queue", {"content": text}, {"Idempotency-Key": text})
                    person.queued[text] = bool(added.get("stored"))
            if not person.queued[text]:
                await asyncio.sleep(person.rng.uniform(*THINKING))
                server = person.rng.choice(self.hand.up)

    async def _edit(self, person: Person) -> str:
        """Ask something else than one of the newest questions: a branch of the conversation."""
        before = person.messages[-2 * person.rng.randint(1, 3) :]
        del person.messages[len(person.messages) - len(before) :]
        return await self._ask(person)

    async def _compact(self, person: Person) -> str:
        """Compact the conversation by hand, with what any server knows of it."""
        return str(await self._post(person.rng.choice(self.hand.up), person, "compact", {}) and "told")

    async def _speaks(self, person: Person, asking: "asyncio.Task[str]") -> bool:
        """Wait until some words of the answer have come; tell whether that happens before its end."""
        while not asking.done() and person.heard < 5:  # noqa: ASYNC110  # words know no events
            await asyncio.sleep(0.02)
        return not asking.done()

    def _two(self, person: Person) -> tuple[OneServer, OneServer]:
        """Return two servers that are up; twice the same where only one is."""
        chosen = person.rng.sample(self.hand.up, k=min(2, len(self.hand.up)))
        return chosen[0], chosen[-1]

    async def _post(
        self,
        server: OneServer,
        person: Person,
        path: str,
        body: dict[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        url = f"{server.url}/v1/conversations/{person.conversation or person.name}/{path}"
        async with self._http.post(url, json=body, headers=headers) as response:
            answer: dict[str, Any] = await response.json()
            told = {name: answer[name] for name in ("cancelled", "stored") if name in answer}
            code = answer["error"]["code"] if "error" in answer else ""
            self.found.went[f"{path} elsewhere: {response.status} {told or code}".rstrip()] += 1
            return answer

    async def _waiting(self, person: Person) -> bool:
        """Tell whether anything waits in the conversation's queue."""
        server = person.rng.choice(self.hand.up)
        async with self._http.get(f"{server.url}/v1/conversations/{person.name}/queue") as response:
            return bool((await response.json()).get("data"))
