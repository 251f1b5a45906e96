"""The counts of long prompts' beginnings: a conversation that goes on is counted from where it goes on."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

CAPACITY: Final = 256
DIGEST_BYTES: Final = 16
TAIL: Final = 32
"""Characters by which a beginning is told from most others before all of it is looked at."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The tokens of a prompt's first `length` characters, which is recognised by its first `seen` ones.

    More is looked at than is counted: how a prompt is cut may depend on the characters behind the cut.
    """

    length: int
    seen: int
    tokens: int


class PartlyRead:
    """A text of which a beginning has been hashed; it is gone through once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._end = 0

    def digest_to(self, end: int) -> bytes:
        """Return the hash of the first `end` characters; none shorter can be asked for after that."""
        self._hash.update(self.text[self._end : end].encode("utf-8", "surrogatepass"))
        self._end = end
        return self._hash.digest()

    def copy(self) -> "PartlyRead":
        """Return another one that has been read as far."""
        other = PartlyRead(self.text)
        other._hash, other._end = self._hash.copy(), self._end
        return other


class KnownBeginnings:
    """The beginnings that were used last, at most `capacity`, 300 bytes each; no text is kept. For any thread."""

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._known: OrderedDict[bytes, tuple[int, Beginning]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def longest_in(self, text: str) -> tuple[Beginning, PartlyRead]:
        """Return the longest beginning of a text that is known, an empty one where none is, and the text read to it."""
        with self._lock:
            known = list(self._known.values())
        likely = {one.seen for tail, one in known if one.seen <= len(text) and tail == _tail(text, one.seen)}
        read = PartlyRead(text)
        found = Beginning(0, 0, 0), read.copy()
        for end in sorted(likely):
            digest = read.digest_to(end)
            with self._lock:
                if digest in self._known:
                    self._known.move_to_end(digest)
                    found = self._known[digest][1], read.copy()
        return found

    def remember(self, read: PartlyRead, beginnings: Iterable[Beginning]) -> None:
        """Take in beginnings of a text, the shortest first, and none shorter than the text has been read to."""
        found = [(read.digest_to(one.seen), (_tail(read.text, one.seen), one)) for one in beginnings]
        with self._lock:
            for digest, known in found:
                self._known[digest] = known
                self._known.move_to_end(digest)
            while len(self._known) > self._capacity:
                self._known.popitem(last=False)


def _tail(text: str, end: int) -> int:
    return hash(text[end - TAIL : end])
