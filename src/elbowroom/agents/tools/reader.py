"""Reads a text of which more may come, word by word and value by value: what a model has written in place of a call."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.agents.broken_json import repaired_json

STRING_OR_BRACKET: Final = re.compile(r'"(?:\\.|[^"\\])*+"|"|[{}\[\]]', re.DOTALL)


class NotYet(Exception):
    """The text ends before it is known what it is."""


class CallAtTheEnd(NotYet):
    """The text is a call if nothing else follows it."""


class NoCall(Exception):
    """The text is no call."""


@dataclass(slots=True)
class Reader:
    """Reads a text from `at` on; where it ends too early, more is to come unless `is_whole`."""

    text: str
    is_whole: bool
    at: int = 0

    def skip_space(self) -> None:
        """Take white space."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def takes(self, word: str) -> bool:
        """Take a word if it comes next; raises NotYet where that cannot be known."""
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        if word.startswith(self.text[self.at :]) and not self.is_whole:
            raise NotYet
        return False

    def takes_after_space(self, word: str) -> bool:
        """Take a word after white space, or nothing at all."""
        before = self.at
        self.skip_space()
        if self.takes(word):
            return True
        self.at = before
        return False

    def matched(self, pattern: re.Pattern[str], closer: str) -> re.Match[str]:
        """Take what a pattern matches; until `closer` has come, more may be needed for it."""
        if found := pattern.match(self.text, self.at):
            self.at = found.end()
            return found
        raise self._missing(closer)

    def up_to(self, closer: str) -> str:
        """Take the text before `closer` and that itself."""
        end = self.text.find(closer, self.at)
        if end < 0:
            raise self._missing(closer)
        inside = self.text[self.at : end]
        self.at = end + len(closer)
        return inside

    def _missing(self, closer: str) -> Exception:
        return NoCall() if self.is_whole or closer in self.text[self.at :] else NotYet()

    def json(self) -> Any:
        """Take one JSON object or list."""
        self.skip_space()
        if not self.text.startswith(("{", "["), self.at):
            raise NotYet if self.at >= len(self.text) and not self.is_whole else NoCall
        depth = 0
        for found in STRING_OR_BRACKET.finditer(self.text, self.at):
            if found[0] == '"':  # a text that has not ended
                break
            depth += (found[0] in "{[") - (found[0] in "}]")
            if depth == 0:
                return self._loaded(found.end())
        raise NoCall if self.is_whole else NotYet

    def _loaded(self, end: int) -> Any:
        try:
            value = json.loads(self.text[self.at : end], strict=False)
        except (ValueError, RecursionError):
            value = repaired_json(self.text[self.at : end])
        if not isinstance(value, dict | list):
            raise NoCall
        self.at = end
        return value
