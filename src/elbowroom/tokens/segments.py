"""The exact count of a rendered prompt, at the price of what is new in it."""

import threading
from collections import OrderedDict
from hashlib import blake2b
from itertools import accumulate
from typing import Final

from elbowroom.tokens.known_beginnings import Beginning, KnownBeginnings
from elbowroom.tokens.special_token_pattern import special_token_pattern
from elbowroom.tokens.tokenizer import Tokenizer

CAPACITY: Final = 20_000
DIGEST_BYTES: Final = 16
LONG: Final = 4000
"""Characters from which on the beginnings of a text are remembered too; a shorter one is quickly cut."""
PIECES_BACK: Final = (64, 16, 4, 1)
"""How many pieces before its end a beginning is remembered: templates write the last messages in another way."""


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
        self._capacity = capacity
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, text: str) -> int:
        """Return how many tokens a text takes, special tokens recognised and none added."""
        if len(text) < LONG or not self._longest_cut:
            return sum(self._sizes(self.pieces(text)))
        known, read = self._beginnings.longest_in(text)
        pieces = self.pieces(text[known.length :])
        sizes = self._sizes(pieces)
        starts = accumulate(map(len, pieces), initial=known.length)
        before = accumulate(sizes, initial=known.tokens)
        cuts = [
            Beginning(start, start + self._longest_cut, tokens)
            for start, tokens in zip(starts, before, strict=True)
            if start > known.length and start + self._longest_cut <= len(text)
        ]
        self._beginnings.remember(read, [cuts[-back] for back in PIECES_BACK if back <= len(cuts)])
        return known.tokens + sum(sizes)

    def _sizes(self, pieces: list[str]) -> list[int]:
        """Return how many tokens each piece takes."""
        digests = [_digest(piece) for piece in pieces]
        known = self._known(digests)
        missing = [place for place, digest in enumerate(digests) if digest not in known]
        counts = self.tokenizer.count_many([pieces[place] for place in missing])
        fresh = dict(zip((digests[place] for place in missing), counts, strict=True))
        self._remember(fresh)
        known |= fresh
        return [known[digest] for digest in digests]

    def count_prompt(self, prompt: str) -> int:
        """Return how many tokens the engine reads for a rendered prompt, added BOS and EOS included."""
        return self.count(prompt) + self.tokenizer.added_tokens(prompt)

    def pieces(self, text: str) -> list[str]:
        """Return the text cut before every special token."""
        if not text or self._cuts is None:
            return [text] if text else []
        starts = [match.start() for match in self._cuts.finditer(text)]
        if not starts or starts[0] != 0:
            starts.insert(0, 0)
        return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]

    def _known(self, digests: list[bytes]) -> dict[bytes, int]:
        """Return the counts that are remembered, and mark them as used."""
        known = {}
        with self._lock:
            for digest in digests:
                count = self._counts.get(digest)
                if count is not None:
                    known[digest] = count
                    self._counts.move_to_end(digest)
        return known

    def _remember(self, counts: dict[bytes, int]) -> None:
        with self._lock:
            self._counts.update(counts)
            while len(self._counts) > self._capacity:
                self._counts.popitem(last=False)


def _digest(piece: str) -> bytes:
    return blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
