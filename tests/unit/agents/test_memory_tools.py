"""The tools by which an agent remembers."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from memory_stores import MemoryMemories

from elbowroom.agents.tools.memory import LONGEST_MEMORY, memory_tools, remembers
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.errors import ElbowroomError
from elbowroom.settings.model import MemorySettings
from elbowroom.settings.references import TOOLS

DAY = 86_400.0
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


class Clock:
    """Unix seconds that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


class Agent:
    """An agent with both tools."""

    def __init__(self, memories: MemoryMemories, clock: Clock, owner: str = "", agent: str = "writer") -> None:
        self.save, self.search = memory_tools(TOOLS, memories, owner, agent, clock)

    async def saves(self, text: str) -> str:
        return await answer(self.save, {"text": text})

    async def finds(self, **arguments: Any) -> str:
        return await answer(self.search, arguments)


async def answer(tool: ServerTool, arguments: Mapping[str, Any]) -> str:
    """Return what a tool answers, which is text."""
    said = await tool.call(arguments)
    assert isinstance(said, str)
    return said


@pytest.fixture
def memories() -> MemoryMemories:
    """Return memories without anything in them."""
    return MemoryMemories()


@pytest.fixture
def clock() -> Clock:
    """Return a clock at noon on 1 March 2026."""
    return Clock()


async def test_what_was_saved_is_found_with_its_date(memories: MemoryMemories, clock: Clock) -> None:
    """A fact is one line with the day on which it was saved; the newest comes first."""
    agent = Agent(memories, clock)
    assert await agent.saves("The user is\n called  Ana.") == "Remembered."
    clock.now += DAY
    await agent.saves("Ana has a dog.")
    assert (
        await agent.finds() == "2 of 2 memories:\n- 2026-03-02: Ana has a dog.\n- 2026-03-01: The user is called Ana."
    )
    assert await agent.finds(query="called") == "1 of 2 memories:\n- 2026-03-01: The user is called Ana."


async def test_an_equal_fact_is_renewed_and_told(memories: MemoryMemories, clock: Clock) -> None:
    """The same words again are no second memory, but the newest one; the model is told so."""
    agent = Agent(memories, clock)
    await agent.saves("Ana has a dog.")
    await agent.saves("Ana lives in Lima.")
    clock.now += DAY
    said = await agent.saves("ana has a DOG")
    assert "already" in said
    assert said.endswith(": Ana has a dog.")
    assert "2026-03-01" in said
    found = await agent.finds()
    assert found == "2 of 2 memories:\n- 2026-03-02: Ana has a dog.\n- 2026-03-01: Ana lives in Lima."


@pytest.mark.parametrize("text", ["", " \n\t", "x" * (LONGEST_MEMORY + 1)])
async def test_what_cannot_be_remembered_is_refused_in_a_sentence(
    memories: MemoryMemories, clock: Clock, text: str
) -> None:
    """Nothing and too much are errors that say what to do; nothing is saved."""
    with pytest.raises(ElbowroomError, match=r"^text: .*\.$"):
        await Agent(memories, clock).saves(text)
    assert await memories.all("", "writer") == []


async def test_the_longest_fact_is_remembered_whole(memories: MemoryMemories, clock: Clock) -> None:
    """White space around it does not count."""
    await Agent(memories, clock).saves("\n" + "ü" * LONGEST_MEMORY + "\n")
    assert [memory.text for memory in await memories.all("", "writer")] == ["ü" * LONGEST_MEMORY]


@pytest.mark.parametrize(
    ("arguments", "where"),
    [({}, "text"), ({"text": None}, "text"), ({"text": ["a"]}, "text"), ({"text": "a", "tags": 1}, "tags")],
)
async def test_arguments_that_do_not_fit_are_named(
    memories: MemoryMemories, clock: Clock, arguments: dict[str, Any], where: str
) -> None:
    """The error names the argument and what the tool takes."""
    with pytest.raises(ElbowroomError, match=rf"^{where}: .* It takes: text\.$"):
        await answer(Agent(memories, clock).save, arguments)


async def test_search_takes_what_models_send(memories: MemoryMemories, clock: Clock) -> None:
    """Null is what was left out, a number may be text, and a limit has a bound of its own."""
    agent = Agent(memories, clock)
    for number in range(60):
        await agent.saves(f"Fact {number}")
        clock.now += 1
    assert (await agent.finds(query=None, limit=None)).startswith("10 of 60 memories:\n- 2026-03-01: Fact 59\n")
    assert await agent.finds(limit="1") == "1 of 60 memories:\n- 2026-03-01: Fact 59"
    assert (await agent.finds(limit=1_000_000)).count("\n- ") == 50
    with pytest.raises(ElbowroomError, match=r"^limit: "):
        await agent.finds(limit=0)


async def test_nothing_found_says_what_there_is(memories: MemoryMemories, clock: Clock) -> None:
    """No memory at all is told from none with these words."""
    agent = Agent(memories, clock)
    assert await agent.finds(query="dog") == "Nothing has been remembered yet."
    await agent.saves("Ana has a cat.")
    assert (await agent.finds(query="dog")).startswith("None of 1 memories")


async def test_owners_and_agents_do_not_see_each_other(memories: MemoryMemories, clock: Clock) -> None:
    """What one agent saves of one owner is found by that agent for that owner only."""
    await Agent(memories, clock, "ana", "writer").saves("Secret of Ana")
    for owner, agent in (("bob", "writer"), ("ana", "coder"), ("", "writer")):
        assert await Agent(memories, clock, owner, agent).finds() == "Nothing has been remembered yet."


def test_only_named_tools_are_there_in_one_order(memories: MemoryMemories, clock: Clock) -> None:
    """The prompt begins with the tools: their order and bytes never change."""
    names = [tool.name for tool in memory_tools(["search_memory", "save_memory"], memories, "", "a", clock)]
    assert names == ["save_memory", "search_memory"]
    assert memory_tools(["vault.read"], memories, "", "a", clock) == []
    only = memory_tools(["search_memory"], memories, "", "a", clock)
    assert [(tool.name, tool.kind) for tool in only] == [("search_memory", "query")]
    saver = memory_tools(["save_memory"], memories, "", "a", clock)[0]
    assert saver.kind == "write"
    assert saver.parameters["required"] == ["text"]
    assert set(saver.parameters["properties"]["text"]) == {"type", "description"}


@pytest.mark.parametrize(
    ("tools", "enabled", "does"),
    [(["save_memory"], True, True), (["search_memory"], True, True), (["vault"], True, False), (TOOLS, False, False)],
)
def test_an_agent_remembers_where_both_settings_say_so(tools: list[str], enabled: bool, does: bool) -> None:
    """The table turns it on, and an agent's tools for this agent."""
    assert remembers(tools, MemorySettings(enabled=enabled)) is does
