"""What stays in memory: caches with a name and a bound, modules, and what the allocator does not give back."""

import collections
import ctypes
import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:  # another thread may have forgotten it between the two
            return None

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


_EVERY: Final[WeakSet[Recent[Any, Any]]] = WeakSet()


def cache_sizes() -> Mapping[str, int]:
    """Return how many entries the caches of each name hold together."""
    sizes = collections.Counter[str]()
    with _ADDING:
        for cache in _EVERY:
            sizes[cache.name] += len(cache)
    return sizes


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
