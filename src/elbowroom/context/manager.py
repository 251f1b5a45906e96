"""AgentContextManager: the size of one request's window, and the decision at each of the three checks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from elbowroom.context.budget import (
    Budget,
    Compact,
    Decision,
    Measure,
    Refuse,
    Send,
    least_gain,
    least_room,
    plan_step,
)
from elbowroom.context.compaction import Rung
from elbowroom.context.divisible import beginning_and_end
from elbowroom.context.prompt import Prompt

StreamVerdict = Literal["go on", "stop at a good place", "stop now"]
ToolVerdict = Literal["fits", "restart", "too large"]
MOST_STRIKES = 2

LEAST_SHARE = 64
LEAST_ROOM = 8
"""Where less than one part in so many of the window is left below the trigger, results may go beyond it."""
LEAST_PART = 3
SMALL_SHARE = 16
"""Results of less than one part in so many of the window are small."""


@dataclass(slots=True)
class AgentContextManager:
    """Counts and decides for one request; makes no calls and is shared with no other request.

    `history` is the conversation as the model gets it now. `prompt` is the size of the prompt last sent, in tokens;
    `filled` is the known size of the window's content: of a prompt that was measured, was sent or has become shorter,
    later with the reply added. A restart is a model call that is cut or blocked and sent again after a compaction: at
    most `max_restarts` for the whole request, of which `restarts` were made. A strike is a compaction that freed
    too little, or for which the pruning agent had no good answer: after two of them it is not asked again within the
    request.
    """

    budget: Budget
    max_restarts: int = 3
    auto: bool = True
    history: Prompt = field(default_factory=Prompt)
    prompt: int = 0
    filled: int = 0
    restarts: int = 0
    strikes: int = 0
    _loaded: int = 0

    def before_request(self, measure: Measure) -> Decision:
        """Check 1: decide about a prompt that has just been measured."""
        self.filled = measure.prompt
        decision = plan_step(measure, self.budget, auto=self.auto)
        if isinstance(decision, Compact) and self.strikes >= MOST_STRIKES:
            return replace(decision, asks_pruner=False)
        return decision

    def with_room(self, decision: Decision, measure: Measure, *, must_shrink: bool, is_stopped: bool) -> Decision:
        """Return the decision for a history that has to shrink, or ends with a stopped answer, which needs room."""
        if isinstance(decision, Refuse) or not (must_shrink or is_stopped):
            return decision
        budget, least = self.budget, self.budget.occupied(measure.fixed)
        target = budget.target_in_answer(measure.fixed) if is_stopped else budget.target(least)
        if isinstance(decision, Send):
            too_large = must_shrink and budget.occupied(measure.prompt) > target
            return Compact(target, is_tight=decision.is_tight, is_firm=True) if too_large else decision
        if not is_stopped:
            return decision
        target = min(target, decision.target)
        asks_pruner = decision.asks_pruner and target - least >= least_room(budget)
        return replace(decision, target=target, asks_pruner=asks_pruner, is_firm=True)

    def sent(self, prompt: int) -> None:
        """Note the size of a prompt that goes to the model now."""
        self.prompt = self.filled = prompt

    def before_tool_results(
        self, prompt: int, rest: int, sizes: Sequence[int], carried: int = 0, history: int = 0
    ) -> ToolVerdict:
        """Check 2: decide about results of these sizes that came in together, before any model call has read them.

        `prompt` is the size of the whole with them, `rest` the size that no compaction can free without them, `carried`
        what code carries through one, and `history` what one should keep besides. `restart` means that the history has
        to be compacted around them first; `too large` that even then they do not fit whole. Where compaction is not
        automatic, everything fits that can be sent at all.
        """
        if self.budget.occupied(prompt) < self.budget.trigger or (not self.auto and prompt < self.budget.window):
            return "fits"
        room = room_for_results(self.budget, rest, carried=carried, history=history)
        return "restart" if sum(sizes) <= max(room, self._room_for_small(rest)) else "too large"

    def _room_for_small(self, rest: int) -> int:
        """Return how many tokens results may take from the reply's room: a small part of the window, half of the room.

        What would stand for a small result is hardly shorter than the result.
        """
        budget = self.budget
        return min(budget.window // SMALL_SHARE, budget.window - rest - budget.reserve(rest) // 2)

    def while_streaming(self, generated: int, *, in_call: bool = False) -> StreamVerdict:
        """Check 3: decide about an answer of which so many tokens have come.

        Of a prompt that was sent although it leaves no room, nothing can go: its answer takes the rest of the window.
        So does a call, of which half is of no use, where there was no room for a usual answer.
        """
        filled = self.prompt + generated
        if (self.budget.occupied(self.prompt) if in_call else self.prompt) >= self.budget.force_at:
            return "go on"
        if filled >= self.budget.force_at:
            return "stop now"
        return "stop at a good place" if filled >= self.budget.stop_at else "go on"

    @property
    def can_restart(self) -> bool:
        """Tell whether the step could be sent once more: compaction is automatic, and the request has tries left."""
        return self.auto and self.restarts < self.max_restarts

    def may_restart(self) -> bool:
        """Tell whether the step may be sent once more, and count it if so."""
        if not self.can_restart:
            return False
        self.restarts += 1
        return True

    def compacted(self, before: int, after: int, rung: Rung = "plan") -> None:
        """Note a compaction with the sizes of the prompt before and after it, which replace what was measured."""
        self.prompt = self.filled = after
        if rung in ("digest", "last messages") or before - after < least_gain(before):
            self.strikes += 1

    def could_not_compact(self) -> None:
        """Note a compaction without a result."""
        self.strikes += 1

    def give_up_pruning(self) -> None:
        """Note that the person has waited long enough: no pruning agent is asked any more within the request."""
        self.strikes = MOST_STRIKES

    def use(self, budget: Budget) -> None:
        """Take over the budget of the next step; a smaller learned window stays until another one is loaded."""
        if budget.window != self._loaded:
            self._loaded, self.budget = budget.window, budget
        else:
            self.budget = replace(budget, window=min(budget.window, self.budget.window))

    def learn_window(self, window: int) -> None:
        """Take over a smaller window that the engine has named; the window never grows within a request."""
        if window < self.budget.window:
            self.budget = replace(self.budget, window=window)


def room_for_results(budget: Budget, rest: int, *, carried: int = 0, history: int = 0, now: int | None = None) -> int:
    """Return how many tokens results may take beside `rest`, the size that cannot be freed; never less than 0.

    That is what is free below the trigger beside a small summary and the tokens that code carries, less what a
    compaction should keep of the `history` besides, as long as that leaves enough. Where it is too little anyway, it is
    what is free in the whole window, where the summary takes half of it at most. With `now`, the size of the prompt
    without the results, it is what is free beside that, but at least one part in three of what a compaction would
    leave.
    """
    summary = least_room(budget) + carried
    room, enough = budget.trigger - budget.occupied(rest) - summary, budget.window // LEAST_ROOM
    if room < enough:
        free = max(0, budget.window - budget.occupied(rest))
        room = free - min(summary, free // 2)
    else:
        room = max(enough, room - history)
    return room if now is None else max(room // LEAST_PART, room + budget.occupied(rest) - budget.occupied(now))


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return how many tokens each result may take so that together they fit: small ones whole, the others alike."""
    granted = [0] * len(sizes)
    left, open_results = room, len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
        granted[index] = min(sizes[index], max(LEAST_SHARE, left // open_results))
        left -= granted[index]
        open_results -= 1
    return granted


def shortened(text: str, room: int, window: int, size_of: Callable[[str], int]) -> str:
    """Return the beginning and end of a result within `room` tokens, with a note on what is left out and why.

    Nothing of the text is shown where the note alone takes all the room.
    """
    size = size_of(text)

    def note(left_out: int) -> str:
        return (
            f"[{left_out:,} characters are left out here. The whole result has {size:,} tokens, more than the {room:,} "
            f"that fit the model's window of {window:,} beside the conversation. To read what is missing, ask for a "
            "part of it: a range of lines or a narrower search. A model loaded with a larger context length holds "
            "more.]"
        )

    return beginning_and_end(text, room, size_of, note)
