"""Results of MCP programs that are too large: refused in words, and nobody else waits for them."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from mcp_large_server import large_server_on_http
from mcp_sample import SCRIPT, Sample, http_server, program

from elbowroom.agents.tools.mcp import lines
from elbowroom.errors import ElbowroomError

LARGE_SERVER = [sys.executable, str(SCRIPT.with_name("mcp_large_server.py"))]
REFUSED = "The result was larger than {} MB and was refused. Ask for less at once, such as a part of it."
HELD_SECONDS = 3.0
"""How long others may be kept waiting in all: it was some twenty seconds, and a busy machine is slow by itself."""
NOT_HELD = 0.01


@pytest.mark.slow
@pytest.mark.fault("huge result or frame", "tool", "refused in words")
@pytest.mark.parametrize("id_comes_last", [False, True])
async def test_a_result_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, id_comes_last: bool
) -> None:
    """The model reads why, wherever the answer has its id; what is smaller is whole, before and after."""
    monkeypatch.setattr(lines, "LARGEST_MESSAGE", 1024 * 1024)
    sample = Sample.of(tmp_path, program("large", LARGE_SERVER, "timeout = 20"))
    try:
        for _ in range(2):
            small = await sample.call("large", "fetch", megabytes=0.75, id_comes_last=id_comes_last)
            assert (len(small.text) // 1024, small.is_error) == (767, False)
            large = await sample.call("large", "fetch", megabytes=3, id_comes_last=id_comes_last)
            assert (large.text, large.is_error) == (REFUSED.format(1), True)
    finally:
        await sample.servers.aclose()


@pytest.mark.parametrize("events", [False, True])
async def test_a_result_over_http_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, events: bool
) -> None:
    """The model reads the same words, and the connection goes on: what is smaller is whole, before and after."""
    monkeypatch.setattr(lines, "LARGEST_MESSAGE", 1024 * 1024)
    async with large_server_on_http(events=events) as url:
        sample = Sample.of(tmp_path, http_server("large", url))
        try:
            for _ in range(2):
                small = await sample.call("large", "fetch", megabytes=0.75)
                assert (len(small.text) // 1024, small.is_error) == (767, False)
                large = await sample.call("large", "fetch", megabytes=3)
                assert (large.text, large.is_error) == (REFUSED.format(1), True)
        finally:
            await sample.servers.aclose()


@pytest.mark.slow
async def test_a_message_without_end_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program goes on and on in one line, its connection ends, and the call with it."""
    monkeypatch.setattr(lines, "LARGEST_MESSAGE", 64 * 1024)
    monkeypatch.setattr(lines, "MOST_DROPPED", 1024 * 1024)
    sample = Sample.of(tmp_path, program("large", LARGE_SERVER, "timeout = 20"))
    try:
        with pytest.raises(ElbowroomError, match="The connection to large was lost during the call"):
            await sample.call("large", "fetch", megabytes=8, id_comes_last=True)
        assert not (await sample.call("large", "fetch", megabytes=0.01)).is_error
    finally:
        await sample.servers.aclose()


async def held_during(work: Awaitable[object]) -> float:
    """Return for how many seconds in all a task that ticks each millisecond came too late while the work was done."""
    held = 0.0

    async def tick() -> None:
        nonlocal held
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            held += max(0.0, time.thread_time() - before - NOT_HELD)

    ticking = asyncio.create_task(tick())
    await work
    ticking.cancel()
    return held


@pytest.mark.fault("huge result or frame", "tool", "nobody else waits")
@pytest.mark.long
async def test_45_megabytes_hold_nobody_up(tmp_path: Path) -> None:
    """The event loop goes on while they come, and the call is answered."""
    sample = Sample.of(tmp_path, program("large", LARGE_SERVER, "timeout = 60"))

    async def call() -> None:
        assert (await sample.call("large", "fetch", megabytes=45)).text == REFUSED.format(16)

    try:
        await sample.tools("large")
        assert await held_during(call()) < HELD_SECONDS
    finally:
        await sample.servers.aclose()


@pytest.mark.long
async def test_45_megabytes_after_the_call_hold_nobody_up(tmp_path: Path) -> None:
    """A call that timed out before they come is over, and the next one is answered."""
    sample = Sample.of(tmp_path, program("large", LARGE_SERVER, "timeout = 0.05"))

    async def call() -> None:
        with pytest.raises(ElbowroomError, match="did not answer within"):
            await sample.call("large", "fetch", megabytes=45)
        for _ in range(100):
            with contextlib.suppress(ElbowroomError):
                await sample.call("large", "fetch", megabytes=0.001)
                return
        raise AssertionError("it never answered again")

    try:
        await sample.tools("large")
        assert await held_during(call()) < HELD_SECONDS
    finally:
        await sample.servers.aclose()
