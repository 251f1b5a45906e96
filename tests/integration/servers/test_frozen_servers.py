"""A server stands still, as a machine does that sleeps: others go on with what it did, and it does nothing of it."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import eventually
from mcp_sample import stdio_server
from postgresql import shared_server
from scripted_pruner import is_prune_order, valid_plan
from server_processes import BEARER, OneServer, server_processes
from several_servers import MODEL

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor

Body = dict[str, Any]
GONE_SECONDS = 15.0
AGENT = f"""
[[agents]]
id = "writer"
model = "{MODEL}"
mcp = ["files/append"]
[compaction]
background = false
"""
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
    """Two servers with one LM Studio; `one` stands still while it answers, and `other` goes on."""

    def __init__(
        self, number: int, servers: Sequence[OneServer], studio: SimulatedLMStudio, address: str, journal: Path
    ) -> None:
        self.one, self.other = servers
        self.studio = studio
        self.number = number
        self.held = asyncio.Event()
        """Set while `one` stands still: from then on the model goes on that it has asked."""
        self.question: list[Body] = [{"role": "user", "content": f"Herons, {number}?"}]
        self._asking: asyncio.Task[tuple[int, str]] | None = None
        self._database = address.rpartition("/")[2]
        self._journal = journal

    def rows(self, statement: str) -> list[Any]:
        """Return the rows of a statement."""
        return shared_server().ask(statement, self._database)

    def kept(self) -> set[Any]:
        """Return all rows that are kept."""
        return {(kind, *row) for kind, statement in enumerate(KEPT) for row in self.rows(statement)}

    def prompts(self, text: str) -> int:
        """Return how often the model was sent a text."""
        return sum(text in str(chat.body["messages"]) for chat in self.studio.chats)

    def runs(self) -> int:
        """Return how often the tool was carried out."""
        return self._journal.read_text(encoding="utf-8").splitlines().count("appended")

    def script(self, *scripts: Script | str) -> None:
        """Have the model give these answers from now on, in order."""
        left = list(scripts)
        self.studio.on_request = lambda _: left.pop(0) if left else "After."

    async def say(self, server: OneServer, messages: Sequence[Body]) -> tuple[int, str]:
        """Ask for an answer that streams; return the status, and all that came."""
        body = {"model": "writer", "messages": list(messages), "stream": True}
        named = {"X-Conversation-Id": f"heron {self.number}"}
        async with aiohttp.ClientSession(headers=BEARER | named) as http:
            async with http.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                return answer.status, (await answer.read()).decode()

    async def begins(self, is_so: Callable[[], object]) -> None:
        """Have `one` answer, and wait until this is so."""
        self._asking = asyncio.create_task(self.say(self.one, self.question))
        await eventually(is_so, f"round {self.number} has not begun")

    async def goes_on(self, said: str, *more: str) -> None:
        """Have `other` answer the same conversation, which has to say this."""
        messages = [*self.question, *({"role": "user", "content": text} for text in more)]
        status, told = await self.say(self.other, messages)
        assert (status, f'"{said}"' in told) == (200, True), told

    async def until_dead(self) -> None:
        """Wait until `other` has seen that `one` is not there, and looked after what it has left."""
        gone = "SELECT id FROM servers WHERE renewed < extract(epoch FROM clock_timestamp()) - 10"
        left = f"SELECT 1 FROM turns WHERE status = 'streaming' AND server IN ({gone})"
        await eventually(lambda: self.rows(gone) and not self.rows(left), "it counts as dead", GONE_SECONDS)

    async def play(self, case: Callable[["Round"], AsyncIterator[None]]) -> None:
        """Let `one` stand still where the case has begun, and wake where it has gone on elsewhere."""
        steps = case(self)
        await anext(steps)
        running = "SELECT id FROM turns WHERE status = 'streaming'"
        await eventually(lambda: self.rows(running), "its turn is not kept")
        [(turn,)] = self.rows(running)
        await asyncio.sleep(random.uniform(0.0, LATEST))
        self.one.freeze()
        began = time.monotonic()
        try:
            await anext(steps)
            assert time.monotonic() - began < GONE_SECONDS
            await self.until_dead()
            self.held.set()
            await asyncio.sleep(LATEST)
            kept, prompts, runs = self.kept(), len(self.studio.chats), self.runs()
        finally:
            self.one.thaw()
        assert self._asking is not None
        _, told = await asyncio.wait_for(self._asking, 30)
        assert "server_stood_still" in told
        assert "After" not in told
        await asyncio.sleep(LATEST)
        assert (len(self.studio.chats), self.runs()) == (prompts, runs), "it has sent something"
        now = self.kept()
        # What it had said before may reach the database when it wakes, in its own turn.
        assert [row for row in kept - now if row[1] != turn] == [], "it has changed something"
        assert [row for row in now - kept if row[1] != turn or "After" in str(row)] == [], "it has written something"
        assert (0, turn, turn, "interrupted") in now
        await anext(steps, None)


async def streaming(each: Round) -> AsyncIterator[None]:
    """It says nothing more, and what it said is kept."""
    said = f"Before {each.number}. "
    each.script(Script(said, WaitFor(each.held), "After."), "Egrets.")
    await each.begins(lambda: any(said.strip() in str(row) for row in each.kept()))
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
    each.studio.on_request = says
    await each.begins(lambda: len(orders) == 1)
    yield
    await each.goes_on("Well")
    assert len(orders) > 1
    yield
    assert each.rows("SELECT 1 FROM ledger_entries")


async def taking(each: Round) -> AsyncIterator[None]:
    """What waits for its answer, or is in a prompt that no model has answered, another one reads, once."""
    queued, goes_on = f"And the egrets, {each.number}?", asyncio.Event()
    each.script(Script("Before. ", WaitFor(goes_on), "Now."), Script(WaitFor(each.held), "After."))
    await each.begins(lambda: each.rows("SELECT 1 FROM turns WHERE status = 'streaming'"))
    path = f"{each.one.url}/v1/conversations/heron {each.number}/queue"
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
    await each.begins(lambda: each.runs() == before + 1)
    yield
    await each.until_dead()
    each.script(Script(call), "Egrets.")
    await each.goes_on("Egrets", "Go on.")
    assert each.runs() == before + 2
    yield
    assert each.runs() == before + 2


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.long)], ids=["once", "20 rounds"])
@pytest.mark.parametrize("case", [streaming, compacting, taking, between_two_tools])
@pytest.mark.timeout(900)
async def test_who_stands_still_does_nothing_more_of_it(
    tmp_path: Path, case: Callable[[Round], AsyncIterator[None]], rounds: int
) -> None:
    """Others go on with the conversation within 15 s, and when it wakes it writes, sends and carries out nothing."""
    journal = tmp_path / "journal"
    journal.touch()
    more = AGENT + stdio_server("files", journal)
    window = 2048 if case is compacting else 8192
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=window)]) as studio:
        running = server_processes(tmp_path, 2, {"lmstudio": studio.base_url}, more=more)
        async with running as (servers, address):
            for number in range(rounds):
                await Round(number, servers, studio, address, journal).play(case)
                sys.stdout.write(f"{case.__name__}: {number + 1} of {rounds}\n")
