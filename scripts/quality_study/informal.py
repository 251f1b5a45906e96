"""Conversations of another style: lower case, typing errors, minds changed in passing, and in six more languages.

Each file in `conversations/` has the telling turns of one, written by hand; sentences from `filler/` fill the rest.

    language: English
    rent: rent, cold rent               a fact, and other words that name it
    ---
    > the rent is {rent=840 eur}        the user says a value; the last one of a name is what holds
    > {!nothing on a wednesday}         what must hold
    > still to {+call the landlord}     something to do
    > called him {-call the landlord}   it is done; the braces are not said
    < noted.                            the assistant
    $ read_file notes.txt               a call of the assistant, with its one argument
    = a line of its result
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from sizes import ARGUMENTS, tokens

from elbowroom.context.transcript import Message
from elbowroom.quality.conversations import PART_OF_WINDOW, TURNS, Carrier, Fact, Known

FOLDER: Final = Path(__file__).with_name("conversations")
FILLER: Final = Path(__file__).with_name("filler")
APART: Final = 4
"""One turn in so many tells something."""
MARK: Final = re.compile(r"\{([!+-]?)([^{}=]+)(?:=([^{}]+))?\}")
CARRIERS: Final[Mapping[str, Carrier]] = {">": "user", "<": "assistant", "=": "tool"}
FILLED: Final = {">": 0.15, "=": 0.9, "<": 0.65}
"""How much of a turn's length the user, a result and the assistant fill."""
LONG_RESULT: Final = 4.0
"""So many turns long is a result that tells something."""
BETWEEN: Final = {">": "\n", "<": " "}
RAMBLING: Final = 0.5
"""The share of telling turns in which the user says something else besides."""


@dataclass(frozen=True, slots=True)
class Informal:
    """One conversation; `names` are the words that name its facts, `told` the lines of its telling turns."""

    name: str
    language: str
    names: Mapping[str, tuple[str, ...]]
    told: tuple[tuple[str, ...], ...]
    kind: str = "informal"

    def turns(self, window: int) -> Iterator[tuple[list[Message], Known]]:
        """Yield the messages of each turn, and what was said up to its end; the first begins with a system message."""
        known, chance = Known(), random.Random(f"{self.name} {window}")
        length = window / PART_OF_WINDOW
        for number in range(TURNS):
            at, rest = divmod(number, APART)
            is_told = not rest and at < len(self.told)
            lines = self.told[at] if is_told else tuple(filled(self.language, length, chance))
            if is_told:
                lines = tuple(among_others(lines, self.language, length * LONG_RESULT, chance))
            if is_told and chance.random() < RAMBLING:
                lines = (f"{lines[0]}\n{sentence(self.language, '>', chance)}", *lines[1:])
            messages = list(self._messages(lines, known, number))
            yield (
                ([{"role": "system", "content": "You are a helpful assistant."}] if not number else []) + messages,
                known,
            )

    def _messages(self, lines: Sequence[str], known: Known, number: int) -> Iterator[Message]:
        """Yield the messages of a turn; what is known grows along."""
        result: list[str] = []
        call_id = f"call{number:05}"
        for line in lines:
            sign, text = line[0], line[2:]
            if result and sign != "=":
                yield {"role": "tool", "tool_call_id": call_id, "content": "\n".join(result)}
                result = []
            if sign == "$":
                name, _, argument = text.partition(" ")
                if name == "read_file":
                    known.artifacts[argument] = "read"
                function = {"name": name, "arguments": json.dumps({ARGUMENTS[name]: argument}, ensure_ascii=False)}
                calls = [{"id": call_id, "type": "function", "function": function}]
                yield {"role": "assistant", "content": "", "tool_calls": calls}
                continue
            said = self._said(text, CARRIERS[sign], known)
            if sign == "=":
                result.append(said)
            else:
                yield {"role": CARRIERS[sign], "content": said}

    def _said(self, text: str, carrier: Carrier, known: Known) -> str:
        """Return a line without its marks; what is known changes by them."""

        def without(mark: re.Match[str]) -> str:
            kind, words, value = mark.groups()
            if kind == "!":
                known.constraints.append(words)
            elif kind == "+":
                known.open_todos.append(words)
            elif kind == "-":
                known.open_todos.remove(words)
                return ""
            else:
                names = self.names.get(words, (words,))
                fact = known.facts.setdefault(words, Fact(words, kind_of(value), carrier, [], names))
                fact.values.append(value)
                return value
            return words

        return MARK.sub(without, text).rstrip()


def among_others(lines: Sequence[str], language: str, length: float, chance: random.Random) -> Iterator[str]:
    """Yield the lines of a telling turn, those of a result between others without weight."""
    results = [line for line in lines if line[0] == "="]
    for line in lines:
        if results and line == results[0]:
            yield from result_of(language, length / 2, chance)
        yield line
        if results and line == results[-1]:
            yield from result_of(language, length / 2, chance)


def result_of(language: str, length: float, chance: random.Random) -> Iterator[str]:
    """Yield the lines of a tool's result without weight."""
    size = 0
    while size < length:
        yield (line := f"= {sentence(language, '=', chance)}")
        size += tokens(line)


def kind_of(value: str) -> str:
    """Return whether a value is words or more."""
    return "value" if re.search(r"[\d@/#*]", value) else "word"


def filled(language: str, length: float, chance: random.Random) -> Iterator[str]:
    """Yield the lines of a turn about nothing that matters; in one of four the assistant calls a tool."""
    signs = [">", "<"] if chance.random() < 0.75 else [">", "=", "<"]
    for sign in signs:
        if sign == "=":
            yield f"$ run_command show --page {chance.randint(10, 999)}"
            yield from result_of(language, length * FILLED[sign], chance)
            continue
        said: list[str] = []
        while tokens(" ".join(said)) < length * FILLED[sign]:
            said.append(sentence(language, sign, chance))
        yield f"{sign} {BETWEEN[sign].join(said)}"


def sentence(language: str, sign: str, chance: random.Random) -> str:
    """Return a sentence of this speaker about nothing that matters, with a made-up name and figures of its own."""
    syllables, sentences = filler_of(language)
    word = "".join(chance.sample(syllables, 2 if language == "Chinese" else 3))
    return chance.choice(sentences[sign]).format(w=word, n=chance.randint(2, 59), m=chance.randint(1000, 9999))


@cache
def filler_of(language: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the syllables of made-up words of a language, and the sentences of each speaker."""
    head, *lines = (FILLER / f"{language}.txt").read_text("utf-8").splitlines()
    said: dict[str, list[str]] = {}
    for line in lines:
        said.setdefault(line[0], []).append(line[2:])
    return head.partition(": ")[2].split(), said


def all_informal(languages: Sequence[str] = ()) -> list[Informal]:
    """Return the conversations in these languages, or in all."""
    found = [_read(path) for path in sorted(FOLDER.glob("*.txt"))]
    return [each for each in found if not languages or each.language in languages]


def _read(path: Path) -> Informal:
    head, _, body = path.read_text("utf-8").partition("\n---\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    language = fields.pop("language")
    names = {label: tuple(words.split(", ")) for label, words in fields.items()}
    turns: list[list[str]] = []
    for line in body.splitlines():
        if line[:2] not in ("> ", "< ", "$ ", "= "):
            raise ValueError(f"{path}: no line of a conversation: {line!r}")
        if line[0] == ">":
            turns.append([])
        turns[-1].append(line)
    return Informal(path.stem, language, names, tuple(map(tuple, turns)))
