"""The first check: measures a prompt and decides whether it is sent, compacted first, or cannot be sent at all."""

from collections.abc import Sequence

from elbowroom.agents.step_counter import StepCounter
from elbowroom.context.compaction import smallest
from elbowroom.context.decisions import Compact, Decision, Measure, Send
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.transcript import Message


async def decide(
    messages: Sequence[Message],
    counter: StepCounter,
    manager: AgentContextManager,
    *,
    must_shrink: bool = False,
    tells_tight: bool = False,
) -> Decision:
    """Return what to do with a history; with `must_shrink` it needs room even below the trigger.

    The fixed cost, a second count, is measured only where the decision depends on it, or with `tells_tight` whether
    most of the window is taken by it.
    """
    budget = manager.budget
    prompt = await counter.prompt(messages)
    occupied = budget.occupied(prompt)
    matters = occupied >= budget.trigger or ((must_shrink or tells_tight) and occupied > budget.window // 2)
    fixed = await counter.prompt(smallest(messages)) if matters else 0
    decision = manager.before_request(Measure(prompt, fixed))
    target = budget.target(budget.occupied(fixed))
    if must_shrink and isinstance(decision, Send) and occupied > target:
        return Compact(target, is_tight=decision.is_tight)
    return decision


async def by_hand(
    messages: Sequence[Message], counter: StepCounter, manager: AgentContextManager
) -> tuple[int, Compact]:
    """Return a history's size, and the order to compact it below the trigger too: by half of what can be freed."""
    budget = manager.budget
    before, fixed = await counter.prompt(messages), await counter.prompt(smallest(messages))
    halved = (budget.occupied(before) + budget.occupied(fixed)) // 2
    return before, Compact(min(budget.target(budget.occupied(fixed)), halved))
