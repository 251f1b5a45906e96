"""Masks old results of a client's own tools where that costs the session less than a compaction, without I/O.

Oldest first and many at once, but for the last messages, which stay as in a compaction. What only reads goes first: its
call brings it again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elbowroom.context.budget import Budget, Compact
from elbowroom.context.compaction import tail_starts
from elbowroom.context.costs import Action, Engine, cheapest, compaction, gentlest
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
    """Some of the masks that a history can have, the oldest first, which make it shorter by `saved` tokens.

    An engine reads `read` tokens of it anew.
    """

    masks: tuple[Mask, ...]
    saved: int
    read: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The tokens of each message of a history, in which nothing from `last` on was read by the model yet.

    A request has brought `step` tokens on average.
    """

    of: Sequence[int]
    last: int
    step: int


def masked_instead(
    history: Prompt, budget: Budget, decision: Compact, expected: Sequence[Message] = ()
) -> Work[list[Message] | None]:
    """Return the history with masks, which are kept whole, in place of a compaction; None where that is better.

    At most the target is left. More results go only where a person would notice the wait for what is read again.
    """
    tools: ClientTools | None = yield Ask.CLIENT_TOOLS
    if tools is None or decision.is_wanted:
        return None
    messages = history.messages
    sizes = _sizes(history, tools)
    maskings = list(_maskings(history, tools, sizes))
    if not maskings:
        return None
    prompt = yield from counted([*messages, *expected])
    afters = [budget.occupied(max(0, prompt - masking.saved)) for masking in maskings]
    enough = next((at for at, after in enumerate(afters) if after <= decision.target), len(maskings) - 1)
    ways = [
        Action("mask", masking.read, 0, budget.trigger - after)
        for masking, after in zip(maskings[enough:], afters[enough:], strict=True)
    ]
    mask = gentlest(ways, tools.engine, sizes.step)
    first, *deeper = maskings[enough + ways.index(mask) :]
    for found in (first, *deeper[-1:]):
        shorter = masked(messages, found.masks)
        after = budget.occupied((yield from counted([*shorter, *expected])))
        if not decision.is_firm or after <= decision.target:
            break
    else:
        return None
    if after >= budget.trigger:
        return None
    for_summary = decision.target - budget.occupied((yield from counted(history.smallest())))
    room = budget.trigger - decision.target
    plan = compaction(tools.engine, max(0, for_summary), room, is_planned=decision.asks_pruner)
    chosen, other = (mask, plan) if cheapest((mask, plan), tools.engine, sizes.step) is mask else (plan, mask)
    yield Chosen(chosen, f"{chosen.told(tools.engine)}; {other.told(tools.engine)}")
    if chosen is plan:
        return None
    for each in found.masks:
        yield KeepText(each.tool, each.whole)
    return shorter


def _sizes(history: Prompt, tools: ClientTools) -> Sizes:
    """Return the sizes of the messages, as they are written."""
    messages = history.messages
    groups = Transcript.of(messages).groups
    last = sum(len(group.messages) for group in groups[: max(tail_starts(groups, 0))])
    of = [tools.size_of(written(message)) for message in messages]
    said = sum(size for size, message in zip(of, messages, strict=True) if message.get("role") != "system")
    answers = sum(message.get("role") == "assistant" for message in messages)
    return Sizes(of, last, said // max(1, answers))


def _maskings(history: Prompt, tools: ClientTools, sizes: Sizes) -> Iterator[Masking]:
    """Yield the history with one result more masked each time: oldest first, and first what a call brings again."""
    pinned = {at for at, item in enumerate(history.items) if item.is_pinned}
    masks = masks_of(history.messages, sizes.last, tools.kinds, tools.id_of, pinned)
    of = list(sizes.of)
    chosen: list[Mask] = []
    for mask in sorted(masks, key=lambda mask: mask.is_lasting):
        chosen.append(mask)
        of[mask.place] -= tools.size_of(mask.whole) - tools.size_of(mask.line)
        begin = min(each.place for each in chosen)
        yield Masking(tuple(chosen), sum(sizes.of) - sum(of), sum(of[begin : sizes.last]))
