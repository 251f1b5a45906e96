"""Remembers the chains of the histories that came last: of the next turn's, only the new messages are hashed."""

import marshal
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.ledger import Chain, seed_of
from elbowroom.context.transcript import Message

MOST_BYTES: Final = 4 * 2**20
MESSAGE_BYTES: Final = 500
"""What a message takes beside its text: its object, its key in the chain, its places in lists."""
LETTER_BYTES: Final = 2
"""A letter takes one byte in most languages of Europe, and two in nearly all others."""
BACK: Final = 32
"""How many new messages a history may have at its end and still be recognised."""
BY_VALUE: Final = 2
"""The version of marshal that writes equal values alike, and the numbers 1, 1.0 and True as three values."""

Mark = tuple[str, int, int]
"""The seed of a history's chain, its length, and the hash of its last message's text."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A history and its chain, of about `size` bytes.

    `nested` are those of the messages that hold more than texts, written as bytes, by their places.
    """

    messages: list[Message]
    chain: Chain
    nested: tuple[tuple[int, bytes], ...] = ()
    size: int = 0

    def begins(self, messages: Sequence[Message], length: int) -> bool:
        """Tell whether the first `length` messages are the same here and there, to the type of every number."""
        if list(messages[:length]) != self.messages[:length]:
            return False
        return all(place >= length or _written(messages[place]) == written for place, written in self.nested)

    def cut_to(self, length: int) -> "Known | None":
        """Return the history with so many of its messages, all or all but the last; None where that has calls."""
        if length == len(self.messages):
            return self
        if (chain := self.chain.without_last(self.messages)) is None:
            return None
        nested = tuple((place, written) for place, written in self.nested if place < length)
        return Known(
            self.messages[:length], chain, nested, self.size - _size(self.messages[length:], self.nested[len(nested) :])
        )

    def grown_to(self, messages: Sequence[Message]) -> "Known":
        """Return a longer history that begins with this one. Raises ValueError where it holds what is no JSON."""
        known = len(self.messages)
        new = [
            (place, _written(messages[place])) for place in range(known, len(messages)) if _is_nested(messages[place])
        ]
        chain = self.chain.extended(known, messages)
        return Known(list(messages), chain, (*self.nested, *new), self.size + _size(messages[known:], new))


class Chains:
    """The chains of the histories used last, `most_bytes` of them with their messages; any thread may ask."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[Mark, Known] = OrderedDict()
        self._by_mark: dict[Mark, Mark] = {}
        self._lock = threading.Lock()
        self.size = 0
        """About how many bytes all of them take."""

    def __len__(self) -> int:
        return len(self._known)

    def of(self, owner: str, agent: str, messages: Sequence[Message]) -> Chain:
        """Return what `Chain.of` returns."""
        seed = seed_of(owner, agent)
        with self._lock:
            begun = self._taken_out(seed, messages) or Known([], Chain.of(owner, agent, ()))
        try:
            known = begun.grown_to(messages)
        except ValueError:
            return Chain.of(owner, agent, messages)
        with self._lock:
            self._put_in(seed, known)
        return known.chain

    def _taken_out(self, seed: str, messages: Sequence[Message]) -> Known | None:
        """Return the history with which these messages begin, all but the last few of them; it is known no longer."""
        for length in range(len(messages), max(0, len(messages) - BACK), -1):
            mark = self._by_mark.get(_mark(seed, messages, length))
            if mark is None or not self._known[mark].begins(messages, length):
                continue
            if (known := self._known[mark].cut_to(length)) is not None:
                self._forget(mark)
                return known
        return None

    def _put_in(self, seed: str, known: Known) -> None:
        if not known.messages or known.size > self._most_bytes:
            return
        own = _mark(seed, known.messages, len(known.messages))
        self._forget(own)
        self._known[own] = known
        self._by_mark |= dict.fromkeys(_marks(seed, known.messages), own)
        self.size += known.size
        while self.size > self._most_bytes:
            self._forget(next(iter(self._known)))

    def _forget(self, mark: Mark) -> None:
        if (known := self._known.pop(mark, None)) is None:
            return
        self.size -= known.size
        for other in _marks(mark[0], known.messages):
            if self._by_mark.get(other) == mark:
                del self._by_mark[other]


def _marks(seed: str, messages: Sequence[Message]) -> list[Mark]:
    """Return the marks by which a history is found, also where its last message comes changed or not at all."""
    return [_mark(seed, messages, length) for length in (len(messages), len(messages) - 1) if length]


def _mark(seed: str, messages: Sequence[Message], length: int) -> Mark:
    content = messages[length - 1].get("content")
    return seed, length, hash(content) if isinstance(content, str) else 0


def _is_nested(message: Message) -> bool:
    return not all(value is None or type(value) is str for value in message.values())


def _written(message: Message) -> bytes:
    """Return the bytes of a message. Raises ValueError where it holds what is no JSON."""
    return marshal.dumps(dict(message), BY_VALUE)


def _size(messages: Sequence[Message], nested: Sequence[tuple[int, bytes]]) -> int:
    """Return about how many bytes messages take that end a history, with the `nested` among them."""
    letters = sum(len(content) for message in messages if isinstance(content := message.get("content"), str))
    return MESSAGE_BYTES * len(messages) + LETTER_BYTES * letters + sum(2 * len(written) for _, written in nested)
