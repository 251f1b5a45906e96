"""Finds messages by words or by a pattern, and the place in each where it fits."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.agents.tools.outputs import LinearPattern
from elbowroom.agents.tools.recall.past import PastMessage
from elbowroom.agents.tools.recall.past_index import PastIndex
from elbowroom.context.outputs import utf8
from elbowroom.context.passages import END
from elbowroom.errors import RequestError

LONGEST_QUERY: Final = 1000
SECONDS: Final = 10.0
BEFORE, LENGTH = 80, 240
"""Characters of an excerpt: before the place that fits, and in all."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that fits, the character of its text, from 0 on, at which what fits begins, and the passage there."""

    message: PastMessage
    place: int = 0
    passage: str = ""


@dataclass(frozen=True, slots=True)
class Hits:
    """The messages that fit, the best first; `is_complete` is False where the time for a search was up."""

    hits: Sequence[Hit]
    is_complete: bool = True


def by_words(index: PastIndex, among: Sequence[PastMessage], query: str) -> Hits:
    """Return those of some messages that have words of the query, the best first, and of equal ones the newest.

    Raises RequestError.
    """
    if len(query) > LONGEST_QUERY:
        raise RequestError(f"query: {len(query)} characters are too many to search for. Give a few words.")
    messages = {message.number: message for message in among}
    hits: dict[int, Hit] = {}
    for passage in index.ranked(query):
        if passage.message in messages and passage.message not in hits:
            hits[passage.message] = Hit(messages[passage.message], passage.begin, passage.text)
    return Hits(list(hits.values()))


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
    """Return the passage that fits, or some words around the place that does, on one line.

    A passage that ends within a sentence is read on to its end, as far as an excerpt goes.
    """
    text = hit.message.text
    begin, end = hit.place, hit.place + len(hit.passage)
    if hit.passage:
        stop = END.search(text, end, end + LENGTH)
        end = stop.start() if stop else end + LENGTH
    else:
        begin = max(0, min(hit.place - BEFORE, len(text) - LENGTH))
        end = begin + LENGTH
    line = " ".join(text[begin:end].split())
    return f"{'…' if begin else ''}{line}{'…' if end < len(text) else ''}"
