"""The second check: tool results that have just come in stand whole in the prompt where they fit, else in part."""

import logging
from collections.abc import Callable, Sequence
from math import ceil

from elbowroom.agents.step_counter import StepCounter
from elbowroom.context.compaction import smallest
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.message_content import with_text
from elbowroom.context.tool_results import room_for_results, shares, shortened
from elbowroom.context.transcript import SYSTEM_ROLES, Message, text_of

log = logging.getLogger(__name__)


async def fitting_results(
    messages: Sequence[Message],
    counter: StepCounter,
    manager: AgentContextManager,
    view: Callable[[str, int], str | None] | None = None,
) -> list[Message] | None:
    """Return the conversation with beginning and end of results that are too large; None where all stay whole.

    `view` gives for a result that can be read again what is shown of it in so many tokens, None for others.
    """
    end = len(messages)
    while end and messages[end - 1].get("role") in ("user", *SYSTEM_ROLES):
        end -= 1
    first = end
    while first and messages[first - 1].get("role") == "tool":
        first -= 1
    results, behind = messages[first:end], messages[end:]
    if not results or (prompt := await counter.prompt(messages)) < manager.budget.window // 2:
        return None
    emptied = [with_text(result, "") for result in results]
    rest = await counter.prompt(smallest([*messages[:first], *emptied, *behind]))
    size_of = _ruler(counter, results, await counter.prompt(smallest(messages)) - rest)
    sizes = [size_of(text_of(result)) for result in results]
    if manager.before_tool_results(prompt, rest, sizes) != "too large":
        return None
    room = room_for_results(manager.budget, rest)

    def shown(text: str, tokens: int) -> str | None:
        return view(text, tokens * counter.text(text) // max(1, size_of(text))) if view is not None else None

    log.info("Tool results of %d tokens are shortened to fit %d.", sum(sizes), room)
    fitting = [
        result
        if size <= share
        else with_text(result, _smaller(text_of(result), share, manager.budget.window, size_of, shown))
        for result, size, share in zip(results, sizes, shares(sizes, room), strict=True)
    ]
    return [*messages[:first], *fitting, *behind]


def _ruler(counter: StepCounter, results: Sequence[Message], size: int) -> Callable[[str], int]:
    """Return a counter of bare texts that agrees with the size that these results have in a prompt.

    Where only the engine can count a prompt, bare texts are counted with the vocabulary of another model.
    """
    counted = sum(counter.text(text_of(result)) for result in results)
    return lambda text: ceil(counter.text(text) * size / max(1, counted))


def _smaller(
    text: str, share: int, window: int, size_of: Callable[[str], int], shown: Callable[[str, int], str | None]
) -> str:
    smaller = shown(text, share)
    return smaller if smaller is not None else shortened(text, share, window, size_of)
