"""MCP servers that break, are killed, never start, or change in the settings: agents go on."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from mcp_odd_server import RESULTS
from mcp_sample import SCRIPT, Sample, http_server, plain_server, program, sample_on_http, stdio_server
from waiting import until

from elbowroom.agents.tools.tool import ToolResult
from elbowroom.errors import ElbowroomError

MCP_LOG = "elbowroom.agents.tools.mcp."
SECRET = "hunter-2-is-secret"
ODD = [sys.executable, str(SCRIPT.with_name("mcp_odd_server.py"))]
"""A server that begins at once, since it needs no library."""


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about servers and their connections, in the order of the servers' names."""
    return sorted(
        record.message
        for record in caplog.records
        if record.name.startswith(MCP_LOG) and record.levelno >= logging.WARNING
    )


def kill(process: str) -> None:
    """Kill a process, and wait until it is gone."""
    os.kill(int(process), signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)


@pytest.fixture
async def failing_url() -> AsyncIterator[str]:
    """Run a web server that answers everything with an error of its own."""

    async def fail(request: web.Request) -> web.Response:
        return web.Response(status=500, text="out of order")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fail)
    async with TestServer(app) as server:
        yield str(server.make_url("/mcp"))


@pytest.mark.slow
async def test_broken_servers_stop_nobody(tmp_path: Path, failing_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever keeps a server from starting, the others work; each is told once, in words and without secrets."""
    python, secret = sys.executable, f'env = {{ KEY = "{SECRET}" }}'
    settings = [
        program("absent", ["/no/such/program"], secret),
        program("exits", [python, "-c", "raise SystemExit(3)"], secret),
        program("garbles", [python, "-c", "print('<html>' * 1000)"], secret),
        program("hangs", [python, "-c", "input(); input(); input()"], "connect_timeout = 1.5", secret),
        http_server("refuses", "http://127.0.0.1:9/mcp", f'headers = {{ Key = "{SECRET}" }}'),
        http_server("trips", failing_url),
        program("works", ODD),
    ]
    sample = Sample.of(tmp_path, "\n".join(settings))
    names = ["absent", "exits", "garbles", "hangs", "refuses", "trips", "works"]
    try:
        for _ in range(3):
            assert {tool.source for tool in await sample.tools(*names)} == {"works"}
        assert (await sample.call("works", "good")).text == "fine"
    finally:
        await sample.servers.aclose()
    told = "The MCP server {!r} cannot be used: {}. Agents do without its tools; it is tried again now and then."
    ended = "the program ended before it had answered; its own words are logged at level debug"
    assert warnings_in(caplog) == [
        told.format("absent", "there is no '/no/such/program'"),
        told.format("exits", ended),
        told.format("garbles", ended),
        told.format("hangs", "it does not answer in time"),
        told.format("refuses", "could not reach the server"),
        told.format("trips", "it answers HTTP 500 Internal Server Error"),
    ]
    assert SECRET not in caplog.text


async def test_odd_answers_are_told_in_words(tmp_path: Path) -> None:
    """Answers that are none become a short error, lines that are no messages are passed over; the next call works.

    Tools whose description of what they take or give is odd can be used all the same.
    """
    sample = Sample.of(tmp_path, program("odd", ODD, "timeout = 20"))
    try:
        tools = {tool.name: tool for tool in await sample.tools("odd")}
        assert [sorted(tool.parameters) for tool in tools.values()] == [["properties", "type"]] * len(RESULTS)
        for name in ("no_content", "unknown_part", "broken_image"):
            with pytest.raises(ElbowroomError, match="odd gave an answer that cannot be understood"):
                await tools[name].call({})
            assert await tools["good"].call({}) == ToolResult("fine")
    finally:
        await sample.servers.aclose()


@pytest.mark.parametrize(
    ("count", "taken"),
    [*(pytest.param(count, 500, marks=pytest.mark.long) for count in (500, 501, 20_000)), ("endless", 500)],
)
async def test_a_server_with_too_many_tools_is_named_and_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int | str, taken: int
) -> None:
    """Its first five hundred tools can be used, in its order; the log names the server and where it was cut."""
    sample = Sample.of(tmp_path, program("many", [*ODD, str(count)], "timeout = 20"))
    try:
        assert [tool.name for tool in await sample.tools("many")] == [f"tool_{at}" for at in range(taken)]
    finally:
        await sample.servers.aclose()
    told = "The MCP server 'many' offers more than 500 tools: those from 'tool_500' on are left out."
    assert warnings_in(caplog) == [told] * (count != taken)


async def test_a_server_that_comes_later_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that could not be started is tried again in the background, without a request that waits for it."""
    ready = tmp_path / "ready"
    start = f"runpy.run_path({ODD[-1]!r}, None, '__main__')"
    late = f"import os, runpy; os.path.exists({str(ready)!r}) or exit(1); {start}"
    sample = Sample.of(tmp_path, program("late", [sys.executable, "-c", late]), first_pause=0.2)
    try:
        assert await sample.tools("late") == []
        ready.touch()
        await sample.until_offered("late", "good")
        assert (await sample.call("late", "good")).text == "fine"
    finally:
        await sample.servers.aclose()
    assert len(warnings_in(caplog)) == 1


@pytest.mark.slow
async def test_a_program_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """Killed during a call that changes things, the model is told so; killed between two calls, nobody notices.

    Each time the next call is answered by a new process, and the tools stay the same.
    """
    sample = Sample.of(tmp_path, plain_server("files", tmp_path / "files"))
    try:
        first = (await sample.call("files", "pid")).text
        tools = [tool.name for tool in await sample.tools("files")]
        call = asyncio.create_task(sample.call("files", "append", seconds=60))
        await until(lambda: "appended" in sample.journal("files"))
        kill(first)
        with pytest.raises(ElbowroomError, match="It is not known whether the call took effect"):
            await call
        assert [tool.name for tool in await sample.tools("files")] == tools
        second = (await sample.call("files", "pid")).text
        kill(second)
        await until(lambda: not psutil.pid_exists(int(second)))
        third = (await sample.call("files", "pid")).text
        assert len({first, second, third}) == 3
    finally:
        await sample.servers.aclose()
    assert sample.journal("files").count("appended") == 1


@pytest.mark.long
async def test_a_call_that_only_reads_is_made_again(tmp_path: Path) -> None:
    """A program that dies during a call which changes nothing is started again, and the model gets its answer."""
    sample = Sample.of(tmp_path, stdio_server("files", tmp_path / "files"))
    try:
        assert (await sample.call("files", "die_once")).text == "alive"
    finally:
        await sample.servers.aclose()
    assert sample.journal("files").count("died") == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_old", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_a_server_at_an_address_is_found_again(tmp_path: Path, is_old: bool) -> None:
    """A server on HTTP that was killed during a call, and runs again, is used again; meanwhile calls fail in words."""
    async with sample_on_http(tmp_path, "web", is_old=is_old) as (url, process):
        sample = Sample.of(tmp_path, http_server("web", url), first_pause=0.1)
        call = asyncio.create_task(sample.call("web", "append", seconds=60))
        await until(lambda: "appended" in sample.journal("web"))
        kill(str(process))
        with pytest.raises(ElbowroomError, match="It is not known whether the call took effect"):
            await call
    try:
        async with sample_on_http(tmp_path, "web", is_old=is_old) as (_, process):
            await sample.until_offered("web", "pid")
            assert (await sample.call("web", "pid")).text == str(process)
    finally:
        await sample.servers.aclose()


@pytest.mark.long
async def test_a_session_that_the_server_forgot_is_opened_again(tmp_path: Path) -> None:
    """A server of an older protocol that is restarted between two calls does not know the session: no call is lost."""
    async with sample_on_http(tmp_path, "web", is_old=True) as (url, _):
        sample = Sample.of(tmp_path, http_server("web", url))
        await sample.call("web", "echo", text="before")
    try:
        async with sample_on_http(tmp_path, "web", is_old=True):
            assert (await sample.call("web", "append")).text == "appended"
    finally:
        await sample.servers.aclose()
    assert sample.journal("web").count("appended") == 1


@pytest.mark.long
async def test_changed_settings_are_followed(tmp_path: Path) -> None:
    """A server whose settings change is closed once its calls have ended; one whose settings stay goes on."""
    changing, staying = stdio_server("changing", tmp_path / "changing"), stdio_server("staying", tmp_path / "staying")
    sample = Sample.of(tmp_path, changing + staying)
    try:
        before = [(await sample.call(name, "pid")).text for name in ("changing", "staying")]
        (old,) = await sample.tools("changing/echo")
        running = asyncio.create_task(sample.call("changing", "slow", seconds=1))
        await until(lambda: "slow begun" in sample.journal("changing"))
        sample.change(staying)
        assert await sample.tools("changing") == []
        assert (await sample.call("staying", "pid")).text == before[1]
        with pytest.raises(ElbowroomError, match="its settings have changed"):
            await old.call({"text": "late"})
        sample.change(changing + "timeout = 5\n" + staying)
        assert (await sample.call("changing", "pid")).text != before[0]
        assert (await running).text == "slept"
        await until(lambda: not psutil.pid_exists(int(before[0])))
        sample.change(changing + "timeout = 5\nenabled = false\n" + staying)
        assert await sample.tools("changing") == []
    finally:
        await sample.servers.aclose()
    assert sample.journal("staying").count("list") == 1


@pytest.mark.slow
async def test_nothing_is_left_running(tmp_path: Path) -> None:
    """Closing ends calls in words, programs that work, hang or still start, and every task."""
    hangs = program("hangs", [sys.executable, "-c", "import time; time.sleep(600)"])
    sample = Sample.of(tmp_path, plain_server("files", tmp_path / "files") + hangs)
    tasks, children = asyncio.all_tasks(), psutil.Process().children(recursive=True)
    call = asyncio.create_task(sample.call("files", "slow", seconds=60))
    never = asyncio.create_task(sample.tools("hangs"))
    await until(lambda: "slow begun" in sample.journal("files"))
    await sample.servers.aclose()
    with pytest.raises(ElbowroomError):
        await call
    never.cancel()
    await asyncio.wait([never])
    assert asyncio.all_tasks() == tasks
    assert psutil.Process().children(recursive=True) == children
    assert await sample.tools("files") == []


async def test_servers_of_agents_are_connected_ahead(tmp_path: Path) -> None:
    """Warming up connects what enabled agents use, and nothing else."""
    agents = "\n".join(
        f'[[agents]]\nid = "{name}"\nmodel = "m"\nmcp = ["{name}/echo"]\nenabled = {enabled}'
        for name, enabled in (("used", "true"), ("idle", "false"))
    )
    servers = "\n".join(
        program(name, [sys.executable, "-c", f"open({str(tmp_path / name)!r}, 'w').write('started')"])
        for name in ("used", "idle")
    )
    sample = Sample.of(tmp_path, f"{servers}\n{agents}\n")
    try:
        sample.servers.warm_up(sample.loaded)
        await until(lambda: sample.journal("used") == ["started"])
        assert sample.journal("idle") == []
    finally:
        await sample.servers.aclose()
