"""Four scripted pruning agents: a faithful one, one that loses half, one that invents, one that answers garbage."""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.context.transcript import text_of
from elbowroom.quality.conversations import Known

Body = Mapping[str, Any]
Size = Callable[[str], int]
ORDER: Final = "Answer with one JSON object and nothing else"
MOST_WORDS: Final = re.compile(r"at most (\d+) words")
TOKENS_A_WORD: Final = 1.5
"""An order's limit in words is two thirds of its limit in tokens."""
MARGIN: Final = 0.85
AGENTS: Final = ("faithful", "sloppy", "inventing", "garbage")
EMPTY: Final = "empty"
"""One more, which answers in due form with a summary that says nothing."""
GARBAGE: Final = (
    "I'm sorry, but I can't help with that.",
    '{"retain": "- ',
    "Sure! Let us go on. The next step is to look at the list again, and then we decide together what to do.",
    "",
    "[[[[ {{{ null, null, undefined }}} ]]]]",
)
MADE_UP: Final = ("src/phantom/table_404.py", "https://phantom.example.org/z/1313", "10.99.98.97:1313", "GHO-1313")


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a plan, and what it is about; `value` is the newest of a fact."""

    about: str
    line: str
    must_hold: bool
    value: str = ""


def is_order(body: Body) -> bool:
    """Tell whether a request orders a compaction."""
    last = body["messages"][-1]
    return last.get("role") == "user" and ORDER in text_of(last)


class Agent:
    """Answers the orders of one conversation; `invented` are the values that it has made up so far."""

    def __init__(self, kind: str, known: Callable[[], Known], size: Size) -> None:
        self._kind = kind
        self._known = known
        self._size = size
        self._orders = 0
        self.invented: set[str] = set()

    def answer(self, body: Body) -> str:
        """Return the answer to an order."""
        self._orders += 1
        if self._kind == "garbage":
            return GARBAGE[self._orders % len(GARBAGE)]
        if self._kind == EMPTY:
            return json.dumps({"retain": "", "summary": "", "keep": []})
        shown = "\n".join(map(_written, body["messages"]))
        items = list(self._items(shown))
        if self._kind == "sloppy":
            items = [item for item in items if zlib.crc32(f"{item.about} {self._orders}".encode()) % 2]
        if self._kind == "inventing":
            items = [self._untrue(item) for item in items] + [self._made_up()]
        order = text_of(body["messages"][-1])
        limit = MOST_WORDS.search(order)
        return self._plan(items, int(int(limit[1]) * TOKENS_A_WORD * MARGIN) if limit else 200)

    def _items(self, shown: str) -> Iterator[Item]:
        """Yield what of the truth stands in the text that the agent is shown: what must hold at first."""
        known = self._known()
        for constraint in known.constraints:
            if constraint in shown:
                yield Item(constraint, constraint, must_hold=True)
        for todo in known.open_todos:
            if todo in shown:
                yield Item(todo, f"to do: {todo}", must_hold=True)
        for fact in known.facts.values():
            seen = [value for value in fact.values if value in shown]
            if seen:
                yield Item(fact.label, f"{fact.label}: {seen[-1]}", must_hold=False, value=seen[-1])
        for path, state in known.artifacts.items():
            if path in shown:
                yield Item(path, f"{state} {path}", must_hold=False)

    def _untrue(self, item: Item) -> Item:
        """Return the item, or each fourth fact with digits that nobody has said."""
        if not re.search(r"\d", item.value) or zlib.crc32(item.about.encode()) % 4:
            return item
        wrong = re.sub(r"\d", lambda digit: str((int(digit[0]) + 3) % 10), item.value)
        self.invented.add(wrong)
        return Item(item.about, item.line.replace(item.value, wrong), item.must_hold, wrong)

    def _made_up(self) -> Item:
        self.invented.update(MADE_UP)
        return Item("made up", f"See also {', '.join(MADE_UP)}.", must_hold=False)

    def _plan(self, items: list[Item], most: int) -> str:
        """Return a plan with as many of the items as fit."""
        retain: list[str] = []
        summary: list[str] = []
        left = most - 40
        for item in items:
            left -= self._size(f"- {item.line}\n")
            if left < 0:
                break
            (retain if item.must_hold else summary).append(f"- {item.line}")
        told = "\n".join(summary) or "The work went on."
        return json.dumps({"retain": "\n".join(retain), "summary": told, "keep": []}, ensure_ascii=False)


def _written(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    return "\n".join([text_of(message), *(str(call["function"]["arguments"]) for call in calls)])
