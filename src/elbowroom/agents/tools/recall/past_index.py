"""The one search in what was said in a conversation: passages of its messages, ranked by full-text search."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import chain, islice

from elbowroom.agents.tools.recall.past import PastMessage
from elbowroom.context.passages import MOST_WORDS, asked_words, in_pieces, passages_of, words_of
from elbowroom.context.unasked import Found, Passage, most_told
from elbowroom.store.said import SaidIndex

LEAST_TOLD = 8
"""A word in so few passages may tell something, however few there are: what the prompt has besides will tell."""
MOST_RANKED = 64
"""How many of the best passages are looked at for what comes back unasked."""


class PastIndex:
    """The passages of a conversation's messages, which are only ever added to.

    Raises RequestError where SQLite has no full-text search.
    """

    def __init__(self) -> None:
        self._index = SaidIndex()
        self.passages: list[Passage] = []

    @classmethod
    def of(cls, messages: Iterable[PastMessage]) -> "PastIndex":
        """Return the index of these messages."""
        index = cls()
        index.add(messages)
        return index

    @property
    def letters(self) -> int:
        """Return how many letters it holds."""
        return self._index.letters

    def add(self, messages: Iterable[PastMessage]) -> None:
        """Add messages that were said after those that are there."""
        new = [
            Passage(said.number, said.role, said.text[span.begin : span.end], span.begin, said.at)
            for said in messages
            for span in passages_of(said.text)
        ]
        self._index.add(in_pieces(passage.text) for passage in new)
        self.passages += new

    def ranked(self, query: str) -> Sequence[Passage]:
        """Return the passages that have words of a query, the best first; else those with words that begin so."""
        words = list(islice(words_of(query), MOST_WORDS))
        most = max(1, self._index.size)
        best = self._index.best(words, most) or self._index.best(words, most, begun=True)
        return [self.passages[place] for place in best]

    def found(self, message: str) -> Found:
        """Return what a search for the words of a message finds that tell something."""
        size = self._index.size
        most = max(LEAST_TOLD, most_told(size))
        places = {word: held for word in asked_words(message) if (held := self._index.weights(word, most))}
        sums: defaultdict[int, float] = defaultdict(float)
        for place, weight in chain.from_iterable(held.items() for held in places.values()):
            sums[place] += weight
        return Found(size, places, nlargest(MOST_RANKED, sums, key=lambda place: (sums[place], place)))
