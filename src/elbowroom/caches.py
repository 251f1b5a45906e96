"""What stays in memory: caches with a name and a bound, modules, and what the allocator does not give back."""

import collections
import ctypes
import gc
import marshal
import operator
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, compress
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

Key = TypeVar("Key")
Value = TypeVar("Value")
_ADDING: Final = threading.Lock()


class Recent(Generic[Key, Value]):
    """The `most` values that were used last, by their keys; safe for all threads.

    Caches of different models or conversations may have the same name: their entries are counted together.
    """

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self._most = most
        self._values: OrderedDict[Key, Value] = OrderedDict()
        with _ADDING:
            _EVERY.add(self)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, which counts as used now; None where there is none."""
        if (value := self._values.get(key)) is not None:
            try:
                self._values.move_to_end(key)
            except KeyError:  # another thread has forgotten it between the two
                return None
        return value

    def take(self, key: Key) -> Value | None:
        """Return the value of a key and forget it; None where there is none."""
        return self._values.pop(key, None)

    def put(self, key: Key, value: Value) -> None:
        """Remember the value of a key, which counts as used now; beyond the bound the oldest is forgotten."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def values(self) -> list[Value]:
        """Return all values, the one used longest ago first."""
        return list(self._values.values())


_EVERY: Final["WeakSet[Recent[Any, Any] | Histories]"] = WeakSet()


def cache_sizes() -> Mapping[str, int]:
    """Return how many entries the caches of each name hold together."""
    sizes = collections.Counter[str]()
    with _ADDING:
        for cache in _EVERY:
            sizes[cache.name] += len(cache)
    return sizes


BY_VALUE: Final = 2
"""The version of marshal that writes equal values alike, and the numbers 1, 1.0 and True as three values."""
HISTORY_LETTERS: Final = 4 * 2**20
"""How much of all histories is remembered, counted in letters."""
MESSAGE_LETTERS: Final = 600
"""What a message, or a value in one, takes beside its text, and with what is made of it."""
TEXT_LETTERS: Final = 60
"""What a text or a key in a value takes beside its letters."""
PLAIN: Final = 2
"""The keys of a message that has a role and a content, as nearly all do."""
MOST_MADE: Final = 16
"""How many things are remembered that were made of one history."""
BACK: Final = 32
"""How many new messages a history may have at its end and still be recognised."""
ENDS_KNOWN: Final = 4
"""By how many of its last messages a history is found: others begin like it and end with another question or answer."""
Message = Mapping[str, Any]
End = tuple[int, int]
"""The length of a history, and the hash of its last message's text."""


class History:
    """A conversation's messages, and what has been made of each of them, by what that is."""

    def __init__(self, messages: tuple[Message, ...], made: Mapping[Hashable, list[Any]]) -> None:
        """Begin with messages, and what is known to be made of the first of them."""
        self.messages = messages
        self._made = made  # never changed, but replaced: other threads read it

    def followed_by(self, messages: Sequence[Message], shared: int) -> "History":
        """Return a history that has the first `shared` messages of this one, and then those that follow there."""
        made = {of: values[:shared] for of, values in self._made.items()}
        return History((*self.messages[:shared], *messages[shared:]), made)

    def known(self, of: Hashable) -> list[Any]:
        """Return what is known to be made of its first messages."""
        return [*self._made.get(of, ())]

    def keep(self, of: Hashable, values: list[Any]) -> None:
        """Remember what was made of each message."""
        made = {**self._made, of: values}
        self._made = dict([*made.items()][-MOST_MADE:])

    def each(self, make: Callable[[Message], Value]) -> list[Value]:
        """Return what is made of each message."""
        values: list[Value] = self.known(make)
        values += map(make, self.messages[len(values) :])
        self.keep(make, values)
        return values


class Histories:
    """The histories that were used last, `most` letters of them; safe for all threads.

    A client sends all of a conversation each time. One that begins as one before has the same objects there, so that
    nothing has to be made of them again. Nobody changes them.
    """

    def __init__(self, name: str, most: int = HISTORY_LETTERS) -> None:
        self.name = name
        self._most = most
        self._kept: OrderedDict[int, tuple[History, int]] = OrderedDict()
        self._known: dict[End, History] = {}
        self._lock = threading.Lock()
        self.size = 0
        with _ADDING:
            _EVERY.add(self)

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, messages: Sequence[Message]) -> History:
        """Return the history with these messages, which takes the place of the one that it begins as."""
        with self._lock:
            shared, known, tried = 0, None, 0
            for end in ends_of(messages, BACK):
                if (likely := self._known.get(end)) is not None and tried < ENDS_KNOWN:
                    tried += 1
                    if likely.messages is messages or _begin_alike(likely.messages, messages, end[0]):
                        shared, known = end[0], likely
                        break
            if known is not None and shared == len(messages) == len(known.messages):
                self._kept.move_to_end(id(known))
                return known
        history = known.followed_by(messages, shared) if known is not None else History(tuple(messages), {})
        size = sum(history.each(_size_of))
        with self._lock:
            if known is not None and id(known) in self._kept:
                self._drop(known)
            if 0 < size <= self._most:
                self._kept[id(history)] = history, size
                self._known |= dict.fromkeys(ends_of(history.messages, ENDS_KNOWN), history)
                self.size += size
            while self.size > self._most:
                self._drop(next(iter(self._kept.values()))[0])
        return history

    def _drop(self, history: History) -> None:
        self.size -= self._kept.pop(id(history))[1]
        for end in ends_of(history.messages, ENDS_KNOWN):
            if self._known.get(end) is history:  # else another one that ends so was kept since
                del self._known[end]


HISTORIES: Final = Histories("histories")


def ends_of(messages: Sequence[Message], most: int) -> Iterator[End]:
    """Yield the ends of a history, the last one first, and of those that it begins with."""
    for length in range(len(messages), max(0, len(messages) - most), -1):
        last: Any = messages[length - 1]  # of a client's body that is not checked yet
        content = last.get("content") if type(last) is dict else None
        yield length, hash(content) if type(content) is str else 0


def _begin_alike(known: Sequence[Message], messages: Sequence[Message], length: int) -> bool:
    """Tell whether two histories have the same first messages: of the same kinds, with their keys in the same order."""
    differ = [*map(operator.is_not, known[:length], messages)]
    if not any(differ):
        return len(known) >= length
    ones, others = [*compress(known, differ)], [*compress(messages, differ)]
    try:
        if len(known) < length or ones != others:
            return False
        both: list[Any] = [*ones, *others]
        if {*map(type, both)} <= {dict} and {*map(type, chain.from_iterable(map(dict.values, both)))} <= {str}:
            return [*map(tuple, ones)] == [*map(tuple, others)]
        return marshal.dumps(ones, BY_VALUE) == marshal.dumps(others, BY_VALUE)
    except (ValueError, RecursionError):  # it is nested too deeply, or holds what is no JSON
        return False


def _size_of(message: Message) -> int:
    """Return about how many letters a message takes."""
    if type(message) is dict and len(message) == PLAIN:
        role, content = message.get("role"), message.get("content")
        if type(role) is str and type(content) is str:
            return MESSAGE_LETTERS + len(role) + len(content)
    return _letters_in(message)


def _letters_in(value: Any) -> int:
    """Return about how many letters a JSON value takes, keys included, however deep it is nested."""
    letters, left = 0, [value]
    while left:
        value = left.pop()
        if isinstance(value, str):
            letters += TEXT_LETTERS + len(value)
            continue
        letters += MESSAGE_LETTERS
        if isinstance(value, Mapping):
            left.extend(chain(value, value.values()))
        elif isinstance(value, list | tuple):
            left.extend(value)
    return letters


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""What `mallopt` calls the three; the values are part of glibc's interface."""
LARGE_BLOCK: Final = 2**20
"""Bytes of a block that a socket's or a stream's usual buffer does not reach."""


@contextmanager
def importing() -> Iterator[None]:
    """Stop the garbage collector while the block imports modules, and never have it look at them again.

    They live until the process ends; to search them is a tenth of what the import takes. Each module's block is entered
    once: what is garbage at its end stays for ever too.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def give_back_memory() -> None:
    """Give memory that is free back to the system, which glibc's allocator keeps otherwise. It takes milliseconds."""
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


def keep_memory_small() -> None:
    """Have each large block of memory go back to the system as soon as it is free, and all threads share what is left.

    Otherwise the first one makes glibc's allocator keep blocks up to its size, so that copies of a large body that are
    long gone still take room beside the next; and each thread has free memory of its own, which no other one uses.
    """
    if (set_option := _of_glibc("mallopt")) is not None:
        set_option(M_MMAP_THRESHOLD, LARGE_BLOCK)
        set_option(M_TRIM_THRESHOLD, 2 * LARGE_BLOCK)
        set_option(M_ARENA_MAX, 1)


def _of_glibc(name: str) -> Callable[..., int] | None:
    """Return a function of the allocator, None where the system has another one."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
