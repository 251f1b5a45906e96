"""Conversations of any length, the same on every run, whose messages are measured in shares of a window."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
Kind = Literal["plain", "tools", "code", "japanese"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
LARGEST_SHARE: Final = 0.1
SHARES: Final = (
    0.005,
    0.01,
    0.015,
    0.02,
    0.005,
    0.01,
    0.015,
    0.01,
    0.005,
    0.02,
    0.015,
    0.02,
    0.01,
    0.01,
    0.05,
    LARGEST_SHARE,
)
"""How much of the window each message takes: a fiftieth on average, a tenth at most."""
SYSTEM: Final = (
    "You keep the logbook of the ferry Ørnen (hull 7741-KX). Answer in full sentences. "
    "Never promise a crossing at wind force 8 or above; the harbour's radio channel is 12."
)
TOOLS: Final[tuple[Json, ...]] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, argument, description in (
        ("read_note", "path", "Read one note."),
        ("search_notes", "query", "Search all notes."),
        ("run_tests", "target", "Run the tests of one target."),
    )
)
ADJECTIVES: Final = (
    *("quiet", "long", "grey", "early", "narrow", "wooden"),
    *("heavy", "distant", "careful", "open", "broken", "northern"),
)
NOUNS: Final = (
    *("harbour", "ferry", "rope", "ledger", "signal", "engine"),
    *("captain", "timetable", "bridge", "cargo", "lamp", "island"),
)
VERBS: Final = (
    *("carried", "repaired", "counted", "delayed", "reported", "followed"),
    *("inspected", "painted", "measured", "returned"),
)
JAPANESE_PARTS: Final = (
    ("船長は", "港の人は", "機関士は", "乗客は", "島の郵便局は", "私たちは"),
    ("朝早く", "雨の中で", "昨日の夕方", "三番桟橋で", "灯台の近くで", "静かに"),
    ("古い時刻表を", "長いロープを", "青い荷物を", "エンジンの部品を", "新しい地図を", "航海日誌を"),
    ("確認した。", "修理した。", "運んだ。", "数えた。", "届けた。", "書き直した。"),
)


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call of a client's tool, and what the client's tool returns."""

    name: str
    arguments_text: str
    result: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user's message, what the assistant calls before it answers (round after round), and its answer."""

    number: int
    user: str
    rounds: tuple[tuple[ClientCall, ...], ...]
    reply: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole conversation; every user's message is unique and begins with its number."""

    kind: Kind
    system: str
    tools: tuple[Json, ...]
    exchanges: tuple[Exchange, ...]

    def exchange_of(self, text: str) -> Exchange | None:
        """Return the exchange of the last user's message that this text holds at the beginning of a line."""
        found = re.findall(r"^(?:Request|依頼) (\d+)[:\uff1a]", text, re.MULTILINE)
        return self.exchanges[int(found[-1]) - 1] if found else None


def conversation(kind: Kind, turns: int, window: int, count: Callable[[str], int], seed: int = 1) -> Conversation:
    """Return a conversation whose messages take a fiftieth of the window on average; `count` counts tokens."""
    writer = Writer(kind, window, count, random.Random(f"{kind} {seed}"))
    exchanges = tuple(writer.exchange(number) for number in range(1, turns + 1))
    return Conversation(kind, SYSTEM, TOOLS if kind == "tools" else (), exchanges)


class Writer:
    """Writes the messages of one conversation."""

    def __init__(self, kind: Kind, window: int, count: Callable[[str], int], chance: random.Random) -> None:
        self._kind = kind
        self._window = window
        self._count = count
        self._chance = chance
        self._numbers = itertools.count(1)
        self._shares = self._shuffled_shares()

    def exchange(self, number: int) -> Exchange:
        """Write one exchange; with tools, two in three have calls, and some of those side by side."""
        opening = f"依頼 {number}\uff1a" if self._kind == "japanese" else f"Request {number}: "
        user = self._message(opening)
        rounds: list[tuple[ClientCall, ...]] = []
        if self._kind == "tools" and number % 3:
            rounds = [tuple(self._call() for _ in range(parallel)) for parallel in ((1, 2), (2,))[number % 2]]
        return Exchange(number, user, tuple(rounds), self._message(f"(answer {number}) "))

    def _call(self) -> ClientCall:
        number = next(self._numbers)
        name, argument = self._chance.choice(
            [("read_note", "path"), ("search_notes", "query"), ("run_tests", "target")]
        )
        return ClientCall(name, json.dumps({argument: f"notes/{number:04d}.md"}), self._message(f"[result {number}] "))

    def _message(self, opening: str) -> str:
        """Return a text that begins like this and takes the next share of the window."""
        size = max(12, int(next(self._shares) * self._window))
        parts = [opening]
        used = self._count(opening)
        for part in self._parts():
            used += self._count(part)
            if used > size and len(parts) > 1:
                break
            parts.append(part)
        return "".join(parts).strip()

    def _parts(self) -> Iterator[str]:
        """Yield the pieces that a text consists of, without end."""
        match self._kind:
            case "plain" | "tools":
                while True:
                    yield self._sentence()
            case "japanese":
                while True:
                    yield "".join(self._chance.choice(part) for part in JAPANESE_PARTS)
            case "code":
                while True:
                    yield self._function()

    def _sentence(self) -> str:
        adjective, noun, other = self._chance.choice(ADJECTIVES), *self._chance.sample(NOUNS, 2)
        number = self._chance.randint(2, 9999)
        return f"The {adjective} {noun} {self._chance.choice(VERBS)} the {other} at mark {number}. "

    def _function(self) -> str:
        name, value = self._chance.choice(NOUNS), self._chance.randint(2, 999)
        return f"\n```python\ndef {name}_{value}(x: int) -> int:\n    return x * {value}\n```\n"

    def _shuffled_shares(self) -> Iterator[float]:
        while True:
            yield from self._chance.sample(SHARES, len(SHARES))
