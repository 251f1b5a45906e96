"""A simulated LM Studio whose models prune well or badly, and answer what stands in their prompt and nothing else."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from play import Counted
from pruners import Agent, is_order
from sizes import tokens

from elbowroom.context.transcript import Message, text_of
from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, Text, ToolCall, WaitFor
from elbowroom.quality.conversations import Known, Written
from elbowroom.quality.grading import Shown
from elbowroom.quality.probes import ORDERS, QUESTIONS
from elbowroom.quality.study import CONVERSATIONS

WINDOW = 4096
MAIN = "qwen2.5-7b-instruct"
PRUNERS = {"qwen2.5-14b-faithful": "faithful", "qwen2.5-3b-sloppy": "sloppy", "qwen2.5-1b-garbage": "garbage"}


class StudyModels:
    """Answers the requests of a study; the main model prunes as `own` says.

    `holds` keeps the answers to orders back until it is set, `after` so many questions keep those to questions back.
    """

    def __init__(self, own: str = "sloppy", window: int = WINDOW) -> None:
        self.holds: asyncio.Event | None = None
        self.after = 1_000_000
        self.kinds = {MAIN: own, **PRUNERS}
        self.orders: list[str] = []
        self.questions = 0
        self.studio = SimulatedLMStudio(
            [SimulatedModel(name, loaded_context_length=window, max_context_length=32_768) for name in self.kinds],
            rpc=False,
            tokenizer=Counted(),
        )
        self.studio.on_request = self.answer
        self._truths = [truth_of(written, window) for written in CONVERSATIONS[:3]]
        self._agents: dict[tuple[str, int], Agent] = {}

    def answer(self, body: Mapping[str, Any]) -> Script:
        """Answer an order as the model's kind of pruning agent does, and a question from the prompt."""
        shown = "\n".join(map(written_out, body["messages"]))
        about = max(range(len(self._truths)), key=lambda at: told_in(self._truths[at], shown))
        if is_order(body):
            self.orders.append(body["model"])
            held: list[WaitFor | str] = ["\n", WaitFor(self.holds)] if self.holds is not None else []
            return Script(*held, Text(self._agent(body["model"], about).answer(body), whole=True))
        if any(is_asked(text_of(body["messages"][-1]), frame) for frame in (*QUESTIONS.values(), *ORDERS.values())):
            self.questions += 1
            if self.questions > self.after:
                return Script(WaitFor(asyncio.Event()))
        value = self._value(self._truths[about], body["messages"])
        if body.get("tools"):
            arguments = json.dumps({"value": value}, ensure_ascii=False)
            return Script(ToolCall("look_up", arguments, pieces=[arguments]))
        return Script(Text(value, whole=True))

    def _agent(self, model: str, about: int) -> Agent:
        if (model, about) not in self._agents:
            self._agents[model, about] = Agent(self.kinds[model], lambda: self._truths[about], tokens)
        return self._agents[model, about]

    def _value(self, known: Known, messages: Sequence[Message]) -> str:
        """Return the newest value of the fact that is asked for that a line of the prompt tells with its name."""
        question = text_of(messages[-1])
        asked = [fact for label, fact in known.facts.items() if f": {label}" in question]
        told = Shown(messages[:-1])
        values = [value for fact in asked for value in fact.values if told.tells(fact, value)]
        return values[-1] if values else "I do not know."


def is_asked(text: str, frame: str) -> bool:
    """Tell whether a text is this question about something."""
    before, _, after = frame.partition("{label}")
    return text.startswith(before) and text.endswith(after)


@cache
def truth_of(written: Written, window: int) -> Known:
    """Return all that a conversation ever tells."""
    *_, (_, known) = written.turns(window)
    return known


def told_in(known: Known, shown: str) -> int:
    """Return how many of the values and constraints of a conversation a text has."""
    values = [value for fact in known.facts.values() for value in fact.values]
    return sum(each in shown for each in (*values, *known.constraints, *known.facts))


def written_out(message: Mapping[str, Any]) -> str:
    """Return all that a message says, calls included."""
    calls = message.get("tool_calls") or ()
    return "\n".join([text_of(message), *(str(call["function"]["arguments"]) for call in calls)])
