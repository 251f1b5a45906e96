"""What the system refuses is told in words, with the place, and not by a number."""

import socket
from pathlib import Path

import pytest
from chatting import eventually
from serving import serve, settings_for

from elbowroom.cli import main

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of settings for a port at which nobody listens; the data folder is a file."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    (tmp_path / "data").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("ELBOWROOM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "settings.toml"
    path.write_text(settings_for(NOBODY).replace("port = 0", f"port = {port}"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("connect codex --write", "(Connection refused), and only it knows the window"),
        ("connect codex --undo", "connected.json: Not a directory ("),
        (f"connect open-webui --url {NOBODY} --key k", f"{NOBODY} (Connection refused). Start it, or say where it is"),
        ("obsidian pair", "(Connection refused), and only a running one makes codes"),
    ],
)
def test_commands(settings: Path, command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each says what happened, where, and what to do."""
    assert main([*command.split(), "--config", str(settings)]) == 1
    errors = capsys.readouterr().err
    assert said in errors
    assert "Errno" not in errors


async def test_a_data_folder_that_is_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log names it, and says that it is no folder."""
    (tmp_path / "data").write_text("no folder", encoding="utf-8")
    async with serve(tmp_path, settings_for(NOBODY), environ={"ELBOWROOM_DATA_DIR": str(tmp_path / "data")}) as served:
        async with served.http.get(f"{served.url}/v1/conversations"):
            pass
        await eventually(lambda: "does not work" in caplog.text, "the log does not tell")
    assert f"does not work: Not a directory ({tmp_path / 'data'})." in caplog.text
    assert "Errno" not in caplog.text
