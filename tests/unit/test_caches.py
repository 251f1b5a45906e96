"""What is remembered to save work stays within its bounds, and tells its size."""

import asyncio
import subprocess
import sys
from typing import Final

import pytest

from elbowroom.caches import Recent, cache_sizes, give_back_memory
from elbowroom.server.middleware import LargeBodies

LARGE_ONES_BETWEEN_SMALL_ONES: Final = """
import psutil
from elbowroom.caches import keep_memory_small
keep_memory_small()
MB = 2**20
b"x" * (20 * MB)
held = [(b"x" * (8 * MB), b"x" * (MB // 5)) for _ in range(5)]
before = psutil.Process().memory_info().rss
held = [small for _, small in held]
print((before - psutil.Process().memory_info().rss) // MB)
"""
"""Prints how many MiB of the 40 in large blocks the system has again once they are free."""
LOADED: Final = """
import gc, sys
from {place} import {load}
before = gc.get_freeze_count()
{load}()
print(gc.isenabled() and gc.get_freeze_count() - before > 20_000 and len(gc.get_objects()) < 5_000)
"""
"""Prints whether nearly all that a loader has imported is out of the collector's sight."""


def test_what_was_used_longest_ago_is_forgotten() -> None:
    """A cache holds so many values at most; a value that is asked for is used."""
    cache = Recent[str, int]("of a test", 2)
    cache.put("one", 1)
    cache.put("two", 2)
    assert cache.get("one") == 1
    cache.put("three", 3)
    assert [cache.get(key) for key in ("one", "two", "three")] == [1, None, 3]
    assert cache.values() == [1, 3]
    assert len(cache) == 2


def test_caches_of_one_name_are_counted_together() -> None:
    """Each model may have its own; one that nobody has any more is counted no more."""
    one, other = Recent[str, int]("of two models", 9), Recent[str, int]("of two models", 9)
    one.put("a", 1)
    other.put("a", 1)
    other.put("b", 2)
    assert cache_sizes()["of two models"] == 3
    del other
    assert cache_sizes()["of two models"] == 1


async def test_memory_is_given_back_once_large_bodies_have_passed() -> None:
    """Many large requests in a row give back once, after the last."""
    given = asyncio.Queue[str]()
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        loop.call_soon_threadsafe(given.put_nowait, "back")

    bodies = LargeBodies(0.0, give_back)
    for _ in range(3):
        bodies.ended()
    assert await asyncio.wait_for(given.get(), 60) == "back"
    bodies.ended()
    assert await asyncio.wait_for(given.get(), 60) == "back"
    assert given.empty()


def test_memory_can_be_given_back_anywhere() -> None:
    """Where the allocator has no such call, nothing happens."""
    give_back_memory()


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc's allocator keeps them, and has a call against it")
def test_large_blocks_go_back_as_soon_as_they_are_free() -> None:
    """What a step of a request no longer needs makes room for the next step, though small things lie between."""
    told = subprocess.run([sys.executable, "-c", LARGE_ONES_BETWEEN_SMALL_ONES], capture_output=True, check=True)
    assert int(told.stdout) >= 39


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "load"), [("elbowroom.store.base", "sql_module"), ("elbowroom.agents.sdk", "load_sdk")]
)
def test_no_search_for_garbage_looks_at_modules(place: str, load: str) -> None:
    """SQLAlchemy and the SDK are loaded while the server answers, and searched again and again they would hold it."""
    command = [sys.executable, "-c", LOADED.format(place=place, load=load)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"
