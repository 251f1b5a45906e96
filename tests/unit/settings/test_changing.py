"""Changes of a settings file without a server: the first one, other programs at the same time, odd ways of writing."""

import datetime
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cases import cases
from settings_file import AGENT

from elbowroom.errors import Conflict, WrongSettings
from elbowroom.settings.change import SettingsChanger
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.merge import shown_sources, shown_values
from elbowroom.settings.model import Settings


def changer_of(path: Path, text: str | None = None) -> tuple[SettingsChanger, LiveSettings]:
    """Return what changes the file, and the settings that follow it."""
    if text is not None:
        path.write_text(text, encoding="utf-8", newline="")
    live = LiveSettings(path, {}, {})
    return SettingsChanger(live, {}), live


def apply(changer: SettingsChanger, patch: Mapping[str, Any]) -> None:
    """Apply a patch that does not depend on what there is."""
    changer.change(lambda _: patch)


def test_the_first_change_makes_file_and_folder(tmp_path: Path) -> None:
    """Without a file there is one afterwards, for its owner alone, with what was changed and nothing else."""
    path = tmp_path / "config" / "settings.toml"
    changer, live = changer_of(path)
    apply(changer, {"memory": {"enabled": True}, "server": {"token": "sesame", "port": 2345}})
    token = tomllib.loads(path.read_text(encoding="utf-8"))["server"]["token"]
    assert path.read_text(encoding="utf-8") == f'[memory]\nenabled = true\n\n[server]\ntoken = "{token}"\n'
    assert {file.name for file in path.parent.iterdir()} == {"settings.toml", "secrets"}
    assert live.current().settings.memory.enabled
    assert live.current().settings.server.token.reveal(path.parent) == "sesame"
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_change_writes_nothing(tmp_path: Path) -> None:
    """What is in force already is not written, and the file is not touched for it."""
    path = tmp_path / "settings.toml"
    changer, live = changer_of(path, AGENT)
    before = path.stat()
    apply(changer, {"compaction": {"auto": True}, "agents": {"writer": {"model": "qwen2.5-7b-instruct"}}, "store": {}})
    assert path.stat() == before
    assert live.current() is live.last_good
    assert list(tmp_path.iterdir()) == [path]


def test_another_program_writes_meanwhile(tmp_path: Path) -> None:
    """What is written into the file while a change is being worked out is not lost: it is worked out anew."""
    path = tmp_path / "settings.toml"
    changer, live = changer_of(path, AGENT)
    seen: list[int] = []

    def decide(settings: Settings) -> dict[str, Any]:
        seen.append(len(settings.agents))
        if len(seen) < 3:
            path.write_text(path.read_text() + AGENT.replace("writer", f"other{len(seen)}"), encoding="utf-8")
        return {"compaction": {"auto": False}}

    changer.change(decide)
    assert seen == [1, 2, 3]
    assert not live.current().settings.compaction.auto
    assert len(live.current().settings.agents) == 3


def test_a_file_that_never_rests(tmp_path: Path) -> None:
    """A file that another program writes all the time is left to it."""
    path = tmp_path / "settings.toml"
    changer, _ = changer_of(path, AGENT)

    def decide(_: Settings) -> dict[str, Any]:
        path.write_text(f"{path.read_text()}#\n", encoding="utf-8")
        return {"compaction": {"auto": False}}

    with pytest.raises(Conflict, match="is being changed by another program") as raised:
        changer.change(decide)
    assert raised.value.code == "settings_file_changing"
    assert not (tmp_path / "settings.toml.bak").exists()


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["", "with a byte order mark"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_bytes_stay_as_they_are(tmp_path: Path, start: str, line_end: str) -> None:
    """Line ends and a byte order mark are those of the person's editor."""
    path = tmp_path / "settings.toml"
    changer, _ = changer_of(path, start + AGENT.replace("\n", line_end))
    apply(changer, {"agents": {"writer": {"name": "W"}}})
    assert path.read_bytes() == (start + (AGENT + 'name = "W"\n').replace("\n", line_end)).encode()


def test_open_servers_keep_their_token(tmp_path: Path) -> None:
    """A server that other machines reach cannot be changed to have none."""
    path = tmp_path / "settings.toml"
    changer, live = changer_of(path, "[server]\nhost = '0.0.0.0'\ntoken = 'sesame'\n")
    with pytest.raises(WrongSettings) as raised:
        apply(changer, {"server": {"token": None, "host": None}})
    assert raised.value.param == "server.token"
    assert live.current().settings.server.token.reveal(tmp_path) == "sesame"


def test_everything_shown_is_json(tmp_path: Path) -> None:
    """Whatever a file may have is shown as JSON, in keys whose paths are those of the sources."""
    text = AGENT + "[agents.sampling]\nday = 2026-01-02\nlist = [{ a = 1 }, inf]\nnan = nan\ntop_k = 3\n"
    _, live = changer_of(tmp_path / "settings.toml", text)
    loaded = live.current()
    shown = json.loads(json.dumps(shown_values(loaded, {}), allow_nan=False))
    sampling = shown["agents"][0]["sampling"]
    assert (sampling["day"], sampling["list"], sampling["nan"]) == (
        str(datetime.date(2026, 1, 2)),
        [{"a": 1}, "inf"],
        "nan",
    )
    sources = shown_sources(loaded)
    assert (sources["agents[0].sampling.top_k"], sources["agents[0].vault.write"]) == ("file", "default")


@cases("name", ["", "a\nb", 'q"', "\x00", "\u2028", "a.b", "ä"])
def test_names_of_any_form(tmp_path: Path, name: str) -> None:
    """Parameters and headers may have any name that JSON has."""
    path = tmp_path / "settings.toml"
    changer, _ = changer_of(path, AGENT)
    deep: Any = 1
    for _ in range(60):
        deep = [{"x": deep}]
    apply(changer, {"agents": {"writer": {"sampling": {name: deep}, "tool_output": {"kinds": {name: "read"}}}}})
    row = tomllib.loads(path.read_text(encoding="utf-8"))["agents"][0]
    assert (row["sampling"], row["tool_output"]["kinds"]) == ({name: deep}, {name: "read"})
