"""`/api/obsidian`: the page installs the plugin in vaults of Obsidian's own list, and in no other folder."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from aiohttp import web
from serving import Served, serve, settings_for
from settings_calls import NOBODY, ask, change, in_file

from elbowroom.connect.obsidian import Vault, described
from elbowroom.connect.obsidian.plugin import FILES, packaged, version_of
from elbowroom.elsewhere import look

VERSION = version_of(packaged()["manifest.json"])
INSTALL, REMOVE = "/api/obsidian/install", "/api/obsidian/remove"


def list_vaults(home: Path, rows: Any) -> dict[str, str]:
    """Write Obsidian's list below a home folder, and return the variables that lead to it."""
    folders = {"win32": "obsidian", "darwin": "Library/Application Support/obsidian"}
    folder = home / folders.get(sys.platform, ".config/obsidian")
    folder.mkdir(parents=True)
    (folder / "obsidian.json").write_text(json.dumps({"vaults": rows}), encoding="utf-8")
    return {"HOME": str(home), "APPDATA": str(home)}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Return a vault that Obsidian knows as `abc`."""
    (tmp_path / "Notes" / ".obsidian").mkdir(parents=True)
    return tmp_path / "Notes"


@pytest.fixture
async def served(tmp_path: Path, vault: Path) -> AsyncIterator[Served]:
    """Run elbowroom for a person whose Obsidian knows one vault, and one whose folder has no settings."""
    (tmp_path / "Empty").mkdir()
    rows = {"abc": {"path": str(vault), "ts": 2, "open": True}, "def": {"path": str(tmp_path / "Empty")}}
    environ = list_vaults(tmp_path / "home", rows)
    async with serve(tmp_path, settings_for(NOBODY), environ=environ) as served:
        yield served


async def test_installed_from_the_page(served: Served, vault: Path) -> None:
    """The list says how each vault stands; installing tells each change, writes the address, and is taken back."""
    _, listed = await ask(served, "GET", "/api/obsidian")
    known, empty = listed["data"]
    assert known == {
        "id": "abc",
        "name": "Notes",
        "path": str(vault),
        "open": True,
        "installed": None,
        "linked": False,
        "up_to_date": False,
        "enabled": False,
        "problem": None,
        "agents": False,
    }
    assert "is no vault of Obsidian" in empty["problem"]
    status, answer = await ask(served, "POST", INSTALL, {"vault": "abc", "enable": True})
    assert status == 200
    assert answer["changes"][0] == f"+ {Path('.obsidian', 'plugins', 'elbowroom', 'main.js')}"
    assert answer["notes"][0] == f"Elbowroom {VERSION} is installed."
    assert answer["vault"] == {**known, "installed": VERSION, "up_to_date": True, "enabled": True}
    plugin = vault / ".obsidian" / "plugins" / "elbowroom"
    assert {name: (plugin / name).read_bytes() for name in FILES} == packaged()
    assert json.loads((plugin / "data.json").read_bytes()) == {"address": served.url}
    _, answer = await ask(served, "POST", REMOVE, {"vault": "abc"})
    assert answer["vault"] == known
    assert [file.name for file in plugin.iterdir()] == ["data.json"]
    await ask(served, "POST", REMOVE, {"vault": "abc", "all": True})
    assert not plugin.exists()


@pytest.mark.threat("vaults over HTTP", "only vaults of Obsidian's own list have a name")
@pytest.mark.parametrize("path", [INSTALL, REMOVE])
async def test_only_vaults_of_the_list(served: Served, tmp_path: Path, vault: Path, path: str) -> None:
    """Neither a path, nor a name, nor anything else than an id of Obsidian's list leads to a folder."""
    (tmp_path / "Other" / ".obsidian").mkdir(parents=True)
    for named, status in (
        (str(tmp_path / "Other"), 404), ("Notes", 404), ("../Other", 404), ("", 400), (5, 400), (["abc"], 400),
    ):  # fmt: skip
        assert (await ask(served, "POST", path, {"vault": named}))[0] == status
    wrong: list[Any] = [[], {}, {"vault": "abc", "enable": "yes", "all": 1}]
    for body in wrong:
        assert (await ask(served, "POST", path, body))[0] == 400
    assert not (tmp_path / "Other" / ".obsidian" / "plugins").exists()
    assert not (vault / ".obsidian" / "plugins").exists()


async def test_agents_get_the_vault(served: Served, vault: Path, tmp_path: Path) -> None:
    """On demand the vault becomes the agents' one, never in place of another one, and is taken from them again."""
    status, answer = await ask(served, "POST", INSTALL, {"vault": "abc", "agents_vault": True})
    assert (status, answer["vault"]["agents"]) == (200, True)
    assert in_file(served)["vault"] == {"path": str(vault)}
    assert (await ask(served, "GET", "/api/obsidian"))[1]["agents_vault"] == str(vault)
    _, answer = await ask(served, "POST", REMOVE, {"vault": "abc", "all": True, "agents_vault": True})
    assert answer["vault"]["agents"] is False
    await change(served, {"vault": {"path": str(tmp_path / "Other")}})
    status, answer = await ask(served, "POST", INSTALL, {"vault": "abc", "agents_vault": True})
    assert (status, answer["error"]["code"]) == (409, "other_vault")
    assert not (vault / ".obsidian" / "plugins" / "elbowroom").exists()
    await ask(served, "POST", REMOVE, {"vault": "abc", "all": True, "agents_vault": True})
    assert in_file(served)["vault"] == {"path": str(tmp_path / "Other")}


async def test_what_cannot_be_installed_is_told(served: Served, vault: Path) -> None:
    """A newer version and a folder without settings are refused in words, and nothing is changed."""
    plugin = vault / ".obsidian" / "plugins" / "elbowroom"
    plugin.mkdir(parents=True)
    (plugin / "manifest.json").write_text('{"version": "999.0.0"}', encoding="utf-8")
    status, answer = await ask(served, "POST", INSTALL, {"vault": "abc"})
    assert (status, answer["error"]["code"]) == (409, "newer_plugin")
    assert [file.name for file in plugin.iterdir()] == ["manifest.json"]
    status, answer = await ask(served, "POST", INSTALL, {"vault": "def"})
    assert (status, answer["error"]["code"]) == (400, "no_vault")
    assert "is no vault of Obsidian" in answer["error"]["message"]


@pytest.mark.threat("vaults over HTTP", "403 for other pages and for other computers")
@pytest.mark.parametrize(("method", "path"), [("GET", "/api/obsidian"), ("POST", INSTALL), ("POST", REMOVE)])
async def test_only_the_own_page_of_this_computer(served: Served, vault: Path, method: str, path: str) -> None:
    """Other web pages, Obsidian's plugins among them, and other computers are refused before anything is looked at."""
    body = {"vault": "abc"} if method == "POST" else None
    for origin in ("app://obsidian.md", "http://localhost:1", "https://evil.example"):
        assert (await ask(served, method, path, body, Origin=origin))[0] == 403
    with patch.object(web.BaseRequest, "remote", "192.168.1.7"):
        status, answer = await ask(served, method, path, body)
    assert status == 403
    assert "from this computer alone" in answer["error"]["message"]
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"):  # a proxy on this computer, for another one
        assert (await ask(served, method, path, body, **{header: "192.168.1.7"}))[0] == 403
    assert not (vault / ".obsidian" / "plugins").exists()
    assert (await ask(served, method, path, body, Origin=served.url))[0] == 200


async def test_a_computer_without_obsidian(tmp_path: Path) -> None:
    """There is nothing to list, and that is no error; a list that cannot be read is told of."""
    async with serve(tmp_path, settings_for(NOBODY)) as served:
        assert await ask(served, "GET", "/api/obsidian") == (200, {"data": [], "problems": [], "agents_vault": ""})
    environ = list_vaults(tmp_path / "home", [])
    async with serve(tmp_path, settings_for(NOBODY), environ=environ) as served:
        _, answer = await ask(served, "GET", "/api/obsidian")
    assert answer["data"] == []
    assert "cannot be read" in answer["problems"][0]


@pytest.mark.slow
@pytest.mark.fault("folder that hangs", "first", "no chat waits for it; the page says which vault does not answer")
async def test_a_vault_that_does_not_answer_holds_nobody_up(
    served: Served, vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as the page looks, other vaults are shown and chats answered; that one is told by name."""
    end = threading.Event()

    def hanging(one: Vault) -> dict[str, Any]:
        if one.id == "abc":
            end.wait(30)
        return described(one)

    monkeypatch.setattr("elbowroom.server.obsidian.routes.described", hanging)
    monkeypatch.setattr("elbowroom.server.obsidian.routes.look", partial(look, seconds=0.2))
    try:
        for _ in range(12):
            _, listed = await ask(served, "GET", "/api/obsidian")
            known, empty = listed["data"]
            assert (known["id"], known["problem"][: len(str(vault))]) == ("abc", str(vault))
            assert "does not answer" in known["problem"]
            assert "is no vault of Obsidian" in empty["problem"]
        hung = [thread for thread in threading.enumerate() if thread.name == "elsewhere"]
        assert len(hung) <= 4
        status, answer = await ask(served, "POST", INSTALL, {"vault": "abc"})
        assert (status, answer["error"]["code"]) == (503, "folder_not_answering")
        async with asyncio.timeout(10):  # read in a thread of the default pool
            body = {"model": "nobody", "messages": [{"role": "user", "content": "a" * 300_000}]}
            async with served.http.post(served.chat_url, json=body) as response:
                assert response.status == 503  # since nobody is there to answer
    finally:
        end.set()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
async def test_a_pipe_in_the_place_of_a_file_is_told(served: Served, vault: Path) -> None:
    """Nothing waits for it: the list and the installation say which file it is."""
    plugin = vault / ".obsidian" / "plugins" / "elbowroom"
    plugin.mkdir(parents=True)
    os.mkfifo(plugin / "manifest.json")
    async with asyncio.timeout(5):
        _, listed = await ask(served, "GET", "/api/obsidian")
        assert "manifest.json cannot be read" in listed["data"][0]["problem"]
        status, answer = await ask(served, "POST", INSTALL, {"vault": "abc"})
        assert status == 500
        assert "manifest.json cannot be read" in answer["error"]["message"]
