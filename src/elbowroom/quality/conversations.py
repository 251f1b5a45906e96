"""Writes conversations with seeded facts, of which a third change later, and says what was said up to each message."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from elbowroom.context.compaction import State
from elbowroom.context.transcript import Message
from elbowroom.quality.values import Values
from elbowroom.quality.words import (
    CHANGED,
    CONSTRAINTS,
    KINDS,
    LABELS,
    LANGUAGES,
    PHRASES,
    TODOS,
    TOLD,
    Kind,
    Language,
    Phrases,
)

Carrier = Literal["user", "assistant", "tool"]
TURNS: Final = 400
PART_OF_WINDOW: Final = 40
"""One part in so many of the window is the length of a turn, its facts apart."""
SEEDS: Final[dict[Language, int]] = {"English": 4, "German": 2, "Japanese": 2}
"""How many conversations of each kind are written in a language."""
FIGURES_IN_TALK: Final = 0.2
"""The share of sentences in talk that are taken from those of which some have figures."""
CHANGES: Final = (22, 24, 26, 31, 35, 40, 48, 60, 75)
CONSTRAINED: Final = (1, 3, 6, 10, 15)
TO_DO: Final = (5, 9, 14)
DONE: Final = 27
ARTIFACTS: Final[Mapping[int, tuple[int, State]]] = {
    2: (0, "read"), 4: (1, "read"), 7: (2, "written"), 8: (3, "read"), 11: (0, "written"), 13: (4, "written"),
    17: (5, "read"), 19: (1, "deleted"), 29: (4, "deleted"), 38: (3, "written"),
}  # fmt: skip
"""What happens in which turn to which of the files."""
TOOL: Final[Mapping[State, str]] = {"read": "read_file", "written": "write_file", "deleted": "delete_file"}


@dataclass(slots=True)
class Fact:
    """One thing that was told; `values` are those so far, the newest last, `also` other words that name it."""

    label: str
    kind: str
    carrier: Carrier
    values: list[str]
    also: tuple[str, ...] = ()

    @property
    def newest(self) -> str:
        """Return the value that holds now."""
        return self.values[-1]

    @property
    def is_identifier(self) -> bool:
        """Tell whether the value is more than words."""
        return self.kind not in ("word", "name")


@dataclass(slots=True)
class Known:
    """What was said so far: the ground truth of a conversation at one moment."""

    facts: dict[str, Fact] = field(default_factory=dict)
    constraints: list[str] = field(default_factory=list)
    open_todos: list[str] = field(default_factory=list)
    artifacts: dict[str, State] = field(default_factory=dict)

    def within(self, text: str) -> "Known":
        """Return what of it a text has said: a turn may be asked about before its end."""
        facts = {
            label: replace(fact, values=values)
            for label, fact in self.facts.items()
            if (values := [value for value in fact.values if value in text])
        }
        constraints = [each for each in self.constraints if each in text]
        todos = [each for each in self.open_todos if each in text]
        return Known(facts, constraints, todos, {path: state for path, state in self.artifacts.items() if path in text})


@dataclass(frozen=True, slots=True)
class Written:
    """One written conversation: a kind, a language and a seed, from which everything follows."""

    kind: Kind
    language: Language
    seed: int

    @property
    def name(self) -> str:
        """Return what it is called in a table."""
        return f"{self.kind}, {self.language}, {self.seed}"

    @property
    def uses_tools(self) -> bool:
        """Tell whether the assistant calls tools."""
        return self.kind != "plan"

    def turns(self, window: int) -> "Iterator[tuple[list[Message], Known]]":
        """Yield the messages of each turn, and what was said up to its end; the first begins with a system message."""
        writer = Writer(self, random.Random(f"{self.name} {window}"), window)
        for number in range(TURNS):
            yield writer.turn(number), writer.known


def all_written() -> list[Written]:
    """Return every written conversation."""
    return [
        Written(kind, language, seed)
        for kind in KINDS
        for language in LANGUAGES
        for seed in range(1, SEEDS[language] + 1)
    ]


class Writer:
    """Writes the turns of one conversation for a window."""

    def __init__(self, written: Written, chance: random.Random, window: int) -> None:
        self.known = Known()
        self._written = written
        self._values = Values(random.Random(written.name), written.language)
        self._chance = chance
        self._phrases: Phrases = PHRASES[written.language]
        self._letters = int(window / PART_OF_WINDOW * self._phrases.letters)
        self._plan = self._planned()
        self._files = [self._values.of("path") for _ in range(6)]

    def turn(self, number: int) -> list[Message]:
        """Return one turn: a message of the user, calls with results, and an answer."""
        said: dict[Carrier, list[str]] = {"user": [], "assistant": [], "tool": []}
        for carrier, sentence in self._told_in(number):
            said[carrier].append(sentence)
        phrases, chance = self._phrases, self._chance
        parts = (2, 5, 3) if self._written.uses_tools else (4, 0, 6)
        asked = " ".join([self._filler(parts[0]), *said["user"], chance.choice(phrases.questions)])
        answered = " ".join([chance.choice(phrases.answers), *said["assistant"], self._filler(parts[2])])
        messages: list[Message] = [{"role": "system", "content": phrases.system}] if number == 0 else []
        messages.append({"role": "user", "content": asked})
        if self._written.uses_tools and (number % 2 == 0 or said["tool"] or number in ARTIFACTS):
            messages += self._used(number, said["tool"])
        elif said["tool"]:
            answered = " ".join([answered, *said["tool"]])
        return [*messages, {"role": "assistant", "content": answered}]

    def _planned(self) -> list[tuple[int, str, str, Carrier]]:
        """Return in which turn which fact is told by whom, without its values."""
        lines = LABELS[self._written.kind].splitlines()
        rows = [[part.strip() for part in line.split("|")] for line in lines]
        column = 1 + LANGUAGES.index(self._written.language)
        order = random.Random(f"{self._written.name} order")
        order.shuffle(rows)
        carriers: tuple[Carrier, ...] = ("user", "assistant", "user", "tool")
        rows = rows[: 24 - self._written.seed % 4]
        return [(1 + at * 20 // len(rows), row[column], row[0], carriers[at % 4]) for at, row in enumerate(rows)]

    def _told_in(self, number: int) -> Iterator[tuple[Carrier, str]]:
        """Yield what is told in a turn, by whom; what is known changes along."""
        language, known = self._written.language, self.known
        for turn, label, kind, carrier in self._plan:
            if turn == number:
                fact = known.facts[label] = Fact(label, kind, carrier, [self._values.of(kind)])
                yield carrier, self._chance.choice(TOLD[language]).format(label=label, value=fact.newest)
        if number in CHANGES[: len(self._plan) // 3]:
            yield self._changed(CHANGES.index(number))
        key = (self._written.kind, language)
        if number in CONSTRAINED:
            known.constraints.append(CONSTRAINTS[key][CONSTRAINED.index(number)])
            yield "user", known.constraints[-1]
        if number in TO_DO:
            known.open_todos.append(TODOS[key][TO_DO.index(number)])
            yield "user", self._phrases.todo.format(todo=known.open_todos[-1])
        if number == DONE:
            yield "assistant", self._phrases.done.format(todo=known.open_todos.pop(1))

    def _changed(self, number: int) -> tuple[Carrier, str]:
        *_, label, kind, carrier = self._plan[3 * number % len(self._plan)]
        fact = self.known.facts[label]
        new = self._values.of(kind, other_than=fact.values)
        frame = CHANGED[self._written.language][number % 3]
        sentence = frame.format(label=label, value=new, old=fact.newest)
        fact.values.append(new)
        return carrier, sentence

    def _used(self, number: int, said: Sequence[str]) -> list[Message]:
        """Return a call and its result: of a file, or of a search or command in a turn without one."""
        data = self._filler(10, with_data=True)
        result = "\n".join([*said, data])
        place, state = ARTIFACTS.get(number, (-1, "read"))
        if place >= 0:
            path = self._files[place]
            self.known.artifacts[path] = state
            name, arguments = TOOL[state], {"path": path}
            if state == "written":
                arguments["content"] = data
            if state != "read":
                result = "\n".join([f"ok: {path}", *said])
        else:
            name = "web_search" if self._written.kind == "research" else "run_command"
            arguments = {"query" if name == "web_search" else "command": f"look step_{number} --all"}
        call_id = f"call{number:05}"
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        return [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": call_id, "content": result},
        ]

    def _filler(self, tenths: int, *, with_data: bool = False) -> str:
        """Return sentences about nothing that matters; in a tool's result each third has figures, else few have."""
        plain = [frame for frame in self._phrases.filler if "{" not in frame]
        sentences: list[str] = []
        length = 0
        while length < self._letters * tenths // 10:
            has_data = with_data or self._chance.random() < FIGURES_IN_TALK
            frame = self._chance.choice(self._phrases.filler if has_data else plain)
            sentence = frame.format(n=self._chance.randint(2, 99), m=f"{self._chance.randint(1000, 9999)}")
            sentences.append(sentence)
            length += len(sentence)
        return " ".join(sentences)
