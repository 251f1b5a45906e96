"""The running count of an answer that is still growing, at a few microseconds a chunk."""

import re
from typing import Final

from elbowroom.tokens.files import Tokenizer

COUNT_EVERY: Final = 256
"""Characters after which settled text is counted and put aside."""
KEEP: Final = 24
"""Characters at the end that are never put aside: what comes next may still join them."""
FORCE_AFTER: Final = 4096
"""Characters without a safe place to cut after which the text is cut anywhere."""

LETTER: Final = r"[^\W\d_]"
BEFORE_A_WORD: Final = rf"{LETTER}(?= {LETTER})"
CJK_SIGNS: Final = "\u3001\u3002\u300c\u300d\u300e\u300f\u30fb\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
SAFE_CUT: Final = re.compile(BEFORE_A_WORD)
SAFE_BYTE_LEVEL_CUT: Final = re.compile(rf"{BEFORE_A_WORD}|(?<=\S)\n(?={LETTER})|{LETTER}(?=[\d{CJK_SIGNS}])")
ANCHOR: Final = "\n"


class StreamCounter:
    """Counts a text that comes in chunks; every character is counted once, a short tail again for `value`.

    Text is put aside only up to a place that no token reaches across, so that the sum is exact. Where 4,096
    characters have no such place (base64), a forced cut may make the sum a token too high.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._safe_cut = SAFE_BYTE_LEVEL_CUT if tokenizer.kind == "byte-level" else SAFE_CUT
        # SentencePiece puts a space before any text; after a line break it does not do so.
        self._anchor = "" if tokenizer.kind == "byte-level" else ANCHOR
        self._anchor_tokens = tokenizer.count(self._anchor)
        self._settled = 0
        self._is_first = True
        self._chunks: list[str] = []
        self._length = 0
        self._look_at = COUNT_EVERY

    def fresh(self) -> "StreamCounter":
        """Return a counter with the same tokenizer for another text."""
        return StreamCounter(self.tokenizer)

    def feed(self, text: str) -> None:
        """Take the next chunk."""
        self._chunks.append(text)
        self._length += len(text)
        if self._length >= self._look_at:
            self._settle()

    @property
    def value(self) -> int:
        """How many tokens the text so far takes."""
        return self._settled + self._count(self._tail())

    @property
    def at_most(self) -> int:
        """A bound on `value` without tokenizing: a tail takes no more tokens than it has bytes, and one."""
        return self._settled + len(self._tail().encode("utf-8", "surrogatepass")) + 1

    def _tail(self) -> str:
        if len(self._chunks) > 1:
            self._chunks = ["".join(self._chunks)]
        return self._chunks[0] if self._chunks else ""

    def _settle(self) -> None:
        """Put aside what can be put aside, and say when to look again."""
        tail = self._tail()
        end = len(tail) - KEEP
        cut = 0
        for match in self._safe_cut.finditer(tail, max(0, end - 2 * COUNT_EVERY), end):
            cut = match.end()
        if not cut and len(tail) >= FORCE_AFTER:
            cut = end
        if cut:
            self._settled += self._count(tail[:cut])
            self._is_first = False
            self._chunks = [tail[cut:]]
            self._length -= cut
        self._look_at = self._length + COUNT_EVERY

    def _count(self, text: str) -> int:
        if not text:
            return 0
        if self._is_first or not self._anchor:
            return self.tokenizer.count(text)
        return self.tokenizer.count(self._anchor + text) - self._anchor_tokens
