"""Plays one written conversation with one pruning agent, and asks about it afterwards."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from elbowroom.agents.admission import Job
from elbowroom.agents.rehearsal import Rehearsal
from elbowroom.context.compaction import all_said
from elbowroom.context.transcript import Message, Transcript, messages_of
from elbowroom.quality.conversations import Known, Written
from elbowroom.quality.grading import Grade, Tally, grade
from elbowroom.quality.probes import Probe, probes_of

LAST, CUT = "last messages only", "LM Studio's cut"
BY_CODE: Final = ("digest", "last messages")
"""How compactions are done that have no usable answer of the pruning agent."""
USUAL_PROBES: Final = 24
FRAME: Final = 5
"""Tokens that a message takes besides its words."""
Clock = Callable[[], float]
Size = Callable[[str], int]
"""Returns how many tokens a text has."""


@dataclass(slots=True)
class Result:
    """What one trial has shown so far; sums of them are results too.

    `seconds` and `tokens` are sums over the compactions, `by_code` are those without a usable answer.
    """

    grade: Grade = field(default_factory=Grade)
    answered: Tally = field(default_factory=Tally)
    called: Tally = field(default_factory=Tally)
    compactions: int = 0
    by_code: int = 0
    seconds: float = 0.0
    tokens: int = 0

    def add(self, other: "Result") -> None:
        """Add another conversation's."""
        self.grade.add(other.grade)
        self.answered.add(other.answered)
        self.called.add(other.called)
        self.compactions += other.compactions
        self.by_code += other.by_code
        self.seconds += other.seconds
        self.tokens += other.tokens


@dataclass(slots=True)
class Trial:
    """A conversation that is compacted `wanted` times, and then asked about.

    What is done stays done where the work is cancelled: `run` goes on from there. `asking` are the seconds that the
    questions have taken so far; `controls` are the grades of what the model would get without elbowroom.
    """

    pruner: str
    written: Written
    rehearsal: Rehearsal
    wanted: int
    result: Result = field(default_factory=Result)
    controls: dict[str, Grade] = field(default_factory=dict)
    asking: float = 0.0
    clock: Clock = time.monotonic
    _history: list[Message] = field(default_factory=list)
    _prompt: list[Message] = field(default_factory=list)
    _known: Known = field(default_factory=Known)
    _turns: Iterator[tuple[list[Message], Known]] | None = None
    _waiting: list[Message] = field(default_factory=list)
    _probes: list[Probe] | None = None

    @property
    def asked(self) -> int:
        """Return how many questions were asked."""
        return self.result.answered.total + self.result.called.total

    @property
    def to_ask(self) -> int:
        """Return how many questions are left, about, as long as that is not known."""
        return len(self._probes) if self._probes is not None else USUAL_PROBES

    @property
    def is_done(self) -> bool:
        """Tell whether every question was asked."""
        return self._probes == []

    async def run(self, job: Job) -> None:
        """Do what is left to do. Raises ElbowroomError."""
        while self.result.compactions < self.wanted:
            await self._grow()
            await self._compact(job)
        if self._probes is None:
            await self._grade()
        while self._probes:
            await self._ask(self._probes[0], job)
            self._probes.pop(0)

    async def _grow(self) -> None:
        """Go on with the conversation until it fills the window and the assistant's turn has come."""
        while not (self._is_assistants_turn() and await self.rehearsal.is_full(self._prompt)):
            self._take_one()

    def _is_assistants_turn(self) -> bool:
        """Tell whether the assistant answers next, so that a prompt would be sent now."""
        return bool(self._prompt) and bool(self._waiting) and self._waiting[0]["role"] == "assistant"

    def _take_one(self) -> None:
        """Add the next message of the conversation."""
        if self._turns is None:
            self._turns = self.written.turns(self.rehearsal.window)
        if not self._waiting:
            messages, self._known = next(self._turns)
            self._waiting = [*messages]
        message = self._waiting.pop(0)
        self._history.append(message)
        self._prompt.append(message)

    async def _compact(self, job: Job) -> None:
        done = await self.rehearsal.compact(self._prompt, job)
        self._prompt = [*done.messages]
        self.result.compactions += 1
        self.result.by_code += done.rung in BY_CODE
        self.result.seconds += done.seconds
        self.result.tokens += done.after

    async def _grade(self) -> None:
        """Play the turn to its end, grade what is left of the conversation, and note what is to be asked."""
        while self._waiting:
            self._take_one()
        tokens = await self.rehearsal.history.prompt(self._prompt)
        # To look for identifiers in a long conversation takes a while.
        self.result.grade, self.controls = await asyncio.to_thread(self._graded, tokens)
        self._probes = list(probes_of(self._known.within(all_said(self._history)), self.written.language))

    def _graded(self, tokens: int) -> tuple[Grade, dict[str, Grade]]:
        """Return the grades of a prompt of so many tokens, and of the controls."""
        history, size, window = self._history, self.rehearsal.history.text, self.rehearsal.window
        without = {
            LAST: last_messages(history, tokens, size),
            CUT: cut_through_the_middle(history, window, size),
        }
        graded = {name: grade(prompt, history, self._known, (), ()) for name, prompt in without.items()}
        return grade(self._prompt, history, self._known, (), ()), graded

    async def _ask(self, probe: Probe, job: Job) -> None:
        began = self.clock()
        reply = await self.rehearsal.ask([*self._prompt, probe.message], job, probe.tools)
        is_right = probe.is_right("".join(reply.text), reply.tool_calls)
        (self.result.called if probe.calls else self.result.answered).add(Tally(int(is_right), total=1))
        self.asking += self.clock() - began


def last_messages(history: Sequence[Message], most: int, size: Size) -> list[Message]:
    """Return the system message and as many of the last groups as fit in so many tokens."""
    return _ends(history, 1, most, size)


def cut_through_the_middle(history: Sequence[Message], window: int, size: Size) -> list[Message]:
    """Return what LM Studio leaves of a history with its default policy: its first question, and its end."""
    return _ends(history, 2, window, size)


def _ends(history: Sequence[Message], first: int, most: int, size: Size) -> list[Message]:
    groups = Transcript.of(history).groups
    sizes = [sum(size(all_said([message])) + FRAME for message in group.messages) for group in groups]
    start, left = len(groups), most - sum(sizes[:first])
    while start > first and sizes[start - 1] <= left:
        start -= 1
        left -= sizes[start]
    return messages_of([*groups[:first], *groups[start:]])
