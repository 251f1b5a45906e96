"""Where a run ends whose model would call tools for ever: at a number of steps, or of failures of the same call."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elbowroom.agents.answer import Answer
from elbowroom.agents.own_tool import OwnTool, ToolResult
from elbowroom.agents.tool_result import ENDING_SECONDS, result_of
from elbowroom.context.call_summary import summary_of_calls
from elbowroom.context.tool_stubs import one_line
from elbowroom.context.transcript import Message, Transcript
from elbowroom.settings.tool_sections import ToolKind

log = logging.getLogger(__name__)
WARNED_FROM: Final = 3
LONGEST_SUMMARY: Final = 600  # characters
LONGEST_NAME: Final = 64
MOST_FAILURES: Final = 6
"""So many steps with the very same failing call, and nothing that worked in between, are the end."""


@dataclass(slots=True)
class RunLimits:
    """Watches the run of the agent `name`, which may take `max_turns` model calls; `answer` counts them.

    Calls of one step count once: the model has made them without knowing that they fail. `kinds` are those that the
    tools declare.
    """

    name: str
    max_turns: int
    answer: Answer
    kinds: dict[str, ToolKind] = field(default_factory=dict)
    _calling: set["asyncio.Task[Any]"] = field(default_factory=set)
    _failed_in: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    async def called(self, tool: OwnTool, written: str) -> ToolResult:
        """Call a tool as `result_of` does; an error that comes again and again says so."""
        if (task := asyncio.current_task()) is not None:
            self._calling.add(task)
            task.add_done_callback(self._calling.discard)
        result = await result_of(tool, written)
        if not result.is_error:
            self._failed_in.clear()
            return result
        times = self.note_failure(tool.name, written)
        if times < WARNED_FROM:
            return result
        return replace(
            result,
            text=f"{result.text}\nThis very call has failed {times} times now. Do not repeat it: call it "
            "with other arguments, find another way, or tell the user what does not work.",
        )

    async def calls_ended(self) -> None:
        """Wait until no call is under way; one that was cancelled may take a moment to put things away."""
        if self._calling:
            await asyncio.wait(self._calling, timeout=ENDING_SECONDS)

    def note_failure(self, name: str, written: str) -> int:
        """Take note of a call that has failed; return in how many steps it has since a call last succeeded."""
        steps = self._failed_in.setdefault((name, written.strip()), set())
        steps.add(self.answer.steps)
        return len(steps)

    @property
    def may_go_on(self) -> bool:
        """Tell whether the model may be asked again."""
        return not self._stuck and self.answer.steps < self.max_turns

    def why_stop(self, done: Sequence[Message]) -> str | None:
        """Return what the person is told where the model is not to be asked again; `done` is the run so far."""
        if stuck := self._stuck:
            ended = f"Stopped: the same call of {one_line(stuck[0], LONGEST_NAME)} has failed {MOST_FAILURES} times"
            remedy = "Ask me to go on, or to try another way."
        elif self.answer.steps >= self.max_turns:
            ended = f"Stopped after {_counted(self.max_turns, 'model call')} without finishing"
            remedy = f"Ask me to go on, or raise max_turns of the agent {self.name}."
        else:
            return None
        log.warning("The run of %s was ended. %s.", self.name, ended)
        told = f"[{ended}.{_done(done, self.kinds)} {remedy}]"
        return self.answer.guard.paragraph(told) if self.answer.guard is not None else told

    @property
    def _stuck(self) -> list[str]:
        """Return the names of tools whose same call has failed as often as it may."""
        return [name for (name, _), steps in self._failed_in.items() if len(steps) >= MOST_FAILURES]


def _done(messages: Sequence[Message], kinds: Mapping[str, ToolKind]) -> str:
    """Return what the calls have done, in a few words on one line."""
    told = summary_of_calls(Transcript.of(messages).groups, len, LONGEST_SUMMARY, kinds).partition("\n")[0]
    return f" Done so far: {told}." if told else ""


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
