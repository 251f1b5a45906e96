"""`elbowroom status`, as the real program in front of real servers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cancelling import ask
from chatting import chat_body, elbowroom_with_studio, eventually
from command_line import PATIENCE, environment, run, running
from pytest_aiohttp.plugin import AiohttpServer
from serving import Served, serve, settings_for

from elbowroom.demo import Script, WaitFor
from elbowroom.server.state import SHARED


async def status(home: Path, served: Served, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run the command for a server by that server's settings file; return exit code, output and errors."""
    ported = ["--config", str(served.settings), "--port", str(served.port)]
    done = await asyncio.to_thread(run, home, "status", *ported, *arguments, **variables)
    return done.returncode, done.stdout, done.stderr


async def test_a_conversation_that_is_answered(tmp_path: Path) -> None:
    """Its bar, its numbers and its phase, while it runs and afterwards."""
    end = asyncio.Event()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script("word " * 300, WaitFor(end)))
        asking = asyncio.create_task(ask(served, chat_body("Does the ferry run?", stream=True)))
        await eventually(lambda: served.app[SHARED].running.phases() == ["streaming"], "no answer came", PATIENCE)
        code, told, errors = await status(tmp_path, served)
        assert (code, errors) == (0, "")
        assert f"at {served.url}\n" in told
        assert "lmstudio: answers" in told
        assert "Answering now: 1\n  Does the ferry run?  streaming, " in told
        assert " s: writer / qwen2.5-7b" in told
        assert "of 32,768 (" in told
        assert "\u2502" in told
        end.set()
        await asking
        code, told, _ = await status(tmp_path, served)
        assert code == 0
        assert "Answering now: nothing" in told
        assert "Lately:\n  Does the ferry run?  writer, about " in told


async def test_json(tmp_path: Path) -> None:
    """One object on one line, with all that was asked for."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Yes.")
        await ask(served, chat_body("Does the ferry run?"))
        code, told, _ = await status(tmp_path, served, "--json")
        [line] = told.splitlines()
        found: dict[str, Any] = json.loads(line)
        assert code == 0
        assert (found["health"], found["live"], found["note"]) == ("healthy", [], None)
        assert [provider["id"] for provider in found["providers"]] == ["lmstudio"]
        assert [row["title"] for row in found["conversations"]] == ["Does the ferry run?"]


async def test_an_upstream_that_is_down(tmp_path: Path) -> None:
    """The server runs, and its provider does not answer: exit code 1."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        code, told, _ = await status(tmp_path, served)
        assert code == 1
        assert "lmstudio: does not answer" in told


async def test_no_server(tmp_path: Path) -> None:
    """Nobody listens there: exit code 2, and what to do."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        pass
    code, told, errors = await status(tmp_path, served)
    assert code == 2
    assert "No elbowroom runs at" in told
    assert errors == ""


@pytest.mark.parametrize("options", [(), ("--port", "0"), ("--port", "99999")])
def test_a_port_that_no_server_has(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Nobody is asked at port 0: the error says that it has to be named."""
    settings = tmp_path / "settings.toml"
    settings.write_text("[server]\nport = 0\n", encoding="utf-8")
    done = run(tmp_path, "status", "--config", str(settings), *options)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert ("--port" in done.stderr, ":0" in done.stderr) == (True, False)


def test_the_store_is_asked_where_no_server_has_a_port(tmp_path: Path) -> None:
    """Commands that can do without a server take port 0 of the settings for none that runs."""
    settings = tmp_path / "settings.toml"
    settings.write_text("[server]\nport = 0\n", encoding="utf-8")
    done = run(tmp_path, "users", "list", "--config", str(settings))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Nobody has a token besides the server's own.\n")


async def test_the_token_comes_from_the_settings(tmp_path: Path) -> None:
    """From the file or the variable that they name; with another one the person reads what to do."""
    settings = settings_for("http://127.0.0.1:9", server='token = "env:FERRY_TOKEN"')
    async with serve(tmp_path, settings, environ={"FERRY_TOKEN": "let me in"}) as served:
        code, told, errors = await status(tmp_path, served, FERRY_TOKEN="let me in")
        assert (code, errors) == (1, "")
        assert "Answering now: nothing" in told
        code, told, errors = await status(tmp_path, served, FERRY_TOKEN="another")
        assert (code, told) == (1, "")
        assert "asks for another token" in errors
        assert "let me in" not in errors


async def test_several_people(tmp_path: Path) -> None:
    """Where people have names, theirs are shown with --user, and without it why none are."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Yes.")
        await ask(served, chat_body("Does the ferry run?"), **{"X-Elbowroom-User": "änna"})
        code, told, _ = await status(tmp_path, served)
        assert code == 0
        assert "Several people use this elbowroom" in told
        code, told, _ = await status(tmp_path, served, "--user", "änna")
        assert "Does the ferry run?" in told


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "is_unicode"), [("utf-8", True), ("ascii", False), ("cp1252", False)])
async def test_characters_that_the_terminal_has(tmp_path: Path, encoding: str, is_unicode: bool) -> None:
    """Blocks where they can be shown, else plain ASCII."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Yes.")
        await ask(served, chat_body("Fährt die Fähre?"))
        ported = ["--config", str(served.settings), "--port", str(served.port)]
        done = await asyncio.to_thread(run, tmp_path, "status", *ported, PYTHONIOENCODING=encoding)
        assert ("\u2591" in done.stdout) is is_unicode
        assert is_unicode or (done.stdout.isascii() and "F?hrt die F?hre?" in done.stdout)


async def test_something_else_listens_there(tmp_path: Path, aiohttp_server: AiohttpServer) -> None:
    """It is not taken for a server of ours."""
    other = await aiohttp_server(web.Application())
    done = await asyncio.to_thread(run, tmp_path, "status", "--port", str(other.port))
    assert done.returncode == 1
    assert "is no elbowroom" in done.stderr


async def test_watch(tmp_path: Path) -> None:
    """It is shown anew until Ctrl-C; the exit code is that of what was seen last."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        arguments = ["--config", str(served.settings), "--port", str(served.port), "--watch", "0.2"]
        async with running(tmp_path, "status", *arguments) as program:
            for _ in range(2):
                await program.line_with("Answering now: nothing")
            assert "\x1b" not in program.said
            assert await program.end(signal.SIGINT) == 0


@pytest.mark.slow
async def test_watch_of_a_server_that_goes_away(tmp_path: Path) -> None:
    """Its end is shown, and it is asked on."""
    async with AsyncExitStack() as until_gone:
        served = await until_gone.enter_async_context(serve(tmp_path, settings_for("http://127.0.0.1:9")))
        arguments = ["--config", str(served.settings), "--port", str(served.port), "--watch", "0.2", "--json"]
        async with running(tmp_path, "status", *arguments) as program:
            assert json.loads(await program.line_with("upstream down"))["version"]
            await until_gone.aclose()
            for _ in range(2):
                assert json.loads(await program.line_with("not running"))["version"] is None
            assert await program.end(signal.SIGINT) == 2


async def test_a_server_that_stops_is_one_of_ours(tmp_path: Path) -> None:
    """While it ends it is told from other programs: the note says what it says itself."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        served.app[SHARED].running.close()
        code, told, errors = await status(tmp_path, served)
    assert (code, errors) == (1, "")
    assert "elbowroom" in told.splitlines()[0]


@pytest.mark.slow
def test_a_reader_that_has_had_enough(tmp_path: Path) -> None:
    """Output into a program that ends early, such as `head`, ends without a word about Python."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "elbowroom", "config", "show"]
    done = subprocess.run(command, env=environment(tmp_path), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_pause_that_is_none(tmp_path: Path, seconds: str) -> None:
    """It is refused in words."""
    done = run(tmp_path, "status", f"--watch={seconds}")
    assert done.returncode == 1
    assert "--watch takes at least 0.2 seconds" in done.stderr
