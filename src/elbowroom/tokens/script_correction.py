"""What a count has to be changed by for scripts that a model cuts finer or coarser than the vocabulary at hand."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from elbowroom.tokens.families import Ratios
from elbowroom.tokens.tokenizer import Tokenizer
from elbowroom.tokens.writing import script_runs

CAPACITY: Final = 20_000
DIGEST_BYTES: Final = 16


class ScriptCorrection:
    """Corrects counts script by script; the corrections of pieces used last are remembered, under their digests."""

    def __init__(self, tokenizer: Tokenizer, ratios: Ratios, *, capacity: int = CAPACITY) -> None:
        self._tokenizer = tokenizer
        self._ratios = ratios
        self._capacity = capacity
        self._known: OrderedDict[bytes, float] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, pieces: Iterable[str]) -> float:
        """Return the tokens to add for the scripts in a text given in pieces, beyond the ratio for all text."""
        if not self._ratios.scripts:
            return 0.0
        return sum(self._of_piece(piece) for piece in pieces if not piece.isascii())

    def _of_piece(self, piece: str) -> float:
        digest = blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        with self._lock:
            known = self._known.get(digest)
            if known is not None:
                self._known.move_to_end(digest)
                return known
        correction = self._calculated(piece)
        with self._lock:
            self._known[digest] = correction
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)
        return correction

    def _calculated(self, piece: str) -> float:
        ratios = self._ratios
        return sum(
            (ratios.scripts[script] - ratios.text) * self._tokenizer.count(run)
            for script, run in script_runs(piece).items()
            if script in ratios.scripts
        )
