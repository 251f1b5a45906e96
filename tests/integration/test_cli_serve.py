"""`elbowroom serve`, as the real program: how it starts, what it refuses, how it ends."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

import aiohttp
import pytest
from aiohttp import web
from command_line import PATIENCE, run, running
from fake_upstream import fake_upstream
from serving import serve, settings_for

from elbowroom import __version__
from elbowroom.demo import SimulatedLMStudio
from elbowroom.errors import SettingsError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.server import listen
from elbowroom.server.state import PROVIDERS, SETTINGS
from elbowroom.settings.live import LiveSettings


def free_port() -> int:
    """Return a port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  # the simulator has no event for it
            await asyncio.sleep(0.01)


def write_settings(folder: Path, text: str) -> str:
    """Write a settings file and return its path as an argument."""
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.slow
async def test_it_starts_in_an_empty_home_without_any_file(tmp_path: Path) -> None:
    """With nothing configured it serves, says where, names the missing file, and makes but its store and its log."""
    async with running(tmp_path, "serve", "--port", "0", is_fresh=True) as program, aiohttp.ClientSession() as http:
        address = await program.address()
        assert f"elbowroom {__version__}, settings: {tmp_path}" in program.said
        assert "settings.toml (not there: defaults are used)" in program.said
        async with http.get(f"{address}/health") as response:
            assert response.status == 200
            assert (await response.json())["status"] == "ok"
        await until(lambda: any(tmp_path.rglob("elbowroom.db")))
        assert await program.end(signal.SIGTERM) == 0
    assert {name for _, _, names in os.walk(tmp_path) for name in names} == {
        "elbowroom.db",
        "elbowroom.db.lock",
        "elbowroom.jsonl",
    }


async def test_it_starts_without_lm_studio(tmp_path: Path) -> None:
    """Where LM Studio is not running that is said, and when it comes its models are there without a restart."""
    port = free_port()
    config = write_settings(tmp_path, settings_for(f"http://127.0.0.1:{port}"))
    async with running(tmp_path, "serve", "--config", config) as program, aiohttp.ClientSession() as http:
        address = await program.address()
        said = await program.line_with("LM Studio does not answer")
        assert f"http://127.0.0.1:{port}" in said
        assert "lms server start" in said
        assert said.endswith("elbowroom picks it up when it comes.")
        async with http.get(f"{address}/v1/models") as response:
            assert (response.status, (await response.json())["data"]) == (200, [])
        async with SimulatedLMStudio(port=port):
            async with http.get(f"{address}/v1/models") as response:
                ids = [row["id"] for row in (await response.json())["data"]]
            assert "lmstudio/qwen2.5-7b-instruct" in ids
        assert await program.end(signal.SIGTERM) == 0


async def test_lm_studio_is_picked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That LM Studio does not answer is said once, however often elbowroom looks; when it comes its models are."""
    monkeypatch.setattr(listen, "LOOK_AGAIN_SECONDS", 0.02)
    caplog.set_level("INFO")
    port = free_port()
    async with serve(tmp_path, settings_for(f"http://127.0.0.1:{port}")) as served:
        provider = served.app[PROVIDERS].of(served.app[SETTINGS].current())["lmstudio"]
        announcing = asyncio.create_task(listen._announce(served.app, provider))
        await asyncio.sleep(0.2)
        async with SimulatedLMStudio(port=port):
            await asyncio.wait_for(announcing, PATIENCE)
    assert caplog.text.count("does not answer") == 1
    assert "loaded: lmstudio/qwen2.5-7b-instruct (8192 tokens)" in caplog.messages[-1]


async def test_it_says_which_models_there_are(tmp_path: Path) -> None:
    """With LM Studio running, the loaded models and their windows are in the log."""
    async with SimulatedLMStudio() as studio:
        config = write_settings(tmp_path, settings_for(studio.base_url))
        async with running(tmp_path, "serve", "--config", config) as program:
            line = await program.line_with("lmstudio: ")
            assert f"lmstudio: {len(studio.models)} models; loaded: lmstudio/qwen2.5-7b-instruct (8192 tokens)" in line


async def test_an_agent_whose_window_nobody_tells_is_an_error_at_start_and_on_reload(tmp_path: Path) -> None:
    """The log names the agent and what to do before anybody chats with it; a corrected file is silent."""

    async def listing(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})

    async with fake_upstream({"/v1/models": listing}) as upstream:
        agents = '[[agents]]\nid = "{}"\nprovider = "openai"\nmodel = "tiny"\n'
        wrong = settings_for(upstream.url, kind="openai", provider="manage_context = true", agents=agents)
        config = write_settings(tmp_path, wrong.format("writer"))
        async with running(tmp_path, "serve", "--config", config) as program, aiohttp.ClientSession() as http:
            line = await program.line_with("would not answer")
            assert "ERROR   The agent 'writer' would not answer. The window of 'tiny' is not known: " in line
            assert "set manage_context = false for this provider" in line
            write_settings(tmp_path, wrong.format("poet"))
            async with http.get(f"{await program.address()}/v1/models"):
                line = await program.line_with("'poet' would not answer")
            assert "ERROR" in line


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGINT])
async def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C end it with exit code 0 and without a traceback, as soon as it says that it listens."""
    async with running(tmp_path, "serve", "--port", "0") as program:
        await program.address()
        assert await program.end(number) == 0
    assert "Traceback" not in program.said


@pytest.mark.slow
async def test_a_signal_ends_it_while_an_answer_is_streamed(tmp_path: Path) -> None:
    """A stream that would go on for minutes ends with an error frame that says why, and the program with code 0."""
    async with SimulatedLMStudio(tokens_per_second=2) as studio:
        studio.enqueue("word " * 500)
        config = write_settings(tmp_path, settings_for(studio.base_url, server="drain_seconds = 0"))
        body = {"model": "lmstudio/qwen2.5-7b-instruct", "messages": [{"role": "user", "content": "Hi"}]}
        async with running(tmp_path, "serve", "--config", config) as program, aiohttp.ClientSession() as http:
            address = await program.address()
            async with http.post(f"{address}/v1/chat/completions", json={**body, "stream": True}) as response:
                await response.content.readuntil(b"word")
                assert await program.end(signal.SIGTERM) == 0
                assert b'"code":"server_stopping"' in await response.content.read()
        await until(lambda: studio.open_requests == 0)
    assert "Traceback" not in program.said


async def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    """Exit code 1, with the port, who may have it, and what to add to the command."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        answer = await asyncio.to_thread(run, tmp_path, "serve", "--port", str(port))
    assert answer.returncode == 1
    assert answer.stderr.endswith(
        f"elbowroom: Port {port} on 127.0.0.1 is in use, perhaps by another elbowroom. Stop that one, or choose "
        f"another port: add --port {port + 1 if port < 65535 else port - 1} to the command.\n"
    )


def test_an_open_address_without_a_token_is_refused(tmp_path: Path) -> None:
    """Exit code 1 and the command that mends it; nothing has been opened."""
    answer = run(tmp_path, "serve", "--port", "0", "--host", "0.0.0.0")
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == (
        "elbowroom: flag --host: listening on 0.0.0.0 lets other machines in, so it needs a token. "
        "Set one and start again:\n"
        "  export ELBOWROOM_TOKEN=\"$(python3 -c 'import secrets; print(secrets.token_urlsafe(32))')\"\n"
    )


@pytest.mark.parametrize("host", [pytest.param("nowhere.invalid", marks=pytest.mark.long), "a" * 70 + ".invalid"])
def test_an_address_that_is_not_of_this_machine_is_said(tmp_path: Path, host: str) -> None:
    """A host that cannot be listened on is an error in one line, whatever is wrong with the name."""
    answer = run(tmp_path, "serve", "--port", "0", "--host", host, ELBOWROOM_TOKEN="t")
    assert answer.returncode == 1
    assert f"elbowroom: server.host = '{host}', server.port = 0: nothing can listen there: " in answer.stderr
    assert "Traceback" not in answer.stderr


async def test_a_port_of_the_system_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system keeps a port to itself, the error says which ones there are, and how to take one."""

    async def refuse(site: web.BaseSite) -> None:
        raise PermissionError(errno.EACCES, "error while attempting to bind on address ('127.0.0.1', 80)")

    monkeypatch.setattr(web.TCPSite, "start", refuse)
    live = LiveSettings(tmp_path / "settings.toml", {}, {("server", "port"): 80})
    with pytest.raises(SettingsError, match=r"port 80 of 127\.0\.0\.1\. Take one above 1023: add --port 2345"):
        async with listen.listening(live, {"ELBOWROOM_DATA_DIR": str(tmp_path)}):
            pass


async def test_a_token_is_asked_for_and_never_logged(tmp_path: Path) -> None:
    """With ELBOWROOM_TOKEN set, requests need it, and the log does not show it, even in full detail."""
    variables = {"ELBOWROOM_TOKEN": "sesame-open-7391"}
    flags = ("--port", "0", "--log-level", "debug")
    async with (
        running(tmp_path, "serve", *flags, variables=variables) as program,
        aiohttp.ClientSession() as http,
    ):
        address = await program.address()
        async with http.get(f"{address}/v1/models") as response:
            assert response.status == 401
        headers = {"Authorization": "Bearer sesame-open-7391"}
        async with http.get(f"{address}/v1/models", headers=headers) as response:
            assert response.status == 200
        assert await program.end(signal.SIGTERM) == 0
    assert "sesame" not in program.said


async def test_a_token_in_a_file_can_be_replaced_while_it_runs(tmp_path: Path) -> None:
    """The next request after the file has changed needs the new token."""
    (tmp_path / "token").write_text("first\n", encoding="utf-8")
    config = write_settings(tmp_path, '[server]\nport = 0\ntoken = "file:token"\n')
    async with running(tmp_path, "serve", "--config", config) as program, aiohttp.ClientSession() as http:
        address = await program.address()

        async def status_with(token: str) -> int:
            async with http.get(f"{address}/v1/models", headers={"Authorization": f"Bearer {token}"}) as response:
                return response.status

        assert (await status_with("first"), await status_with("the-second")) == (200, 401)
        await asyncio.to_thread((tmp_path / "token").write_text, "the-second\n", "utf-8")
        assert (await status_with("first"), await status_with("the-second")) == (401, 200)


async def test_a_wrong_value_does_not_keep_it_from_starting(tmp_path: Path) -> None:
    """It is left out; the log, `/health`, the page's settings and `doctor` say so, and `config check` is an error."""
    config = write_settings(tmp_path, "[server]\nport = 0\n[compaction]\nthreshold_ratio = 5\n")
    async with running(tmp_path, "serve", "--config", config) as program, aiohttp.ClientSession() as http:
        address = await program.address()
        said = "compaction.threshold_ratio = 5 is not accepted"
        assert said in program.said
        async with http.get(f"{address}/health") as response:
            assert (await response.json())["wrong_settings"] == ["compaction.threshold_ratio"]
        async with http.get(f"{address}/api/settings") as response:
            [warning] = (await response.json())["warnings"]
            assert said in warning
        async with http.get(f"{address}/api/doctor") as response:
            assert any(said in found["told"] for found in (await response.json())["data"])
        assert await program.end(signal.SIGTERM) == 0
    checked = await asyncio.to_thread(run, tmp_path, "config", "check", "--config", config)
    assert checked.returncode == 1
    assert said in checked.stderr


async def test_a_wrong_change_leaves_the_running_server_alone(tmp_path: Path) -> None:
    """An agent that is added is there at once; a mistake after it is logged and changes nothing."""
    port = free_port()
    agent = '[[agents]]\nid = "{}"\nmodel = "m"\n'
    text = settings_for(f"http://127.0.0.1:{port}")
    config = write_settings(tmp_path, text)
    async with running(tmp_path, "serve", "--config", config) as program, aiohttp.ClientSession() as http:
        address = await program.address()

        async def ids() -> list[str]:
            async with http.get(f"{address}/v1/models") as response:
                return [row["id"] for row in (await response.json())["data"]]

        assert await ids() == []
        write_settings(tmp_path, text + agent.format("writer"))
        assert await ids() == ["writer"]
        write_settings(tmp_path, text + agent.format("writer") + "max_turns = 0\n")
        assert await ids() == ["writer"]
        await program.line_with("agents[0].max_turns = 0 is not accepted; it takes 1 or more.")
        assert await program.end(signal.SIGTERM) == 0


async def test_warnings_about_the_file_are_in_the_log(tmp_path: Path) -> None:
    """A misspelt key does not stop the start, and is said in it."""
    config = write_settings(tmp_path, "[server]\nprot = 1\n")
    async with running(tmp_path, "serve", "--config", config, "--port", "0") as program:
        assert "(did you mean port?)" in await program.line_with("server.prot")
        await program.address()


async def test_loaded_model_whose_window_nobody_tells_is_an_error_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be refused: the log names it and what to do, though no agent uses it."""

    class Silent:
        id = "desk"
        manages_context = True

        async def models(self) -> list[ModelInfo]:
            return [ModelInfo("tiny", "desk", "Tiny", state="loaded"), ModelInfo("other", "desk", "Other")]

    async with serve(tmp_path, settings_for("http://127.0.0.1:9")) as served:
        await listen._announce(served.app, cast(Provider, Silent()))
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told.startswith("desk/tiny is loaded, and its context length is not told: it is refused.")
