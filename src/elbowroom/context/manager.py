"""AgentContextManager: what one request's window holds, and what follows from it at each of the three checks."""

from dataclasses import dataclass, field, replace
from typing import Literal

from elbowroom.context.acceptance import least_gain
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import Rung
from elbowroom.context.decisions import Compact, Decision, Measure, plan_step

StreamVerdict = Literal["go on", "stop at a good place", "stop now"]
ToolVerdict = Literal["fits", "restart", "too large"]
MOST_STRIKES = 2


@dataclass(slots=True)
class Statistics:
    """Tokens of one request over all its model calls, and what was done about them."""

    input_tokens: int = 0
    output_tokens: int = 0
    compactions: int = 0
    freed_tokens: int = 0
    restarts: int = 0

    @property
    def total_tokens(self) -> int:
        """Return input and output together."""
        return self.input_tokens + self.output_tokens


@dataclass(slots=True)
class AgentContextManager:
    """Counts and decides for one request; makes no calls and is shared with no other request.

    `prompt` is the size of the prompt last sent, `results` what tools have returned since, in tokens. A restart is
    a model call that is cut or blocked and sent again after a compaction: at most `max_restarts` for each step. A
    strike is a compaction that brought nothing, or to which the pruning agent gave nothing: after two of them it is
    not asked again within the request.
    """

    budget: Budget
    max_restarts: int = 3
    auto: bool = True
    prompt: int = 0
    results: int = 0
    restart_requested: bool = False
    restarts_of_step: int = 0
    strikes: int = 0
    statistics: Statistics = field(default_factory=Statistics)

    def before_request(self, measure: Measure) -> Decision:
        """Check 1: decide about a prompt that has just been measured."""
        decision = plan_step(measure, self.budget, auto=self.auto)
        if isinstance(decision, Compact) and self.strikes >= MOST_STRIKES:
            return replace(decision, asks_pruner=False)
        return decision

    def begin_step(self) -> None:
        """Note that the run goes on to its next model step."""
        self.restarts_of_step = 0

    def sent(self, prompt: int) -> None:
        """Note the size of a prompt that goes to the model now."""
        self.prompt = prompt
        self.results = 0
        self.restart_requested = False
        self.statistics.input_tokens += prompt

    def before_tool_result(self, size: int, generated: int) -> ToolVerdict:
        """Check 2: decide about a tool's result of this size, after a reply of `generated` tokens.

        `restart` means that the history has to be compacted around it first; `too large` that it does not even fit
        an empty conversation and has to go in as its beginning and end.
        """
        if size > self.largest_result:
            return "too large"
        self.results += size
        occupied = self.budget.occupied(self.prompt + generated + self.results)
        if occupied >= self.budget.trigger:
            self.restart_requested = True
            return "restart"
        return "fits"

    @property
    def largest_result(self) -> int:
        """Return how large a tool's result may be to go in whole: a quarter of the window."""
        return self.budget.window // 4

    def while_streaming(self, generated: int) -> StreamVerdict:
        """Check 3: decide about an answer of which so many tokens have come."""
        filled = self.prompt + generated
        if filled >= self.budget.force_at:
            return "stop now"
        return "stop at a good place" if filled >= self.budget.stop_at else "go on"

    def received(self, generated: int) -> None:
        """Note that a model call has ended after so many tokens."""
        self.statistics.output_tokens += generated

    def may_restart(self) -> bool:
        """Tell whether the step may be sent once more; counts it if so."""
        if self.restarts_of_step >= self.max_restarts:
            return False
        self.restarts_of_step += 1
        self.statistics.restarts += 1
        return True

    def compacted(self, before: int, after: int, rung: Rung = "plan") -> None:
        """Note a compaction, with the sizes of the prompt before and after it; what was measured before is void."""
        self.statistics.compactions += 1
        self.statistics.freed_tokens += before - after
        self.prompt, self.results, self.restart_requested = after, 0, False
        if rung in ("digest", "last messages") or before - after < least_gain(before):
            self.strikes += 1

    def could_not_compact(self) -> None:
        """Note a compaction that reached nothing."""
        self.strikes += 1

    def learn_window(self, window: int) -> None:
        """Take over a smaller window that the engine has named; it never grows within a request."""
        if window < self.budget.window:
            self.budget = Budget(window, self.budget.threshold, self.budget.max_tokens)
