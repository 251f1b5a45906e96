"""The wheel is the product: installed alone, without the repository, git or a compiler, it does all that people do."""

import asyncio
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from packaged import REPOSITORY, Installed, bare, build, children_seconds, fetch, install, run
from postgresql import shared_server

from elbowroom import __version__
from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MOST_OF_THE_WHEEL, MOST_DOWNLOADED = 4e6, 50e6
"""Bytes, so that 40 MB of the promised 90 are left for uv and its own Python, on a machine that has none."""
FIRST_ANSWER = 60.0
"""Seconds of CPU from nothing to the first answer of the demo; on an idle machine the clock says hardly more."""
MODEL = "qwen2.5-7b-instruct"
AGENT = {"id": "writer", "model": MODEL, "instructions": "Answer briefly."}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from the source archive."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Give an environment with nothing but the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("bare")
    yield install(wheel, folder / "home")
    shutil.rmtree(folder)


async def asked(url: str, model: str, **fields: Any) -> str:
    """Return the body of an answer to a question."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}], **fields}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        return await response.text()


async def got(url: str) -> tuple[int, str]:
    """Return the status and the body of what stands at an address."""
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return response.status, await response.text()


async def test_the_demo_answers_in_a_minute(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    """From nothing to the first answer: an environment, downloads, the installation, the demo, an agent's answer."""
    began, before = time.monotonic(), children_seconds()
    async with installed.running("demo", "--port", "0") as demo:
        answer = await asked(await demo.address(), "writer")
        seconds = installed.seconds + time.monotonic() - began
    used = installed.used + children_seconds() - before
    assert "simulated" in answer
    total, wheel = sum(installed.downloads.values()), installed.wheel.stat().st_size
    others = sorted((size, name) for name, size in installed.downloads.items() if name != installed.wheel.name)
    largest = ", ".join(f"{name.split('-')[0]} {size / 1e6:.1f}" for size, name in reversed(others[-4:]))
    with capsys.disabled():
        sys.stdout.write(
            f"\nFirst answer of the demo {seconds:.0f} s after nothing, {used:.0f} s of CPU. "
            f"Wheel {wheel / 1e6:.1f} MB, downloaded {total / 1e6:.1f} MB in "
            f"{len(installed.downloads)} files; the largest others: {largest}.\n"
        )
    assert wheel <= MOST_OF_THE_WHEEL
    assert total <= MOST_DOWNLOADED
    assert used <= FIRST_ANSWER


def test_nothing_of_the_repository_is_used(installed: Installed) -> None:
    """The package lies in the environment, and knows its version; no compiler and no git is on the PATH."""
    where = run([installed.python, "-c", "import elbowroom; print(elbowroom.__file__)"], bare(installed.home))
    assert Path(where.strip()).is_relative_to(installed.home)
    assert installed.said("--version") == f"elbowroom {__version__}\n"
    assert not any(shutil.which(name, path=bare(installed.home)["PATH"]) for name in ("git", "cc", "gcc", "python3"))


async def test_serve_chat_page_and_doctor(installed: Installed, tmp_path: Path) -> None:
    """A server with an LM Studio behind it streams an agent's answer, shows its page, and the doctor finds it sound."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        studio.enqueue(Script("Good morning."), repeat=True)
        settings = tmp_path / "settings.toml"
        settings.write_text(settings_text(studio.base_url), encoding="utf-8")
        given = {"ELBOWROOM_CONFIG": str(settings), "ELBOWROOM_DATA_DIR": str(tmp_path / "data")}
        async with installed.running("serve", "--port", "0", **given) as server:
            url = await server.address()
            assert "data: [DONE]" in (frames := await asked(url, "writer", stream=True))
            assert "Good morning." in "".join(re.findall(r'"content": ?"([^"]*)"', frames))
            assert json.loads((await got(f"{url}/health"))[1])["version"] == __version__
            status, page = await got(url)
            assert status == 200
            parts = re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css|svg))"', page)
            assert parts
            assert [(await got(url + part))[0] for part in parts] == [200] * len(parts)
            port = url.rpartition(":")[2]
            told = json.loads(await asyncio.to_thread(installed.said, "doctor", "--json", "--port", port, **given))
            assert told["healthy"], told


def settings_text(studio: str, store: str = "") -> str:
    """Return settings with one LM Studio and one agent."""
    agent = "\n".join(f"{key} = {json.dumps(value)}" for key, value in AGENT.items())
    provider = f'[[providers]]\nid = "lmstudio"\nkind = "lmstudio"\nbase_url = "{studio}"\n'
    return f"{provider}[[agents]]\n{agent}\n" + (f'[store]\nurl = "{store}"\n' if store else "")


def test_the_plugin_is_installed(installed: Installed, tmp_path: Path) -> None:
    """`elbowroom obsidian install` puts the plugin of the repository into a vault, with the version of the program."""
    vault = tmp_path / "Notes"
    (vault / ".obsidian").mkdir(parents=True)
    installed.said("obsidian", "install", str(vault), "--enable")
    plugin = vault / ".obsidian" / "plugins" / "elbowroom"
    for name in ("main.js", "styles.css", "manifest.json"):
        assert (plugin / name).read_bytes() == (REPOSITORY / "obsidian" / name).read_bytes()
    assert json.loads((plugin / "manifest.json").read_text(encoding="utf-8"))["version"] == __version__


async def test_the_extra_for_postgresql(installed: Installed, tmp_path: Path) -> None:
    """With the extra `postgres` a chat is kept on a server of PostgreSQL."""
    server = shared_server()
    name = server.new_database()
    pip: list[str | Path] = [installed.python, "-m", "pip", "--quiet", "install", "--only-binary", ":all:"]
    fetch([*pip, f"{installed.wheel}[postgres]"], bare(installed.home))
    settings = tmp_path / "settings.toml"
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        settings.write_text(settings_text(studio.base_url, server.address(name)), encoding="utf-8")
        given = {"ELBOWROOM_CONFIG": str(settings), "ELBOWROOM_DATA_DIR": str(tmp_path / "data")}
        async with installed.running("serve", "--port", "0", **given) as program:
            url = await program.address()
            await asked(url, "writer")
            assert len(json.loads((await got(f"{url}/v1/conversations"))[1])["data"]) == 1
    server.drop(name)


TOOLS = {
    "uv tool": (["uv", "tool", "install", "--python", sys.executable], ["uv", "tool", "uninstall", "elbowroom"]),
    "pipx": (["pipx", "install", "--python", sys.executable], ["pipx", "uninstall", "elbowroom"]),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_installers_of_programs(tool: str, wheel: Path, tmp_path: Path) -> None:
    """`uv tool install` and `pipx install` of the file bring the program, and take it back."""
    into, out = ([str(Path(sys.executable).with_name(words[0])), *words[1:]] for words in TOOLS[tool])
    environ = bare(tmp_path)
    program = tmp_path / ".local" / "bin" / "elbowroom"
    fetch([*into, wheel], environ)
    assert run([program, "--version"], environ) == f"elbowroom {__version__}\n"
    run([*out], environ)
    assert not program.exists()
