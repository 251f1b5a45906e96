"""Random chat histories for property tests: sound ones, and such as clients and cuts leave behind."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Json = dict[str, Any]

NAME: Final = "read_note"
TOOLS: Final[list[Json]] = [
    {
        "type": "function",
        "function": {
            "name": NAME,
            "description": "Reads one note.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string", "description": "Where"}}},
        },
    }
]
IDS: Final = ("", "call_0", "call_1", "abcDEF123", "call_01A09q90qw90lq917835lq9", None)
ARGUMENTS: Final = (
    "",
    "{}",
    "not JSON {word}",
    '["{word}"]',
    '"{word}"',
    '{"cut": "{word}',
    '{"path": NaN, "x": "{word}"}',
)
ENDINGS: Final = ("", " Grüße, 你好 🌱", "\n\n- a list\n- of two ", " <b>&amp;\"'</b> {{ 1 }}", " ```\ncode\n```")
WORD: Final = re.compile(r"word\d+\.")


always_the_same = settings(derandomize=True, database=None)
"""Settings of property tests: the same examples in every run, as many as the profile says."""


def words_in(*texts: object) -> set[str]:
    """Return the words that `histories` wrote into these texts, messages or lists of them."""
    return {word for text in texts for word in WORD.findall(json.dumps(text, ensure_ascii=False))}


def some_histories(count: int, *, sound: bool = False) -> list[list[Json]]:
    """Return histories that are the same in every run."""
    drawn: list[list[Json]] = []

    @settings(always_the_same, max_examples=count, suppress_health_check=list(HealthCheck))
    @given(histories(sound=sound))
    def collect(history: list[Json]) -> None:
        drawn.append(history)

    collect()
    return drawn


@st.composite
def histories(draw: st.DrawFn, *, sound: bool = False, max_size: int = 12) -> list[Json]:
    """Draw a history in which every text holds a word of its own, `word1.` and so on.

    In a sound one each call is answered right behind it, ids are unique, arguments are objects and content is
    text. Any other may have everything wrong that a client can get wrong and still send JSON.
    """
    author = Author(draw, sound)
    messages: list[Json] = []
    for _ in range(draw(st.integers(1, max_size))):
        messages.extend(author.group() if sound else [author.message()])
    return messages


class Author:
    """Writes messages, each text with a word that no other has."""

    def __init__(self, draw: st.DrawFn, sound: bool) -> None:
        self.draw = draw
        self.sound = sound
        self.words = 0

    def word(self) -> str:
        self.words += 1
        return f"word{self.words}."

    def text(self) -> str:
        return self.word() + self.draw(st.sampled_from(ENDINGS))

    def content(self) -> str | list[Json] | None:
        kind = self.draw(st.sampled_from(("text", "text", "text", "parts", "empty", "null")))
        if self.sound or kind == "text":
            return self.text()
        if kind == "parts":
            return [{"type": "text", "text": self.text()} for _ in range(self.draw(st.integers(0, 2)))]
        return "" if kind == "empty" else None

    def group(self) -> list[Json]:
        """Write one message, or one with calls and all their results."""
        role = self.draw(st.sampled_from(("system", "user", "user", "assistant", "calls")))
        if role != "calls":
            return [{"role": role, "content": self.content()}]
        calls = [self.call(f"call_{self.words}_{number}") for number in range(self.draw(st.integers(1, 3)))]
        content = self.draw(st.sampled_from(("", self.text())))
        results = [self.result(call["id"]) for call in calls]
        return [{"role": "assistant", "content": content, "tool_calls": calls}, *results]

    def message(self) -> Json:
        """Write one message of any kind, whatever stands before it."""
        roles = ("system", "developer", "user", "assistant", "assistant", "calls", "tool", "tool")
        role = self.draw(st.sampled_from(roles))
        if role == "tool":
            return self.result(self.draw(st.sampled_from(IDS)))
        if role != "calls":
            return {"role": role, "content": self.content()}
        calls = [self.call(self.draw(st.sampled_from(IDS))) for _ in range(self.draw(st.integers(0, 3)))]
        return {"role": "assistant", "content": self.content(), "tool_calls": calls}

    def call(self, call_id: str | None) -> Json:
        arguments = json.dumps({"path": self.text()}, ensure_ascii=False)
        if not self.sound:
            arguments = self.draw(st.sampled_from((arguments, *ARGUMENTS))).replace("{word}", self.word())
        call = {"type": "function", "function": {"name": NAME, "arguments": arguments}}
        return call if call_id is None else {"id": call_id, **call}

    def result(self, call_id: str | None) -> Json:
        message: Json = {"role": "tool", "content": self.content()}
        return message if call_id is None else {**message, "tool_call_id": call_id}
