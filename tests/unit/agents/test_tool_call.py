"""What becomes of a call: the arguments as models write them, and tools that fail, hang or return garbage."""

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import pytest
from own_tools import own_tool

from elbowroom.agents.answer import ClientLeft
from elbowroom.agents.tools.tool import LONGEST_ERROR, ServerTool, ToolResult, parsed_arguments, result_of
from elbowroom.errors import ElbowroomError


def tool_returning(value: Any) -> ServerTool:
    """Return a tool with this result."""

    async def give() -> Any:
        return value

    return own_tool(give)


def tool_raising(error: BaseException) -> ServerTool:
    """Return a tool that fails."""

    async def fail() -> str:
        raise error

    return own_tool(fail)


@pytest.mark.parametrize(
    ("written", "parsed"),
    [
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ("null", {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('""', {}),
        ("[]", None),
        ("{", None),
        ('"text"', None),
        ("7", None),
        ("[" * 100_000, None),
    ],
)
def test_arguments_as_models_write_them(written: str, parsed: Mapping[str, Any] | None) -> None:
    """An object is taken, also one that was written as a text; nothing at all is an empty one."""
    assert parsed_arguments(written) == parsed


async def test_arguments_that_are_none_name_what_the_tool_takes() -> None:
    """The model reads what the tool would have taken."""

    async def read(path: str) -> str:
        raise AssertionError(path)

    result = await result_of(own_tool(read), "{'path': 1}")
    assert result == ToolResult("Error: the arguments are not a JSON object. read takes: path.", is_error=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (None, ""),
        (["a", 1], '["a", 1]'),
        ({"a": object}, '{"a": "<class \'object\'>"}'),
        (ToolResult("bad", is_error=True), "bad"),
    ],
)
async def test_whatever_a_tool_returns_is_text(value: Any, text: str) -> None:
    """A result that is none is written as JSON."""
    assert (await result_of(tool_returning(value), "{}")).text == text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ElbowroomError("No such note."), "Error: No such note."),
        (ValueError("the disk is full"), "Error: give up"),
        (KeyError(), "KeyError"),
    ],
)
async def test_a_tool_that_fails(error: Exception, said: str) -> None:
    """The model reads what went wrong, and that the same call is no use."""
    result = await result_of(tool_raising(error), "{}")
    assert result.is_error
    assert said.replace("give up", "fail failed: the disk is full") in result.text


async def test_a_long_error_is_cut() -> None:
    """An error never takes more room than an answer to it needs."""
    result = await result_of(tool_raising(ElbowroomError("x" * 100_000)), "{}")
    assert len(result.text) < LONGEST_ERROR + 20


async def test_a_tool_that_hangs_is_stopped() -> None:
    """Behind its time limit the model is told, and the tool is cancelled; one that ignores that holds up nobody."""
    ended = asyncio.Event()

    async def hang() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)  # it takes its time to end
            ended.set()
        return "too late"

    result = await result_of(own_tool(hang), "{}", 0.01)
    assert result.is_error
    assert "did not answer within 0.01 seconds" in result.text
    assert not ended.is_set()
    await asyncio.wait_for(ended.wait(), 60)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.01, 60.0])
async def test_how_a_stopped_tool_ends_is_read(seconds: float) -> None:
    """A tool that fails while it is stopped, since its client has left, is no failure that nobody reads."""
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))

    async def leave() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            raise ClientLeft

    run = asyncio.create_task(result_of(own_tool(leave), "{}", seconds))
    await asyncio.wait([run], timeout=0.05)
    run.cancel()
    await asyncio.wait([run])
    del run
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()
    loop.set_exception_handler(None)
    assert not reported


async def test_a_cancelled_run_cancels_its_tool() -> None:
    """Who stops waiting for the result ends the work."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return ""

    running = asyncio.create_task(result_of(own_tool(work), "{}"))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(cancelled.wait(), 60)
