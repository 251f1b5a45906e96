"""What a ladder needs, without an engine: a counter over a bundled vocabulary, and scripted pruning agents."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from elbowroom.agents.prompt import carried_out
from elbowroom.context.budget import Budget
from elbowroom.context.compaction.coverage import Coverage, Unit
from elbowroom.context.compaction.ladder import Cannot, Ladder
from elbowroom.context.compaction.layout import Layout
from elbowroom.context.compaction.order import Wishes
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.effects import AskPruner, Count, Effect, Progress, PrunerFailed, RungFailed
from elbowroom.context.transcript import Group, Message, Transcript
from elbowroom.tokens.families.counter import FamilyCounter
from elbowroom.tokens.families.families import family_of

Answer = str | Callable[[Sequence[Message]], str]


@cache
def qwen() -> FamilyCounter:
    """Return the counter for Qwen 2.5, with its real vocabulary and its chat format."""
    return FamilyCounter(family_of("qwen2.5-7b-instruct"))


def chosen(
    groups: Sequence[Group],
    told: str = "",
    room: int = 1000,
    for_user: int = 0,
    staying: Sequence[Group] = (),
    *,
    stands: bool = False,
) -> list[Unit]:
    """Return the units that stay of removed groups, in so many characters, where all lines of summaries stand or none.

    Others stay themselves.
    """
    coverage = Coverage((*groups, *staying), len)
    beginning = coverage.standing(groups) if stands else ()
    return coverage.chosen(coverage.candidates(groups, staying), told, room, for_user, beginning)


class FamilyPrompts:
    """Counts prompts and texts as the family's model would; each count is a place where a task can be cancelled."""

    def __init__(self, tools: Sequence[dict[str, Any]] = ()) -> None:
        self.tools = tools
        self.prompts = 0

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the tokens of the whole prompt."""
        self.prompts += 1
        await asyncio.sleep(0)
        return qwen().count_chat(messages, self.tools).tokens

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return qwen().count_text(text)


class ScriptedPruner:
    """Gives one answer after another, the last one again and again; remembers what it was asked.

    It refuses what does not fit its window, as an engine does.
    """

    def __init__(self, *answers: Answer | BaseException, window: int = 1_000_000, shares_prefix: bool = True) -> None:
        self.answers = answers
        self.window = window
        self.shares_prefix = shares_prefix
        self.asked: list[list[Message]] = []
        self.caps: list[int] = []
        self.overflows = 0
        self.writes: int | None = None
        self.results: list[int] = []

    def can_write(self, result: int) -> int | None:
        """Return how many tokens it `writes` in the time left."""
        self.results.append(result)
        return self.writes

    async def ask(self, messages: Sequence[Message], cap: int) -> str:
        """Return the next answer."""
        self.asked.append(list(messages))
        self.caps.append(cap)
        await asyncio.sleep(0)
        if qwen().count_chat(messages).tokens + cap > self.window:
            self.overflows += 1
            raise PrunerFailed("the request does not fit the window")
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, str) else answer(messages)


def plan(retain: str = "", summary: str = "", keep: Iterable[int] = ()) -> str:
    """Return a plan as a pruning agent writes it."""
    return json.dumps({"retain": retain, "summary": summary, "keep": list(keep)}, ensure_ascii=False)


FORGETFUL = plan(
    "The user works on a small program and wants it tidy.",
    "The assistant read several files, answered questions about them and changed a few. All went well so far.",
)
"""Plausible, valid, and without any of the details."""


def size(messages: Sequence[Message]) -> int:
    """Return the tokens of a prompt."""
    return qwen().count_chat(messages).tokens


@dataclass(frozen=True)
class Climber:
    """A ladder with the counter and the pruning agent that answer what it asks for.

    `told` are the reasons why rungs failed; `asked` is what the agent was asked, and how often it had been before.
    """

    ladder: Ladder
    counter: FamilyPrompts
    pruner: ScriptedPruner
    told: list[str] = field(default_factory=list)
    asked: list[tuple[Progress, int]] = field(default_factory=list)

    @property
    def target(self) -> int:
        """Return the size that a compaction has to reach."""
        return self.ladder.layout.target

    async def climb(self, transcript: Transcript, before: int | None = None) -> Compaction | Cannot:
        """Return the outcome of the ladder."""
        return await carried_out(self.ladder.climb(transcript, before), self._answer, in_thread=False)

    async def _answer(self, effect: Effect) -> object:
        match effect:
            case Count(messages):
                return await self.counter.prompt(messages)
            case AskPruner(messages, cap, progress):
                self.asked.append((progress, len(self.pruner.asked)))
                return await self.pruner.ask(messages, cap)
            case RungFailed(reason):
                self.told.append(reason)
                return None


def ladder(window: int, pruner: ScriptedPruner, messages: Sequence[Message] = (), **more: Any) -> Climber:
    """Return a ladder for a window, with the target that a decision would set for these messages."""
    budget = Budget(window)
    fixed = [message for message in messages if message["role"] == "system"]
    target = more.pop("target", None) or budget.target(budget.occupied(size([*fixed, *messages[-1:]])))
    counter = more.pop("counter", None) or FamilyPrompts()
    bounds = {name: more.pop(name) for name in ("turns", "is_firm", "reads_again") if name in more}
    layout = Layout(budget, target, counter.text, **bounds)
    return Climber(Ladder(layout, pruner, Wishes(), **more), counter, pruner)


def said(role: str, text: str) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": text}


def used(name: str, arguments: dict[str, Any], result: str, call_id: str) -> list[dict[str, Any]]:
    """Return a call and its result."""
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def chat(turns: int, words: int = 60, *, system: str = "You help with a small program.") -> list[dict[str, Any]]:
    """Return a conversation of so many questions and answers, ended by one more question."""
    messages = [said("system", system)]
    for turn in range(turns):
        messages.append(
            said("user", f"Question {turn}: what about part {turn}? " + "It looks odd to me. " * (words // 10))
        )
        messages.append(
            said("assistant", f"Part {turn} is like this. " + "It was built that way for a reason. " * (words // 8))
        )
    return [*messages, said("user", "And the last part?")]
