"""Parts the text of one reply: thoughts at its beginning from words, and words from what a stop sequence ends."""

import re
from collections.abc import Sequence
from dataclasses import replace

from elbowroom.agents.request import ChatRequest
from elbowroom.context.canonical import THOUGHTS_END, THOUGHTS_START


def stops_of(request: ChatRequest) -> tuple[Sequence[str], ChatRequest]:
    """Return the stop sequences that are looked for here, and the request without them."""
    stops = request.fields.get("stop")
    if not stops:
        return (), request
    return stops, replace(request, fields={name: value for name, value in request.fields.items() if name != "stop"})


class ThoughtsInText:
    """Tells thoughts from words where the engine does not: a reply that begins with `<think>` thinks until `</think>`.

    `is_over` once nothing more of the reply can be thoughts: then it need not be asked any more.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._held = ""
        self._is_inside = self._has_begun = self._has_thought = False

    def feed(self, text: str) -> tuple[str, str]:
        """Take a piece; return the thoughts and the words that are known by it."""
        if self.is_over:
            return "", text
        self._held += text
        if self._has_thought:
            return "", self._words_after()
        if not self._is_inside and not self._begins():
            return "", self._words()
        if not self._is_inside:
            return "", ""
        if not self._has_begun:
            self._held = self._held.lstrip()
        thoughts, end, words = self._held.partition(THOUGHTS_END)
        if end:
            self._has_thought, self._held = True, words
            return thoughts.rstrip(), self._words_after()
        known = thoughts[: len(thoughts) - _length_of_beginning(thoughts, [THOUGHTS_END])].rstrip()
        self._has_begun = self._has_begun or bool(known)
        self._held = self._held[len(known) :]
        return known, ""

    def end(self) -> tuple[str, str]:
        """Return what was held back at the end of the reply."""
        rest, self._held, self.is_over = self._held, "", True
        return (rest, "") if self._is_inside and not self._has_thought else ("", rest)

    def _begins(self) -> bool:
        """Tell whether thoughts begin here, or may; take their sign where it is whole."""
        text = self._held.lstrip()
        if text.startswith(THOUGHTS_START):
            self._is_inside, self._held = True, text.removeprefix(THOUGHTS_START)
        return self._is_inside or THOUGHTS_START.startswith(text)

    def _words(self) -> str:
        words, self._held, self.is_over = self._held, "", True
        return words

    def _words_after(self) -> str:
        """Return the words after thoughts, without the white space between them."""
        self._held = self._held.lstrip()
        return self._words() if self._held else ""


class StopSequences:
    """Finds the first stop sequence in the text of a reply, which is `found` then; what may begin one is held back."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self.found: str | None = None
        self._sequences = sequences
        self._pattern = re.compile("|".join(map(re.escape, sorted(sequences, key=len, reverse=True))))
        self._held = ""

    def feed(self, text: str) -> str:
        """Take a piece; return the text that is known to come before all stop sequences."""
        text = self._held + text
        if found := self._pattern.search(text):
            self.found, self._held = found[0], ""
            return text[: found.start()]
        known = len(text) - _length_of_beginning(text, self._sequences)
        self._held = text[known:]
        return text[:known]

    def end(self) -> str:
        """Return what was held back at the end of the reply."""
        rest, self._held = self._held, ""
        return rest


def _length_of_beginning(text: str, signs: Sequence[str]) -> int:
    """Return the length of the longest end of a text with which one of these signs begins."""
    longest = max(map(len, signs))
    ends = range(max(0, len(text) - longest + 1), len(text))
    return next((len(text) - at for at in ends if any(sign.startswith(text[at:]) for sign in signs)), 0)
