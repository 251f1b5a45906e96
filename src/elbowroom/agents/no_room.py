"""What a person is told where a prompt leaves little room in the window, or none."""

from collections.abc import Sequence

from elbowroom.agents.fixed_cost_report import FixedCostReport, fixed_cost_report
from elbowroom.agents.request_body import StepRequest
from elbowroom.agents.step_counter import StepCounter
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import smallest
from elbowroom.context.fixed_cost import notice_of, refusal_of
from elbowroom.context.transcript import Message
from elbowroom.errors import ContextOverflow


async def overflow_error(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget, *, auto: bool
) -> ContextOverflow:
    """Return the error for a prompt that cannot fit, with the numbers and what the person can do."""
    prompt = await counter.prompt(messages)
    report = await _report(messages, shape, counter, budget)
    if report.cost.prompt >= budget.window:
        message = refusal_of(report.cost, slim_saves=report.slim_saves)
    else:
        remedy = "" if auto else ", let the history be compacted (compaction.auto)"
        message = (
            f"This model's maximum context length is {budget.window} tokens. The request needs {prompt}. Load the "
            f"model with a larger context length{remedy}, or begin a new conversation."
        )
    return ContextOverflow(message, window=budget.window, prompt_tokens=prompt)


async def tight_notice(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget
) -> str | None:
    """Return what takes most of a tight window, None where it is the person's own words."""
    report = await _report(messages, shape, counter, budget)
    if report.cost.total <= 2 * report.cost.pinned:
        return None
    return notice_of(report.cost, slim_saves=report.slim_saves)


async def _report(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget
) -> FixedCostReport:
    least = smallest(messages)
    return fixed_cost_report(counter, shape, least, await counter.prompt(least), budget)
