"""What has come in fits also where a bare text is counted by another vocabulary than the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from elbowroom.context.budget import Budget
from elbowroom.context.effects import Aside, Count, KeepText
from elbowroom.context.fitting import fitting_material
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.outputs import ref_to
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import text_of

if TYPE_CHECKING:
    from elbowroom.context.effects import Work

WINDOW = 8000
PASTED = "What is it?\n\n" + "x" * 60_000


def run(plan: Work[Any], letters_a_token: float) -> Any:
    """Carry a plan out where the engine counts prompts so."""
    answer: Any = None
    while True:
        try:
            effect = plan.send(answer)
        except StopIteration as end:
            return end.value
        match effect:
            case Count(messages):
                answer = int(sum(len(text_of(message)) for message in messages) / letters_a_token)
            case Aside(work):
                answer = work()
            case KeepText():
                answer = ref_to("", effect.text)
            case _:
                raise AssertionError(effect)


@pytest.mark.parametrize("times", [1, 1.5, 3, 8])
def test_material_fits_however_dense_it_is_for_the_engine(times: float) -> None:
    """A text of which the engine counts many times the tokens that were expected is shown as far as it fits."""
    history = Prompt.of([{"role": "user", "content": PASTED}])
    manager = AgentContextManager(Budget(WINDOW), history=history)
    shorter, _ = run(fitting_material(history, manager, lambda text: len(text) // 4, has_reader=False), 4 / times)
    shown = text_of(shorter[0])
    prompt = int(len(shown) * times / 4)
    assert manager.budget.occupied(prompt) < manager.budget.trigger
    assert prompt > WINDOW // 8, "much less is shown than there is room for"


def test_material_that_was_shortened_too_little_is_shortened_again() -> None:
    """What was shown of a text before the engine was known to count more of it does not end the chat for good."""
    shown = PASTED
    for times in (1, 8):
        history = Prompt.of([{"role": "user", "content": shown}])
        manager = AgentContextManager(Budget(WINDOW), history=history)
        plan = fitting_material(history, manager, lambda text: len(text) // 4, has_reader=False)
        shown = text_of(run(plan, 4 / times)[0][0])
    assert len(shown) * 8 // 4 < WINDOW
    assert shown.startswith("What is it?\n\nxxx")


def test_material_stays_where_a_new_result_leaves_no_room() -> None:
    """The result is shortened instead: the beginning of the prompt, which the engine has read, keeps its bytes."""
    history = Prompt.of([{"role": "user", "content": PASTED}])
    manager = AgentContextManager(Budget(WINDOW), history=history)
    shown, _ = run(fitting_material(history, manager, lambda text: len(text) // 4, has_reader=False), 4)
    call = {"id": "call00001", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call00001", "content": "y" * 60_000}
    history = Prompt.of([*shown, {"role": "assistant", "content": "", "tool_calls": [call]}, result])
    manager = AgentContextManager(Budget(WINDOW), history=history)
    assert run(fitting_material(history, manager, lambda text: len(text) // 4, has_reader=False), 4) is None
