"""How many old results of a client's tools are masked: what the target asks for, and more where a person would wait."""

import json
from typing import Any, Final

import pytest

from elbowroom.context.budget import Budget, Compact
from elbowroom.context.costs import LEAST_TOLD, Action, Engine, gentlest
from elbowroom.context.effects import Ask, Count, KeepText
from elbowroom.context.masking import Chosen, ClientTools, masked_instead
from elbowroom.context.outputs import is_stub
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message, text_of, written

WINDOW: Final = 16_384
RESULT: Final = 1000  # tokens
BUDGET: Final = Budget(WINDOW)
TARGET: Final = BUDGET.target(1000)


def size_of(text: str) -> int:
    """Return the tokens of a text, of which each has four letters."""
    return len(text) // 4


def history(results: int) -> Prompt:
    """Return a conversation whose model has read so many files, the last of which it has not seen yet."""
    messages: list[Message] = [{"role": "user", "content": "Read all files."}]
    for at in range(results):
        function = {"name": "read", "arguments": json.dumps({"path": f"src/{at}.txt"})}
        call = {"id": f"call{at:05}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{at}. ".ljust(4 * RESULT, "x")})
    return Prompt.of(messages)


def masked_by(engine: Engine, prompt: Prompt, decision: Compact) -> tuple[list[Message] | None, list[Any]]:
    """Return what an engine of these speeds gets of a history that has to shrink, and what else was asked for."""
    tools = ClientTools({}, lambda text: "out_1", size_of, engine)
    work, answer, asked = masked_instead(prompt, BUDGET, decision), None, []
    while True:
        try:
            effect = work.send(answer)
        except StopIteration as end:
            return end.value, asked
        answer = None
        if isinstance(effect, Count):
            answer = sum(size_of(written(message)) for message in effect.messages)
        elif effect is Ask.CLIENT_TOOLS:
            answer = tools
        else:
            asked.append(effect)


def whole(messages: list[Message]) -> int:
    """Return how many results stand word for word."""
    return sum(message["role"] == "tool" and not is_stub(text_of(message)) for message in messages)


@pytest.mark.parametrize(("reading", "left"), [(100_000, 5), (1500, 5), (300, 4), (20, 1)])
def test_the_depth(reading: float, left: int) -> None:
    """A fast engine keeps as many words as the target leaves; a slow one fewer, since it reads again what is kept."""
    shorter, asked = masked_by(Engine(reading, 20), history(12), Compact(TARGET))
    assert shorter is not None
    assert whole(shorter) == left
    assert BUDGET.occupied(sum(size_of(written(message)) for message in shorter)) <= TARGET
    assert sum(isinstance(each, KeepText) for each in asked) == 12 - left
    assert [each.action.way for each in asked if isinstance(each, Chosen)] == ["mask"]


def test_nothing_to_mask() -> None:
    """What the model has not read yet stays whole, however little room it leaves."""
    assert masked_by(Engine(300, 20), history(1), Compact(TARGET)) == (None, [])


def test_a_wait_that_nobody_notices() -> None:
    """The first way that costs each request less than a told wait is taken, else the cheapest for each."""
    engine, step = Engine(100, 20), 1000
    noticed = int(LEAST_TOLD * 100)
    ways = [Action("mask", noticed * read, 0, 1000 * room) for read, room in ((9, 1), (4, 2), (2, 3), (1, 4))]
    assert gentlest(ways, engine, step) is ways[2]
    assert gentlest(ways[:2], engine, step) is ways[1]
