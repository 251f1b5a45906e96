"""`elbowroom connect open-webui` sets the connection up over Open WebUI's API, shows what it changes, and undoes it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from serving import serve, settings_for

from elbowroom.cli import main
from elbowroom.connect.clients import OPEN_WEBUI
from elbowroom.connect.open_webui import USUAL
from elbowroom.demo import SimulatedLMStudio, SimulatedModel

ADDRESS = "http://127.0.0.1:4444/v1"
OTHER = {"enable": True, "prefix_id": "x"}


class Admin:
    """The routes of Open WebUI's admin panel for connections."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {
            "ENABLE_OPENAI_API": False,
            "OPENAI_API_BASE_URLS": ["https://api.example.com/v1"],
            "OPENAI_API_KEYS": ["sk-other"],
            "OPENAI_API_CONFIGS": {"0": OTHER},
        }
        self.models: dict[str, Any] = {"DEFAULT_MODELS": "writer", "DEFAULT_MODEL_METADATA": None}
        self.url = ""
        self.is_another = False

    @property
    def capabilities(self) -> dict[str, Any]:
        """Return what all models have by default."""
        metadata: dict[str, dict[str, Any]] = self.models["DEFAULT_MODEL_METADATA"]
        return metadata["capabilities"]

    async def answer(self, request: web.Request) -> web.Response:
        if self.is_another:
            return web.json_response({"error": {"message": "There is nothing here."}}, status=404)
        if request.headers["Authorization"] != "Bearer sk-admin":
            return web.json_response({"detail": "401 Unauthorized"}, status=401)
        if request.path == "/openai/config/update":
            self.config = await request.json()
        elif request.path == "/api/v1/configs/models":
            if request.method == "POST":
                self.models = await request.json()
            return web.json_response(self.models)
        elif request.path.startswith("/openai/models/"):
            return web.json_response({"data": [{"id": "writer"}]})
        return web.json_response(self.config)


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    """Run it on a port of its own."""
    admin, app = Admin(), web.Application()
    app.router.add_route("*", "/{path:.*}", admin.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    admin.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield admin
    await runner.cleanup()


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELBOWROOM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ELBOWROOM_CONFIG", str(tmp_path / "settings.toml"))
    (tmp_path / "settings.toml").write_text("", encoding="utf-8")


async def connect(admin: Admin, *more: str, key: str = "sk-admin") -> int:
    """Run the command."""
    command = ["connect", "open-webui", "--url", admin.url, "--key", key, "--port", "4444"]
    return await asyncio.to_thread(main, [*command, *more])


def chat_at(admin: Admin) -> dict[str, str]:
    """Return the header by which Open WebUI tells where a chat is."""
    return {"X-Elbowroom-Chat-Url": f"{admin.url}/c/{{{{CHAT_ID}}}}"}


async def test_it_is_set_up_and_put_back(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """The connection comes with its headers, other connections stay; the undo leaves what there was, to the letter."""
    before = admin.config
    assert await connect(admin, "--dry-run") == 0
    assert admin.config is before
    assert await connect(admin) == 0
    shown = capsys.readouterr().out
    assert f"+ connection {ADDRESS}" in shown
    assert "+   header X-Conversation-Id: {{CHAT_ID}}" in shown
    assert "finds 1 models of elbowroom: writer" in shown
    assert admin.config == {
        "ENABLE_OPENAI_API": True,
        "OPENAI_API_BASE_URLS": [*before["OPENAI_API_BASE_URLS"], ADDRESS],
        "OPENAI_API_KEYS": ["sk-other", "none"],
        "OPENAI_API_CONFIGS": {
            "0": OTHER,
            "1": {"connection_type": "external", "enable": True, "headers": {**OPEN_WEBUI.headers, **chat_at(admin)}},
        },
    }
    assert await connect(admin, "--people") == 0
    assert admin.config["OPENAI_API_CONFIGS"]["1"]["headers"]["X-Elbowroom-User"] == "{{USER_ID}}"
    assert await connect(admin, "--undo") == 0
    assert admin.config == before
    assert await connect(admin, "--undo") == 1


async def test_its_own_tools_are_switched_off_where_windows_are_small(
    admin: Admin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is offered with the smallest window, done with `--tools off`, and taken back with `--tools on`."""
    async with (
        SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=8192)]) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        here = ["--address", f"{served.url}/v1"]
        assert await connect(admin, *here) == 0
        assert "the smallest window has 8,192: run this again with --tools off" in capsys.readouterr().out
        assert admin.models["DEFAULT_MODEL_METADATA"] is None
        assert await connect(admin, *here, "--tools", "off", "--dry-run") == 0
        assert admin.models["DEFAULT_MODEL_METADATA"] is None
        assert await connect(admin, *here, "--tools", "off") == 0
        assert admin.capabilities == {**USUAL, "builtin_tools": False}
        assert admin.models["DEFAULT_MODELS"] == "writer"
        capsys.readouterr()
        assert await connect(admin, *here) == 0
        assert "--tools off" not in capsys.readouterr().out
        assert await connect(admin, *here, "--tools", "on") == 0
        assert admin.capabilities["builtin_tools"] is True


async def test_what_a_person_has_set_stays(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """A connection keeps its other headers and settings; a second run changes nothing; keys are not shown."""
    own = {"enable": False, "tags": ["home"], "headers": {"X-Own": "1", "X-Elbowroom-Task": "off"}}
    admin.config |= {
        "OPENAI_API_BASE_URLS": [f"{ADDRESS}/"],
        "OPENAI_API_KEYS": ["sk-secret"],
        "OPENAI_API_CONFIGS": {"0": own},
    }
    before = admin.config
    assert await connect(admin) == 0
    assert admin.config["OPENAI_API_BASE_URLS"] == [f"{ADDRESS}/"]
    assert admin.config["OPENAI_API_CONFIGS"]["0"] == {
        **own,
        "enable": True,
        "headers": {"X-Own": "1", **OPEN_WEBUI.headers, **chat_at(admin)},
    }
    once = admin.config
    assert await connect(admin) == 0
    assert admin.config is once
    shown = capsys.readouterr().out
    assert "set up as it should be" in shown
    assert "sk-secret" not in shown
    assert await connect(admin, "--undo") == 0
    assert admin.config == before


async def test_a_key_that_is_refused(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """The error says where a key is found; without one nothing is asked."""
    before = admin.config
    for key in ("sk-wrong", ""):
        assert await connect(admin, key=key) == 1
        assert "Settings, Account, API Keys" in capsys.readouterr().err
    assert admin.config is before


async def test_another_server_at_the_address(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that has no such path is no Open WebUI, even where it answers JSON; the error says what to name."""
    admin.is_another = True
    assert await connect(admin) == 1
    told = capsys.readouterr().err
    assert f"What answers at {admin.url} is no Open WebUI" in told
    assert "--url" in told


def test_its_help_says_what_an_address_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Whose address it is, one to copy, and what is taken without it."""
    with pytest.raises(SystemExit):
        main(["connect", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "--address URL where the program finds elbowroom, such as http://host.docker.internal:2345/v1 for" in told
    assert "(default: this machine's own)" in told
