"""Counts rendered prompts exactly, and tokenizes only the parts that it has not counted before."""

import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, filterfalse, pairwise, starmap
from typing import Final

from elbowroom.caches import Recent
from elbowroom.tokens.anchoring import digest_of
from elbowroom.tokens.files.tokenizer import Span, Tokenizer, special_token_pattern

CAPACITY: Final = 20_000
LONG: Final = 4000
"""Characters from which on the beginnings of a text are remembered too; a shorter text is cut quickly."""
PIECES_BACK: Final = (64, 16, 4, 1)
"""The pieces before a text's end at which its beginnings are remembered: templates rewrite the last messages."""


class SegmentCounter:
    """Counts prompts piece by piece and remembers the count of every piece; safe to use from any thread.

    A prompt is cut before every special token, where no token can reach across; the sum over the pieces is
    the tokenizer's own count of the whole. Only digests are kept: of the `capacity` pieces used last, 3 MB, and of
    the last long prompts' beginnings.
    """

    def __init__(self, tokenizer: Tokenizer, *, capacity: int = CAPACITY) -> None:
        self.tokenizer = tokenizer
        self._cuts = special_token_pattern(tokenizer.cut_points)
        self._longest_cut = max(map(len, tokenizer.cut_points), default=0)
        self._beginnings = KnownBeginnings()
        self._counts = Recent[bytes, int]("token_pieces", capacity)
        self._lock = threading.Lock()

    def count(self, text: str) -> int:
        """Return how many tokens a text takes, special tokens recognised and none added."""
        if len(text) < LONG or not self._longest_cut:
            return sum(self._sizes(text, self.spans(text)))
        known, read = self._beginnings.last_in(text)
        spans = self.spans(text, known.length)
        sizes = self._sizes(text, spans)
        before = list(accumulate(sizes, initial=known.tokens))
        last = len(text) - self._longest_cut
        cuts = [
            (start, tokens) for (start, _), tokens in zip(spans, before, strict=False) if known.length < start <= last
        ]
        ends = (cuts[-back] for back in PIECES_BACK if back <= len(cuts))
        self._beginnings.remember(read, [Beginning(start, start + self._longest_cut, tokens) for start, tokens in ends])
        return before[-1]

    def _sizes(self, text: str, spans: list[Span]) -> list[int]:
        """Return how many tokens each piece of a text takes; those that are remembered count as used now."""
        digests = list(starmap(partial(digest_of, text), spans))
        places, sizes = dict(zip(digests, spans, strict=True)), dict[bytes, int]()
        with self._lock:
            for digest in places:
                if (known := self._counts.get(digest)) is not None:
                    sizes[digest] = known
        if new := list(filterfalse(sizes.__contains__, places)):
            sizes |= zip(new, self.tokenizer.count_spans(text, map(places.__getitem__, new)), strict=True)
            with self._lock:
                for digest in new:
                    self._counts.put(digest, sizes[digest])
        return list(map(sizes.__getitem__, digests))

    def count_prompt(self, prompt: str) -> int:
        """Return how many tokens the engine reads for a rendered prompt, added BOS and EOS included."""
        return self.count(prompt) + self.tokenizer.added_tokens(prompt)

    def spans(self, text: str, start: int = 0) -> list[Span]:
        """Return where the pieces of a text stand from a place on: it is cut before every special token."""
        cuts = self._cuts.finditer(text, start) if self._cuts is not None else ()
        starts = list(map(re.Match.start, cuts))
        if start < len(text) and (not starts or starts[0] != start):
            starts.insert(0, start)
        return list(pairwise([*starts, len(text)]))

    def pieces(self, text: str) -> Iterator[str]:
        """Yield the pieces of a text one after the other."""
        return (text[start:end] for start, end in self.spans(text))


BEGINNINGS_KEPT: Final = 256
HASHED_AT_ONCE: Final = 2**14
"""Characters that are hashed together; to the last ones before an end the hash is made anew."""
TAIL: Final = 32
"""Last characters of a beginning, which are compared before all of it is hashed."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The tokens of a prompt's first `length` characters.

    It is recognised by the first `seen` characters, which are more: a cut may depend on the characters after it.
    """

    length: int
    seen: int
    tokens: int


class PartlyRead:
    """A text that is hashed from its beginning on, each character once, with a secret of this process."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._hashes: tuple[int, ...] = ()

    def hash_to(self, end: int) -> int:
        """Return the hash of the first `end` characters."""
        hashed = HASHED_AT_ONCE * len(self._hashes)
        starts = range(hashed, end - HASHED_AT_ONCE + 1, HASHED_AT_ONCE)
        self._hashes += tuple(hash(self.text[start : start + HASHED_AT_ONCE]) for start in starts)
        whole, rest = divmod(end, HASHED_AT_ONCE)
        return hash((end, *self._hashes[:whole], hash(self.text[end - rest : end])))


class KnownBeginnings:
    """The `capacity` beginnings that were used last, 300 bytes each and without their text; safe for all threads."""

    def __init__(self, *, capacity: int = BEGINNINGS_KEPT) -> None:
        self._known = Recent[int, tuple[int, Beginning]]("prompt_beginnings", capacity)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def last_in(self, text: str) -> tuple[Beginning, PartlyRead]:
        """Return the known beginning of a text that was used last, or an empty one, and the text hashed up to it.

        Of one prompt that is the longest, since that is remembered last.
        """
        read = PartlyRead(text)
        with self._lock:
            known = self._known.values()
        for each in reversed(known):
            tail, one = each
            if one.seen > len(text) or tail != _tail(text, one.seen):
                continue
            key = read.hash_to(one.seen)
            with self._lock:
                if self._known.get(key) is each:  # else it is another text that ends alike
                    return one, read
        return Beginning(0, 0, 0), read

    def remember(self, read: PartlyRead, beginnings: Iterable[Beginning]) -> None:
        """Remember beginnings of a text."""
        found = [(read.hash_to(one.seen), (_tail(read.text, one.seen), one)) for one in beginnings]
        with self._lock:
            for key, known in found:
                self._known.put(key, known)


def _tail(text: str, end: int) -> int:
    return hash(text[end - TAIL : end])
