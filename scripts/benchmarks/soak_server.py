"""A server of the soak: elbowroom in a process of its own, with a simulated LM Studio, clients, and measurements."""

import asyncio
import contextlib
import itertools
import json
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from processes import Command, Cores, Program
from soak_people import AGENT, FILLER, People
from soak_studio import MODEL, NOTES, Studio
from soak_words import Kept

HERE: Final = Path(__file__).parent
SERVE: Final = ("serve", "--host", "127.0.0.1", "--port", "{port}")
MAY_TAKE: Final = 0.5
"""Seconds after which a word that a client has received has to be on the disk, however the process ends."""
EVERY: Final = 2.0
SAMPLES_A_CHECK: Final = 40
"""A server that is not killed is checked while it runs; no answer takes so long."""
SETTLING: Final = 3.0
SETTINGS: Final = """
[[providers]]
id = "soak"
kind = "lmstudio"
base_url = {url}
home = {home}

[[agents]]
id = {agent}
name = "Reader"
instructions = "You read notes."
model = {model}
provider = "soak"
tools = ["vault"]

[vault]
path = {vault}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server took at a moment: seconds since the begin, bytes of memory in MiB, descriptors, and CPU seconds."""

    at: float
    rss: float
    descriptors: int
    cpu: float


@dataclass(slots=True)
class Found:
    """What was found out about one server."""

    samples: list[Sample] = field(default_factory=list)
    inside: list[dict[str, Any]] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    lost: int = 0
    oldest_missing: float = 0.0
    received: int = 0


class Soaked:
    """One elbowroom with all that belongs to it; `began` is when the soak began, by the clock of the loop."""

    def __init__(self, label: str, folder: Path, rng: random.Random, rate: float) -> None:
        self.label = label
        self.found = Found()
        self.studio = Studio(label, rng)
        self._folder = folder
        self._rng = rng
        self._rate = rate
        self._began = time.monotonic()
        self._inside = folder / "inside.jsonl"
        self._kept = Kept(folder / "data" / "elbowroom.db")
        self._program: Program | None = None
        self.people: People

    async def run(self, seconds: float, kill_every: float | None) -> None:
        """Serve people for so long; with `kill_every` the process is killed about that often, and started again."""
        self._folder.mkdir(parents=True)
        async with self.studio.simulated:
            command = self._command()
            until = asyncio.get_running_loop().time() + seconds
            with contextlib.ExitStack() as stack:
                self._program = await self._start(stack, command)
                self.people = People(self.label, self._program.port, self._rng)
                living = asyncio.create_task(self.people.live(self._rate, until))
                sampling = asyncio.create_task(self._sample(checks=kill_every is None))
                while kill_every and (left := until - asyncio.get_running_loop().time()) > 2 * SETTLING:
                    await asyncio.sleep(min(left - SETTLING, self._rng.uniform(0.5, 1.5) * kill_every))
                    await self._kill(stack, command)
                await living
                await asyncio.sleep(SETTLING)
                sampling.cancel()
                await asyncio.to_thread(self._program.stop)
                self._check(time.monotonic(), 0.0)
        self.found.inside = [json.loads(line) for line in self._inside.read_text(encoding="utf-8").splitlines()]

    def _command(self) -> Command:
        vault, home = self._folder / "vault", self._folder / "lmstudio"
        vault.mkdir()
        home.mkdir()
        for number in range(NOTES):
            (vault / f"note {number}.md").write_text(f"# Note {number}\n\n" + FILLER * 5 * (number + 1), "utf-8")
        given = {"url": self.studio.simulated.base_url, "home": home, "agent": AGENT, "model": MODEL, "vault": vault}
        settings = self._folder / "settings.toml"
        text = SETTINGS.format(**{name: json.dumps(str(value)) for name, value in given.items()})
        settings.write_text(text, encoding="utf-8")
        inside = (sys.executable, str(HERE / "soak_inside.py"), str(self._inside))
        environment = {"ELBOWROOM_CONFIG": str(settings), "ELBOWROOM_DATA_DIR": str(self._folder / "data")}
        return Command((*inside, *SERVE), environment)

    async def _start(self, stack: contextlib.ExitStack, command: Command) -> Program:
        program = stack.enter_context(command.running(None, Cores(None, None), self._folder / "server.log"))
        self.found.restarts.append(await asyncio.to_thread(program.wait_until_healthy))
        return program

    async def _kill(self, stack: contextlib.ExitStack, command: Command) -> None:
        assert self._program is not None
        self._program.process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        await asyncio.to_thread(self._program.process.wait)
        self.found.kills.append(killed - self._began)
        self._check(killed, MAY_TAKE)
        stack.close()
        self._program = await self._start(stack, command)
        self.people.port = self._program.port

    def _check(self, ended: float, may_take: float, *, goes_on: bool = False) -> None:
        """Compare what the clients have received with what the database has; what goes on keeps its newest words."""
        received = self.people.received
        lost = self._kept.missing(received.times, ended, may_take)
        self.found.lost += lost.words
        self.found.oldest_missing = max(self.found.oldest_missing, lost.oldest)
        self.found.received = received.count
        received.times = {word: at for word, at in received.times.items() if goes_on and ended - at <= may_take}

    async def _sample(self, *, checks: bool) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(EVERY)
            self.studio.forget()
            if checks and number % SAMPLES_A_CHECK == 0:
                self._check(time.monotonic(), MAY_TAKE, goes_on=True)
            if self._program is not None and (process := self._program.process).poll() is None:
                taken = (self._program.rss(), process.num_fds(), self._program.cpu_seconds())
                self.found.samples.append(Sample(time.monotonic() - self._began, *taken))
