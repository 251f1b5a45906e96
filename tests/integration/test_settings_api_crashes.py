"""Changes outlive the program: one that is killed leaves the old file or the new one, the next start goes by it."""

import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import aiohttp
import pytest
from command_line import running

from elbowroom.settings.live import LiveSettings

CHANGE_FOR_EVER = """
import itertools, os, sys
from pathlib import Path
from elbowroom.settings.change import SettingsChanger
from elbowroom.settings.live import LiveSettings
live = LiveSettings(Path(sys.argv[1]), {}, {})
changer = SettingsChanger(live, {})
for number in itertools.count():
    token = f"token-{number}"
    patch = {"server": {"token": token}, "compaction": {"summary_prompt": f"{number} " * 20_000}}
    changer.change(lambda _: patch)
    assert live.current().settings.server.token.reveal(live.path.parent) == token
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", [0.0, 0.007, 0.02, *(pytest.param(moment, marks=pytest.mark.long) for moment in (0.003, 0.011))]
)
def test_killed_while_it_writes(tmp_path: Path, moment: float) -> None:
    """The file is whole, its secret is there, and it is no older than what was reported done."""
    path = tmp_path / "settings.toml"
    path.write_text("# mine\n", encoding="utf-8")
    with subprocess.Popen([sys.executable, "-c", CHANGE_FOR_EVER, str(path)], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        done = [int(program.stdout.readline()) for _ in range(3)][-1]
        time.sleep(moment)
        program.kill()
        done = max([done, *(int(line) for line in program.stdout.read().split(b"\n") if line.strip())])
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# mine\n")
    number = int(tomllib.loads(text)["compaction"]["summary_prompt"].split()[0])
    assert number in (done, done + 1)
    settings = LiveSettings(path, {}, {}).current().settings
    assert settings.server.token.reveal(tmp_path) == f"token-{number}"
    backup = tomllib.loads(path.with_name("settings.toml.bak").read_text(encoding="utf-8"))
    assert int(backup["compaction"]["summary_prompt"].split()[0]) in (number, number - 1)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends programs in another way")
async def test_the_next_start_goes_by_the_new_address(tmp_path: Path) -> None:
    """A port that was saved over HTTP is the one on which the program listens when it is started again."""
    path = tmp_path / "settings.toml"
    path.write_text("[server]\nport = 0\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ("serve", "--config", str(path))
    variables = {"ELBOWROOM_DATA_DIR": str(tmp_path)}
    async with running(tmp_path, *command, variables=variables) as program, aiohttp.ClientSession() as http:
        address = await program.address()
        patch = {"server": {"port": port, "token": "sesame"}}
        async with http.patch(f"{address}/api/settings", json=patch) as response:
            assert response.status == 200, await response.text()
            assert (await response.json())["restart_needed"] == ["server.port"]
        await program.end(signal.SIGTERM)
        assert "Settings changed: server.port, server.token." in program.said
        assert "sesame" not in program.said
    async with running(tmp_path, *command, variables=variables) as program, aiohttp.ClientSession() as http:
        assert await program.address() == f"http://127.0.0.1:{port}"
        headers = {"Authorization": "Bearer sesame"}
        async with http.get(f"http://127.0.0.1:{port}/api/settings", headers=headers) as response:
            assert response.status == 200
            assert (await response.json())["restart_needed"] == []
        await program.end(signal.SIGTERM)
