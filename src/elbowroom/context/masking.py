"""Masks old results of a client's own tools where that costs the session less than a compaction, without I/O.

Oldest first and many at once, but for the last messages, which stay as in a compaction. What only reads goes first: its
call brings it again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from elbowroom.context.budget import Budget, Compact
from elbowroom.context.compaction import tail_starts
from elbowroom.context.costs import Action, Engine, cheapest, compaction
from elbowroom.context.effects import Ask, KeepText, Work, counted
from elbowroom.context.outputs import Mask, masked, masks_of
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message, Transcript, written
from elbowroom.settings.model import ToolKind


@dataclass(frozen=True, slots=True)
class ClientTools:
    """What is known of the tools that a client runs itself, and of the engine that reads their results.

    `kinds` are the declared kinds of tools, `id_of` returns the id under which a text is kept, and `size_of` counts it.
    """

    kinds: Mapping[str, ToolKind]
    id_of: Callable[[str], str]
    size_of: Callable[[str], int]
    engine: Engine


@dataclass(frozen=True, slots=True)
class Chosen:
    """Note which way to make room was chosen, and the reason, which tells what each way costs."""

    action: Action
    reason: str


@dataclass(frozen=True, slots=True)
class Masking:
    """A history of which old results are masked, and the masks.

    An engine reads `read` tokens of it anew, and `unread` that came since the model's last words in any case.
    """

    messages: list[Message]
    masks: tuple[Mask, ...]
    read: int
    unread: int


def masked_instead(
    history: Prompt, budget: Budget, decision: Compact, expected: Sequence[Message] = ()
) -> Work[list[Message] | None]:
    """Return the history with masks, which are kept whole, in place of a compaction; None where that is better."""
    tools: ClientTools | None = yield Ask.CLIENT_TOOLS
    if tools is None or decision.is_wanted:
        return None
    found: Masking | None = None
    after = 0
    for found in _maskings(history, tools):
        after = budget.occupied((yield from counted([*found.messages, *expected])))
        if after <= decision.target:
            break
    if found is None or after >= budget.trigger or (decision.is_firm and after > decision.target):
        return None
    for_summary = decision.target - budget.occupied((yield from counted(history.smallest())))
    room = budget.trigger - decision.target
    plan = compaction(tools.engine, max(0, for_summary), room, is_planned=decision.asks_pruner)
    mask = Action("mask", found.read, 0, budget.trigger - after)
    chosen, other = (mask, plan) if cheapest((mask, plan), tools.engine, found.unread) is mask else (plan, mask)
    yield Chosen(chosen, f"{chosen.told(tools.engine)}; {other.told(tools.engine)}")
    if chosen is plan:
        return None
    for each in found.masks:
        yield KeepText(each.tool, each.whole)
    return found.messages


def _maskings(history: Prompt, tools: ClientTools) -> Iterator[Masking]:
    """Yield the history with old results masked, of which less and less stays."""
    messages = history.messages
    groups = Transcript.of(messages).groups
    ends = [sum(len(group.messages) for group in groups[:start]) for start in tail_starts(groups, 0)]
    last = max(ends)
    pinned = {at for at, item in enumerate(history.items) if item.is_pinned}
    masks = masks_of(messages, last, tools.kinds, tools.id_of, pinned)
    for lasting, end in product((False, True), ends):
        chosen = tuple(mask for mask in masks if mask.place < end and (lasting or not mask.is_lasting))
        if chosen:
            shorter = masked(messages, chosen)
            read, unread = (
                sum(tools.size_of(written(message)) for message in run)
                for run in (shorter[chosen[0].place : last], shorter[last:])
            )
            yield Masking(shorter, chosen, read, unread)
