"""Measures several pruning agents with the same conversations, one trial after another, and tells how far it is."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from elbowroom.agents.catalog import Target
from elbowroom.agents.rehearsal import Rehearsal, in_the_background
from elbowroom.agents.turn import RunSettings
from elbowroom.errors import ElbowroomError, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from elbowroom.quality.conversations import Written
from elbowroom.quality.grading import Grade
from elbowroom.quality.table import advice_on, lines_of
from elbowroom.quality.trial import USUAL_PROBES, Result, Trial

State = Literal["running", "done", "stopped", "failed"]
CONVERSATIONS: Final = (
    Written("plan", "English", 1),
    Written("code", "English", 1),
    Written("research", "German", 1),
    Written("plan", "Japanese", 1),
    Written("code", "German", 1),
    Written("research", "English", 1),
    Written("plan", "German", 1),
    Written("code", "Japanese", 1),
    Written("research", "Japanese", 1),
)
LEAST_WINDOW: Final = 2048
PART_OF_COMPACTION: Final = 8
"""As long as no question was asked, each is taken to need one part in so many of a compaction's time."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: the model, its pruning agents, the largest window to use, and how much.

    `pruners` maps the name of each pruning agent to the settings that choose it.
    """

    target: Target
    pruners: Mapping[str, str]
    conversations: int
    compactions: int
    window: int


@dataclass(slots=True)
class Study:
    """One study. It ends by itself, by `stop`, or where the model's server does not answer any more.

    `troubles` are the pruning agents that could not be measured, each with the reason in a sentence.
    """

    plan: Plan
    settings: RunSettings
    state: State = "running"
    problem: str = ""
    window: int = 0
    troubles: dict[str, str] = field(default_factory=dict)
    _trials: list[Trial] = field(default_factory=list)
    _task: "asyncio.Task[None] | None" = None

    def start(self) -> None:
        """Begin the work."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End the work; what was measured stays."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        if self.state == "running":  # it was stopped before its first step
            self.state = "stopped"

    async def _run(self) -> None:
        """Play each conversation with each pruning agent, so that those that are there can be compared at any time."""
        try:
            for written in CONVERSATIONS[: self.plan.conversations]:
                for pruner in self.plan.pruners:
                    if pruner not in self.troubles:
                        await self._try(pruner, written)
            self.state = "done"
            if len(self.troubles) == len(self.plan.pruners):
                self.state, self.problem = "failed", "None of the pruning agents could be measured."
        except asyncio.CancelledError:
            self.state = "stopped"
        except ElbowroomError as error:
            self.state, self.problem = "failed", error.message
        except Exception as error:
            log.exception("The study of pruning agents failed.")
            self.state, self.problem = "failed", f"The study failed ({type(error).__name__}); the log says more."
        finally:
            if self._trials:  # the last chat's prompt was driven out of the engine's cache
                self.settings.shared.background.read_again(self._trials[-1].rehearsal.pool)

    async def _try(self, pruner: str, written: Written) -> None:
        """Make one trial. Raises UpstreamError where the model's server does not answer any more."""
        rehearsal = await Rehearsal.of(self.plan.target, self.settings, pruner, self.plan.window)
        self.window = rehearsal.window
        if self.window < LEAST_WINDOW:
            raise rehearsal.too_small()
        trial = Trial(pruner, written, rehearsal, self.plan.compactions)
        self._trials.append(trial)
        try:
            await _tried_again(rehearsal, trial)
        except (UpstreamUnreachable, UpstreamTimeout):
            if not trial.asked:  # code may have done what no pruning agent was there to do
                self._trials.remove(trial)
            raise
        except ElbowroomError as error:
            self.troubles[pruner] = error.message

    def as_json(self) -> dict[str, Any]:
        """Return how far it is, and the table of what it has."""
        lines = lines_of(self._results(), self._controls())
        plan, (done, of) = self.plan, self._steps()
        return {
            "state": self.state,
            "problem": self.problem,
            "model": plan.target.name,
            "window": self.window,
            "conversations": plan.conversations,
            "compactions": plan.compactions,
            "done": done,
            "of": of,
            "seconds_left": self._seconds_left() if self.state == "running" else None,
            "now": self._now(),
            "lines": [line.as_json() for line in lines],
            "troubles": dict(self.troubles),
            "advice": advice_on(lines_of(self._compared(), {}), plan.pruners),
        }

    def _results(self) -> dict[str, Result]:
        results: dict[str, Result] = {}
        for trial in self._trials:
            results.setdefault(trial.pruner, Result()).add(trial.result)
        return {pruner: result for pruner, result in results.items() if pruner not in self.troubles}

    def _compared(self) -> dict[str, Result]:
        """Return the results of the conversations that every usable pruning agent has been tried with to the end."""
        done = {
            pruner: [trial.result for trial in self._trials if trial.pruner == pruner and trial.is_done]
            for pruner in self.plan.pruners
            if pruner not in self.troubles
        }
        fewest = min(map(len, done.values()), default=0)
        compared = {pruner: Result() for pruner in done}
        for pruner, results in done.items():
            for result in results[:fewest]:
                compared[pruner].add(result)
        return compared

    def _controls(self) -> dict[str, Grade]:
        """Return the grades of the controls, of each conversation that was graded with the first pruning agent."""
        controls: dict[str, Grade] = {}
        for trial in self._trials:
            if trial.pruner == self._trials[0].pruner:
                for name, each in trial.controls.items():
                    controls.setdefault(name, Grade()).add(each)
        return controls

    def _now(self) -> str:
        if self.state != "running" or not self._trials:
            return ""
        return f"{self._trials[-1].written.name}, {self._trials[-1].pruner}"

    def _steps(self) -> tuple[int, int]:
        """Return how many compactions and questions are done, and of how many, about."""
        done = sum(trial.result.compactions + trial.asked for trial in self._trials)
        compactions, questions = self._left()
        return done, done + compactions + questions

    def _left(self) -> tuple[int, int]:
        """Return how many compactions and how many questions are still to come."""
        plan = self.plan
        usable = [pruner for pruner in plan.pruners if pruner not in self.troubles]
        begun = [trial for trial in self._trials if trial.pruner in usable]
        new = plan.conversations * len(usable) - len(begun)
        compactions = sum(trial.wanted - trial.result.compactions for trial in begun)
        return compactions + new * plan.compactions, sum(trial.to_ask for trial in begun) + new * USUAL_PROBES

    def _seconds_left(self) -> int | None:
        """Return about how many seconds are left; None before the first compaction is done."""
        done = sum(trial.result.compactions for trial in self._trials)
        if not done:
            return None
        usual = sum(trial.result.seconds for trial in self._trials) / done
        asked = sum(trial.asked for trial in self._trials)
        question = sum(trial.asking for trial in self._trials) / asked if asked else usual / PART_OF_COMPACTION
        compactions, questions = self._left()
        return round(compactions * usual + questions * question)


async def _tried_again(rehearsal: Rehearsal, trial: Trial) -> None:
    """Make a trial, and where an answer fails go on once more from there: the model may have been loaded anew."""
    try:
        await in_the_background(rehearsal, trial.run)
    except UpstreamError:
        await in_the_background(rehearsal, trial.run)
