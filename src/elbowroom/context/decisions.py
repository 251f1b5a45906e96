"""What to do before a request: send it, compact first, or refuse it. Pure arithmetic over counts; sizes are tokens.

What no compaction can free, reply included, is the fixed cost. Where it leaves room below the trigger, history that
reaches the trigger is compacted down to the target. Where it does not, a summary has no room to pay off: then the
window itself is the limit, and history goes without a pruning agent and only when the reply has no room left.
"""

from dataclasses import dataclass

from elbowroom.context.budget import Budget

LEAST_ROOM_FOR_SUMMARY = 200


@dataclass(frozen=True, slots=True)
class Measure:
    """The sizes of one prompt: the whole, and the part of it that no compaction can free.

    `fixed` is the prompt with only system, tools and pinned messages in it; `parts` names its largest items.
    """

    prompt: int
    fixed: int
    parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """The request fits; `is_tight` says that the fixed cost alone takes more than half of the window."""

    is_tight: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """The history has to shrink first, until prompt and reserve are at or below `target`.

    `asks_pruner` is false where no summary worth its words would fit: then code alone cuts the history. `is_tight`
    says that the fixed cost alone takes more than half of the window.
    """

    target: int
    asks_pruner: bool = True
    is_tight: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request cannot fit, and no compaction would help; `needed` is the smallest prompt it can be."""

    needed: int


Decision = Send | Compact | Refuse


def plan_step(measure: Measure, budget: Budget, *, auto: bool = True) -> Decision:
    """Decide about one model step. With `auto` off nothing is compacted, and what does not fit is refused."""
    smallest = min(measure.fixed, measure.prompt)
    fixed = budget.occupied(smallest)
    is_tight = fixed > budget.window // 2
    fits = measure.prompt < budget.window
    if budget.occupied(measure.prompt) < budget.trigger:
        return Send(is_tight)
    if not auto:
        return Send(is_tight) if fits else Refuse(measure.prompt)
    if smallest >= budget.window:
        return Refuse(smallest)
    if fixed < budget.trigger:
        target = budget.target(fixed)
        return Compact(target, target - fixed >= least_room(budget), is_tight)
    if fits and (measure.prompt == smallest or budget.occupied(measure.prompt) <= budget.window):
        return Send(is_tight)
    return Compact(max(fixed, (fixed + budget.window) // 2), asks_pruner=False, is_tight=is_tight)


def least_room(budget: Budget) -> int:
    """Return how much room between fixed cost and target makes a summary worth asking for."""
    return min(LEAST_ROOM_FOR_SUMMARY, budget.window // 16)
