"""What takes the room of a request, measured: the parts make up the whole prompt."""

from collections.abc import Sequence
from typing import Any

import pytest

from elbowroom.agents.prompt.body import StepRequest
from elbowroom.agents.prompt.counters import HistoryCounter, facts_by_family
from elbowroom.agents.prompt.step_prompt import StepPrompt
from elbowroom.agents.request import parse_chat_request
from elbowroom.agents.tools.client import arrange_tools
from elbowroom.agents.turn.room import fixed_cost_of
from elbowroom.context.budget import Budget
from elbowroom.context.fixed_cost import FixedCost
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.transcript import Message
from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.counter import TokenCounter

BUDGET = Budget(8192)
INFO = ModelInfo("qwen2.5-7b-instruct", "lm", "Qwen")
SYSTEM: Message = {"role": "system", "content": "You answer in one sentence. " * 10}
DEVELOPER: Message = {**SYSTEM, "role": "developer"}
ASKED: Message = {"role": "user", "content": "What is the tide like today?"}
INSTRUCTIONS = "You are a harbour master."


def tool(name: str, words: int) -> dict[str, Any]:
    """Return a tool that is described with so many words."""
    parameters = {"type": "object", "properties": {"place": {"type": "string", "description": "where " * words}}}
    function = {"name": name, "description": "tide " * words, "parameters": parameters}
    return {"type": "function", "function": function}


SMALL, LARGE = tool("small", 5), tool("large", 300)


def shape_of(tools: Sequence[dict[str, Any]], instructions: str | None = None) -> StepRequest:
    """Return a step whose client sends these tools."""
    request = parse_chat_request({"model": "m", "messages": [ASKED], "tools": list(tools)})
    return StepRequest(request, "m", {}, instructions, request.tools, step=1)


async def prompt_of(shape: StepRequest) -> StepPrompt:
    """Return a prompt that is counted by the vocabulary of the model's family."""
    counter = TokenCounter(INFO.id, None)
    facts = facts_by_family(counter.family)
    history = HistoryCounter(counter, shape.body(()), facts, await counter.text_counter())
    return StepPrompt(shape, INFO, AgentContextManager(BUDGET), history, await counter.stream())


async def measured(
    messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), instructions: str | None = None
) -> tuple[int, StepPrompt, FixedCost]:
    """Return the size of a prompt, what counted it, and how it is divided."""
    prompt = await prompt_of(shape_of(tools, instructions))
    size = await prompt.most(messages)
    return size, prompt, fixed_cost_of(prompt, messages, size)


@pytest.mark.parametrize("instructions", [None, INSTRUCTIONS])
@pytest.mark.parametrize("tools", [[], [SMALL], [SMALL, LARGE, tool("other", 77)]], ids=["none", "one", "three"])
@pytest.mark.parametrize("messages", [[ASKED], [SYSTEM, ASKED], [DEVELOPER, ASKED, {**ASKED, "role": "assistant"}]])
async def test_parts_add_up_to_the_prompt(
    messages: list[Message], tools: list[dict[str, Any]], instructions: str | None
) -> None:
    """System, tools and messages together are as large as the prompt that was counted, to the token."""
    size, _, cost = await measured(messages, tools, instructions)
    assert cost.prompt == size
    assert cost.window == BUDGET.window
    assert cost.reserve == BUDGET.reserve(size)
    assert [name for name, _ in cost.tools] == [entry["function"]["name"] for entry in tools]


async def test_texts_are_measured_as_they_are() -> None:
    """The system message is measured with the agent's instructions in it, the others by their text."""
    _, prompt, cost = await measured([SYSTEM, ASKED], [SMALL], INSTRUCTIONS)
    assert cost.system == prompt.text(f"{INSTRUCTIONS}\n\n{SYSTEM['content']}")
    assert cost.pinned == prompt.text(ASKED["content"])


async def test_a_large_tool_is_seen_to_be_large() -> None:
    """Tools share what they take together by their sizes, in the order in which they were sent."""
    _, _, cost = await measured([ASKED], [SMALL, LARGE])
    (_, small), (_, large) = cost.tools
    assert 0 < small < large / 5


async def test_without_tools_the_template_counts_as_messages() -> None:
    """What stands around the texts is no system message and no tool."""
    size, prompt, cost = await measured([SYSTEM, ASKED])
    assert cost.tools == ()
    assert cost.pinned == size - cost.system > prompt.text(ASKED["content"])


async def test_a_prompt_smaller_than_its_texts_is_divided_too() -> None:
    """A template may leave out some of a message, such as former thoughts: no more is divided than the prompt has."""
    prompt = await prompt_of(shape_of([SMALL]))
    for size in (5, 40, 60):
        cost = fixed_cost_of(prompt, [SYSTEM, ASKED], size)
        assert cost.prompt == size
        assert min(cost.system, cost.pinned, cost.all_tools) >= 0


async def test_slim_tools_save_what_they_would() -> None:
    """What slim tools would save is what a prompt with them is shorter by, but for a few tokens."""
    tools = [SMALL, LARGE]
    size, _, cost = await measured([ASKED], tools)
    slim_size, _, slim_cost = await measured([ASKED], arrange_tools(tools, "slim"))
    assert cost.slim_saves > 500
    assert cost.slim_saves == pytest.approx(size - slim_size, rel=0.05)
    assert slim_cost.slim_saves == 0


@pytest.mark.parametrize("tools", [[], [{"type": "function", "function": {"name": "look"}}], [{"type": "search"}]])
async def test_nothing_is_saved_where_nothing_is_described(tools: list[dict[str, Any]]) -> None:
    """Without descriptions there is nothing to make slim."""
    _, _, cost = await measured([ASKED], tools)
    assert cost.slim_saves == 0


async def test_calls_are_no_cost_of_the_tools() -> None:
    """Many calls in one message have to stay with it: the tools are no larger for them."""
    made = [{"id": f"c{n}", "type": "function", "function": {"name": "small", "arguments": "{}"}} for n in range(40)]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "calm"} for call in made]
    called = [ASKED, {"role": "assistant", "content": "", "tool_calls": made}, *results]
    _, _, alone = await measured([ASKED], [SMALL])
    _, _, cost = await measured(called, [SMALL])
    assert cost.all_tools - alone.all_tools < cost.pinned // 2


async def test_pictures_are_no_cost_of_the_tools() -> None:
    """What pictures take belongs to the message that has them: no tool is larger for them."""
    pictures = [{"type": "image_url", "image_url": {"url": "https://example.org/pier.png"}}] * 3
    shown: Message = {"role": "user", "content": [{"type": "text", "text": ASKED["content"]}, *pictures]}
    _, _, alone = await measured([SYSTEM, ASKED], [SMALL, LARGE])
    size, _, cost = await measured([SYSTEM, shown], [SMALL, LARGE])
    assert cost.all_tools <= alone.all_tools
    assert cost.pinned > size // 2
    assert cost.prompt == size
