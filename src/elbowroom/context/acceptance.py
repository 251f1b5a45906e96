"""When a compaction counts as one: pure arithmetic over counted prompts; sizes are tokens."""

from elbowroom.context.budget import Budget

LEAST_GAIN = 1000
LEAST_GAIN_SHARE = 10  # one part in ten of what it was


def least_gain(before: int) -> int:
    """Return what a compaction of a prompt of this size has to free: a tenth of it or 1000, whichever is less."""
    return max(1, min(LEAST_GAIN, before // LEAST_GAIN_SHARE))


def fault_in(before: int, after: int, budget: Budget, target: int) -> str | None:
    """Return why a result is not good enough, in words for the pruning agent; None if it is."""
    if after >= before:
        return f"The result was not smaller: {after} tokens after {before}."
    if before - after < least_gain(before):
        return f"The result was hardly smaller: {after} tokens after {before}."
    occupied = budget.occupied(after)
    if occupied > target:
        return f"The result was too large: {occupied} tokens with the room for the reply, {target} at most."
    return None


def is_rescue(before: int, after: int, budget: Budget, *, with_reserve: bool) -> bool:
    """Tell whether a result above the target is still better than none.

    It is where it ends below the trigger, and where the prompt as it was cannot be sent at all; with `with_reserve`
    the reply has to keep its room.
    """
    if after >= before:
        return False
    if before < budget.window:
        return before - after >= least_gain(before) and budget.occupied(after) < budget.trigger
    return budget.occupied(after) <= budget.window if with_reserve else after < budget.window
