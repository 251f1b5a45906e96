"""Asks a model for what a conversation has told, and grades its answers by code."""

import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.agents.answer import ToolCall
from elbowroom.context.compaction import stands_in
from elbowroom.context.transcript import Message
from elbowroom.quality.conversations import Fact, Known
from elbowroom.quality.words import Language

QUESTIONS: Final[Mapping[Language, str]] = {
    "English": "What is it now: {label}? Answer with the value only.",
    "German": "Was gilt jetzt: {label}? Antworte nur mit dem Wert.",
    "Japanese": "今の値は何ですか: {label}。値だけを答えてください。",
}
ORDERS: Final[Mapping[Language, str]] = {
    "English": "Now call the tool look_up with this value, as it is now: {label}.",
    "German": "Rufe jetzt das Werkzeug look_up mit diesem Wert auf, wie er jetzt gilt: {label}.",
    "Japanese": "今の値でツール look_up を呼び出してください: {label}。",
}
LOOK_UP: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up a path, an address, a number or a name.",
        "parameters": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]},
    },
}
CALLED_FOR: Final = ("path", "url", "address", "ticket", "mail")
"""The kinds of values for which a tool is called, the best first."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One question about a fact; with `calls` the model has to call a tool with its value."""

    fact: Fact
    language: Language
    calls: bool = False

    @property
    def message(self) -> Message:
        """Return the question as a message of the user."""
        text = (ORDERS if self.calls else QUESTIONS)[self.language]
        return {"role": "user", "content": text.format(label=self.fact.label)}

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Return the tools that are offered with it."""
        return [LOOK_UP] if self.calls else []

    def is_right(self, text: str, calls: list[ToolCall]) -> bool:
        """Tell whether the newest value stands in the answer, or in the arguments of its one call, and no old one."""
        if self.calls:
            return len(calls) == 1 and calls[0].name == "look_up" and self._holds(_value(calls[0]))
        return self._holds(text)

    def _holds(self, said: str) -> bool:
        said, (*old, newest) = plain(said), map(plain, self.fact.values)
        without = said.replace(newest, " ")
        return stands_in(newest, said) and not any(stands_in(value, without) for value in old)


def probes_of(known: Known, language: Language) -> Iterator[Probe]:
    """Yield a question for each fact, and at last one for a call of a tool."""
    for fact in known.facts.values():
        yield Probe(fact, language)
    named = [fact for kind in CALLED_FOR for fact in known.facts.values() if fact.kind == kind]
    if named:
        yield Probe(named[0], language, calls=True)


def plain(text: str) -> str:
    """Return a text without the differences that do not matter: width of letters, capitals, blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _value(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return ""
    return str(arguments.get("value", "")) if isinstance(arguments, dict) else ""
