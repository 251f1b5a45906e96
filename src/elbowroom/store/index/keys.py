"""Keys of chains as numbers, and a table of which conversations have them."""

import hashlib
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.outputs import utf8
from elbowroom.store.base import owner_key

PIECES: Final = 256
HEX_DIGITS: Final = 16
EVEN: Final = 2**64 - 2


def number_of(key: str) -> int:
    """Return a key of a chain as a number of 63 bits, followed by a bit that is free."""
    try:
        number = int(key[:HEX_DIGITS], 16)
    except ValueError:
        number = int.from_bytes(hashlib.blake2b(utf8(key), digest_size=8).digest())
    return number & EVEN


def numbers_of(keys: Sequence[str]) -> list[int]:
    """Return keys as numbers, each as `number_of` returns it; those of chains all at once."""
    if set(map(len, keys)) != {2 * HEX_DIGITS}:
        return list(map(number_of, keys))
    try:
        halves = struct.unpack(f">{2 * len(keys)}Q", bytes.fromhex("".join(keys)))
    except (ValueError, struct.error):
        return list(map(number_of, keys))
    return [number & EVEN for number in halves[::2]]


def name_number(owner: str, name: str) -> int:
    """Return the number of a name as the database has it, with the key of its owner; 0 where there is no name."""
    return number_of(owner_key(f"{owner} {name}")) | 2 if name else 0


class KeyTable:
    """The numbers of the conversations that have a key, in pieces sorted by both: 12 bytes for each pair."""

    def __init__(self) -> None:
        self._keys = [array("Q")] * PIECES  # the same one, until a pair comes to a piece
        self._holders = [array("I")] * PIECES
        self.length = 0

    def add(self, key: int, holder: int) -> bool:
        """Add a pair, unless it is there; tell whether it was not."""
        piece, place, is_there = self._place(key, holder)
        if not is_there:
            if not self._keys[piece]:
                self._keys[piece], self._holders[piece] = array("Q"), array("I")
            self._keys[piece].insert(place, key)
            self._holders[piece].insert(place, holder)
            self.length += 1
        return not is_there

    def remove(self, key: int, holder: int) -> None:
        """Remove a pair that is there."""
        piece, place, _ = self._place(key, holder)
        del self._keys[piece][place]
        del self._holders[piece][place]
        self.length -= 1

    def holders(self, first: int, last: int) -> Sequence[int]:
        """Return the holders of all keys from the first to the last."""
        keys = self._keys[first >> 56]
        start = bisect_left(keys, first)
        if start == len(keys) or keys[start] > last:
            return ()
        return self._holders[first >> 56][start : bisect_right(keys, last, start)]

    def has(self, key: int, holder: int) -> bool:
        """Tell whether a pair is there."""
        return self._place(key, holder)[2]

    def _place(self, key: int, holder: int) -> tuple[int, int, bool]:
        """Return the piece and the place in it where a pair is or belongs, and whether it is there."""
        piece = key >> 56
        keys, holders = self._keys[piece], self._holders[piece]
        end = bisect_right(keys, key)
        place = bisect_left(holders, holder, bisect_left(keys, key), end)
        return piece, place, place < end and holders[place] == holder


@dataclass(frozen=True, slots=True)
class IndexedConversation:
    """A conversation as the database has it; `owner` is the key of its owner and `name` the number of its name.

    `keys` are those of its messages as numbers, an answer's with its last bit set. `unanswered` are the keys of
    messages whose answers were interrupted before they had a key.
    """

    id: str
    owner: str
    name: int
    used: float
    keys: Sequence[int]
    unanswered: Sequence[int]
    may_have_hidden: bool
