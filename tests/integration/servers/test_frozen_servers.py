"""A server stands still, as a machine does that sleeps: others go on with what it did, and it does nothing of it."""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from chatting import eventually
from command_line import PATIENCE
from mcp_sample import plain_server
from postgresql import shared_server
from scripted_pruner import is_prune_order, valid_plan
from server_processes import BEARER, OneServer, server_processes, starved

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor

Body = dict[str, Any]
GONE_SECONDS = 15.0
Case = Callable[["Round"], AsyncIterator[None]]
LATEST = 0.3
"""Seconds within which the server stands still after what it was to have begun, a random part of it each time."""
TOOL_SECONDS = 0.4
KEPT = (
    "SELECT id, id, status FROM turns",
    "SELECT turn, id, status FROM messages",
    "SELECT turn, message, position, content FROM message_parts JOIN messages ON messages.id = message",
    "SELECT '', id, turn, server FROM queue",
    "SELECT '', key, messages FROM ledger_entries",
)
"""All that is kept: each row with the turn that it belongs to."""


class Round:
    """Two servers with one LM Studio; `one` stands still while it answers a conversation, and `other` goes on.

    Each case has an agent and a model of its own, both of which have its name. A case has begun where its turn can only
    go on by what the test does: the model has been asked, and is `held`, or its tool has been called.
    """

    def __init__(self, case: Case, number: int, servers: Sequence[OneServer], address: str, journal: Path) -> None:
        self.one, self.other = servers
        self.name = case.__name__
        self.number = number
        self.is_asked = asyncio.Event()
        """Set by the model where it has been asked."""
        self.held = asyncio.Event()
        """Set while `one` stands still: from then on the model goes on that it has asked."""
        self.question: list[Body] = [{"role": "user", "content": f"Herons, {self.name} {number}?"}]
        self.says: Callable[[Body], Script | str] = lambda _: "After."
        self.asked: list[str] = []
        self.steps = case(self)
        self._asking: asyncio.Task[tuple[int, str]] | None = None
        self._database = address.rpartition("/")[2]
        self._journal = journal

    @property
    def conversation(self) -> str:
        """Return the name of its conversation."""
        return f"{self.name} {self.number}"

    def answer(self, body: Body) -> Script | str:
        """Return what its model says to a request, and note that."""
        self.asked.append(str(body["messages"]))
        self.is_asked.set()
        return self.says(body)

    def rows(self, statement: str) -> list[Any]:
        """Return the rows of a statement."""
        return shared_server().ask(statement, self._database)

    def kept(self) -> set[Any]:
        """Return all rows that are kept."""
        return {(kind, *row) for kind, statement in enumerate(KEPT) for row in self.rows(statement)}

    def prompts(self, text: str) -> int:
        """Return how often its model was sent a text."""
        return sum(text in asked for asked in self.asked)

    def runs(self) -> int:
        """Return how often the tool was carried out."""
        return self._journal.read_text(encoding="utf-8").splitlines().count("appended")

    def script(self, *scripts: Script | str) -> None:
        """Have the model give these answers from now on, in order."""
        left = list(scripts)
        self.says = lambda _: left.pop(0) if left else "After."

    async def say(self, server: OneServer, messages: Sequence[Body]) -> tuple[int, str]:
        """Ask for an answer that streams; return the status, and all that came."""
        body = {"model": self.name, "messages": list(messages), "stream": True}
        named = {"X-Conversation-Id": self.conversation}
        async with aiohttp.ClientSession(headers=BEARER | named) as http:
            async with http.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                return answer.status, (await answer.read()).decode()

    async def begins(self) -> None:
        """Have `one` answer, and wait until the model is asked and the turn is kept."""
        self._asking = asyncio.create_task(self.say(self.one, self.question))
        async with asyncio.timeout(PATIENCE):
            await self.is_asked.wait()
        await eventually(self.streaming, f"the turn of {self.conversation} is not kept")

    def streaming(self) -> set[str]:
        """Return the turns of its conversation that go on."""
        named = f"conversations.name = '{json.dumps(self.conversation)}'"
        found = "turns JOIN conversations ON conversations.id = turns.conversation"
        return {turn for (turn,) in self.rows(f"SELECT turns.id FROM {found} WHERE {named} AND status = 'streaming'")}

    async def goes_on(self, said: str, *more: str) -> None:
        """Have `other` answer the same conversation, which has to say this."""
        messages = [*self.question, *({"role": "user", "content": text} for text in more)]
        status, told = await self.say(self.other, messages)
        assert (status, f'"{said}"' in told) == (200, True), told

    async def until_dead(self) -> None:
        """Wait until `other` has seen that `one` is not there, and looked after what it has left."""
        gone = "SELECT id FROM servers WHERE renewed < extract(epoch FROM clock_timestamp()) - 10"
        left = f"SELECT 1 FROM turns WHERE status = 'streaming' AND server IN ({gone})"
        await eventually(lambda: self.rows(gone) and not self.rows(left), "it does not count as dead", PATIENCE)

    def starved(self) -> float:
        """Return for how many seconds those that go on have waited for a processor: each thread, the database's too."""
        database = [process.pid for process in psutil.Process(shared_server().pid).children()]
        threads = Path("/proc").glob("*/task/*")
        going_on = {str(pid) for pid in (os.getpid(), self.other.pid, *database)}
        return sum(starved(int(thread.name)) for thread in threads if thread.parts[2] in going_on)

    async def interrupted(self) -> None:
        """Wait for the answer of `one`, which has to say that it stood still, and nothing of what came then."""
        assert self._asking is not None
        _, told = await asyncio.wait_for(self._asking, 30)
        assert "server_stood_still" in told
        assert "After" not in told


async def play(rounds: Sequence[Round]) -> None:
    """Let `one` stand still where all cases have begun, and wake where they have gone on elsewhere."""
    any_round = rounds[0]
    await asyncio.gather(*(anext(each.steps) for each in rounds))
    turns = {turn for each in rounds for turn in each.streaming()}
    assert len(turns) == len(rounds)
    await asyncio.sleep(random.uniform(0.0, LATEST))
    any_round.one.freeze()
    began, waited = time.monotonic(), any_round.starved()
    try:
        await asyncio.gather(*(anext(each.steps) for each in rounds))
        assert time.monotonic() - began - (any_round.starved() - waited) < GONE_SECONDS
        await any_round.until_dead()
        await eventually(lambda: not any(each.streaming() for each in rounds), "a turn of the other one goes on")
        for each in rounds:
            each.held.set()
        await asyncio.sleep(LATEST)
        kept, asked, runs = any_round.kept(), [len(each.asked) for each in rounds], any_round.runs()
    finally:
        any_round.one.thaw()
    for each in rounds:
        await each.interrupted()
    await asyncio.sleep(LATEST)
    assert ([len(each.asked) for each in rounds], any_round.runs()) == (asked, runs), "it has sent something"
    now = any_round.kept()
    # What it had said before may reach the database when it wakes, in its own turns.
    assert [row for row in kept - now if row[1] not in turns] == [], "it has changed something"
    assert [row for row in now - kept if row[1] not in turns or "After" in str(row)] == [], "it has written something"
    assert {(0, turn, turn, "interrupted") for turn in turns} <= now
    for each in rounds:
        await anext(each.steps, None)


async def streaming(each: Round) -> AsyncIterator[None]:
    """It says nothing more, and what it said is kept."""
    said = f"Before {each.number}. "
    each.script(Script(said, WaitFor(each.held), "After."), "Egrets.")
    await each.begins()
    await eventually(lambda: any(said.strip() in str(row) for row in each.kept()), "what it said is not kept")
    yield
    await each.goes_on("Egrets", "Go on.")
    yield
    assert any(said.strip() in str(row) for row in each.kept())


async def compacting(each: Round) -> AsyncIterator[None]:
    """Another one compacts the same conversation, and that compaction stays."""
    orders: list[Body] = []

    def says(body: Body) -> Script | str:
        if not is_prune_order(body):
            return "Well."
        orders.append(body)
        return Script(WaitFor(each.held), valid_plan(body)) if len(orders) == 1 else valid_plan(body)

    each.question[:0] = [
        {"role": role, "content": f"Part {part} of {each.number}: " + "herons stand in the shallows and wait. " * 18}
        for part in range(10)
        for role in ("user", "assistant")
    ]
    each.says = says
    await each.begins()
    assert len(orders) == 1
    yield
    await each.goes_on("Well")
    assert len(orders) > 1
    yield
    assert each.rows("SELECT 1 FROM ledger_entries")


async def taking(each: Round) -> AsyncIterator[None]:
    """What waits for its answer, or is in a prompt that no model has answered, another one reads, once."""
    queued, goes_on = f"And the egrets, {each.number}?", asyncio.Event()
    each.script(Script("Before. ", WaitFor(goes_on), "Now."), Script(WaitFor(each.held), "After."))
    await each.begins()  # a message that comes before the model is asked is read by it at once
    path = f"{each.one.url}/v1/conversations/{each.conversation}/queue"
    async with aiohttp.ClientSession(headers=BEARER) as http, http.post(path, json={"content": queued}) as put:
        assert put.status == 202, await put.text()
    goes_on.set()
    yield
    await each.until_dead()
    before = each.prompts(queued)
    each.script("Egrets.")
    await each.goes_on("Egrets", "Go on.")
    assert each.prompts(queued) == before + 1
    yield
    read = [row for row in each.kept() if row[0] == 2 and queued in str(row)]
    assert len(read) == 1
    assert each.rows("SELECT 1 FROM queue") == []


async def between_two_tools(each: Round) -> AsyncIterator[None]:
    """The next tool is not carried out, nor is the model asked about the last one."""
    before, call = each.runs(), ToolCall("append", {"seconds": TOOL_SECONDS})
    each.script(Script(call), Script(WaitFor(each.held), call))
    await each.begins()
    await eventually(lambda: each.runs() == before + 1, "the tool is not called")
    yield
    await each.until_dead()
    each.script(Script(call), "Egrets.")
    await each.goes_on("Egrets", "Go on.")
    assert each.runs() == before + 2
    yield
    assert each.runs() == before + 2


CASES = (streaming, compacting, taking, between_two_tools)
AGENTS = "".join(
    f'[[agents]]\nid = "{case.__name__}"\nmodel = "{case.__name__}"\nmcp = ["files/append"]\n' for case in CASES
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, pytest.param(20, marks=pytest.mark.long)], ids=["once", "20 rounds"])
@pytest.mark.timeout(900)
async def test_who_stands_still_does_nothing_more_of_it(tmp_path: Path, number: int) -> None:
    """Others go on with the conversations within 15 s, and when it wakes it writes, sends and carries out nothing."""
    journal = tmp_path / "journal"
    journal.touch()
    more = f"{AGENTS}[compaction]\nbackground = false\n{plain_server('files', journal)}"
    models = [
        SimulatedModel(case.__name__, loaded_context_length=2048 if case is compacting else 8192) for case in CASES
    ]
    rounds: dict[str, Round] = {}
    async with SimulatedLMStudio(models, on_request=lambda body: rounds[body["model"]].answer(body)) as studio:
        running = server_processes(tmp_path, 2, {"lmstudio": studio.base_url}, more=more)
        async with running as (servers, address):
            rounds["between_two_tools"] = Round(between_two_tools, number, servers, address, journal)
            for server in servers:  # which start the program with the tool before they call it
                assert (await rounds["between_two_tools"].say(server, [{"role": "user", "content": "Hello"}]))[0] == 200
            for each in range(number):
                cases = random.sample(CASES, len(CASES))
                rounds.update({case.__name__: Round(case, each, servers, address, journal) for case in cases})
                await play([rounds[case.__name__] for case in cases])
                sys.stdout.write(f"{each + 1} of {number}\n")
