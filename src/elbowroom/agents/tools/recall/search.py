"""Finds messages by words or by a pattern, and the place in each where it fits."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from elbowroom.agents.tools.outputs import LinearPattern
from elbowroom.agents.tools.recall.past import PastMessage
from elbowroom.context.memories import MOST_WORDS, WITHOUT_SPACES, WORD, folded, has_word
from elbowroom.context.outputs import utf8
from elbowroom.errors import RequestError

LONGEST_QUERY: Final = 1000
SECONDS: Final = 10.0
BEFORE, LENGTH = 80, 240
"""Characters of an excerpt: before the place that fits, and in all."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that fits, and the character of its text, from 0 on, at which what fits begins."""

    message: PastMessage
    place: int


@dataclass(frozen=True, slots=True)
class Hits:
    """The messages that fit, the best first; `is_complete` is False where the time for a search was up."""

    hits: Sequence[Hit]
    is_complete: bool = True


def by_words(messages: Sequence[PastMessage], query: str) -> Hits:
    """Return the messages that have words of the query, the most telling first, and of equal ones the newest.

    A word may be the beginning of one in a message; case and accents do not matter. Words that few messages have count
    more, and a message that has the query as it stands comes first. Text of scripts without spaces is looked for by
    pairs of letters. Raises RequestError.
    """
    if len(query) > LONGEST_QUERY:
        raise RequestError(f"query: {len(query)} characters are too many to search for. Give a few words.")
    whole = folded(query).strip()
    words = _words(whole)
    texts = [folded(message.text) for message in messages]
    found = [_found(text, whole, words) for text in texts]
    weights = [math.log(1 + len(texts) / max(1, sum(each[at] for each in found))) for at in range(len(words) + 1)]
    scores = [sum(weight for weight, is_there in zip(weights, each, strict=True) if is_there) for each in found]
    fitting = [at for at, score in enumerate(scores) if score]
    ranked = sorted(fitting, key=lambda at: (-scores[at], -messages[at].number))
    return Hits([Hit(messages[at], _place(messages[at].text, _first(texts[at], whole, words))) for at in ranked])


def by_pattern(messages: Sequence[PastMessage], pattern: str, clock: Callable[[], float] = time.monotonic) -> Hits:
    """Return the messages in which a regular expression (RE2) matches, in whatever case, the newest first.

    The time for that grows with the text alone, and is bounded. Raises RequestError for what is no pattern.
    """
    compiled, began = LinearPattern(pattern, ignore_case=True), clock()
    hits: list[Hit] = []
    for message in reversed(messages):
        if clock() - began > SECONDS:
            return Hits(hits, is_complete=False)
        text = utf8(message.text)
        if (match := compiled.search(text, 0, len(text))) is not None:
            hits.append(Hit(message, len(text[: match[0]].decode("utf-8", "surrogatepass"))))
    return Hits(hits)


def excerpt(hit: Hit) -> str:
    """Return some words around the place that fits, on one line."""
    text = hit.message.text
    begin = max(0, min(hit.place - BEFORE, len(text) - LENGTH))
    line = " ".join(text[begin : begin + LENGTH].split())
    return f"{'…' if begin else ''}{line}{'…' if begin + LENGTH < len(text) else ''}"


def _words(whole: str) -> list[str]:
    """Return the folded words of a query; of scripts without spaces pairs of letters."""
    words: dict[str, None] = {}
    for word in WORD.findall(whole):
        pairs = [word[at : at + 2] for at in range(len(word) - 1)] if word >= WITHOUT_SPACES else []
        words |= dict.fromkeys(pairs or [word])
    return list(words)[:MOST_WORDS]


def _found(text: str, whole: str, words: Sequence[str]) -> list[bool]:
    """Return which words a folded text has; last, whether it has the whole query."""
    there = set(WORD.findall(text))
    return [*(has_word(text, there, word) for word in words), bool(whole) and whole in text]


def _first(text: str, whole: str, words: Sequence[str]) -> int:
    """Return where a folded text has the whole query, or else the longest of the words that it has."""
    wanted = [whole, *sorted(words, key=len, reverse=True)]
    return next((place for one in wanted if (place := text.find(one)) >= 0), 0)


def _place(text: str, place: int) -> int:
    """Return the place in a text of a place in its folded form, which may have more letters or fewer."""
    if text.isascii():
        return place
    ends = accumulate(len(folded(letter)) for letter in text)
    return next((at for at, end in enumerate(ends) if end > place), 0)
