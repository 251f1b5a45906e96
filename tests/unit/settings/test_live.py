"""A running server follows its settings file, and no mistake in it stops or opens it."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from settings_file import AGENT

from elbowroom.errors import SettingsError, WrongSettings
from elbowroom.settings.live import LiveSettings

WRONG = "[server]\nport = 'not a number'\n"
MOVED = "server.host and server.port take effect when elbowroom is started again."


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a settings file with one agent."""
    path = tmp_path / "settings.toml"
    path.write_text(AGENT, encoding="utf-8")
    return path


def agents_of(live: LiveSettings) -> list[str]:
    """Return the ids of the agents in force."""
    return [agent.id for agent in live.current().settings.agents]


def test_without_a_change_nothing_is_read_again(path: Path) -> None:
    """The same object is returned as long as the file is as it was."""
    live = LiveSettings(path, {}, {})
    assert live.current() is live.current()


def test_a_change_is_in_force_at_the_next_look(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed file counts without a restart; that it was read is logged, with its warnings."""
    live = LiveSettings(path, {}, {})
    path.write_text(AGENT + AGENT.replace("writer", "reader") + "enabld = false\n", encoding="utf-8")
    assert agents_of(live) == ["writer", "reader"]
    assert f"Settings read again from {path}." in caplog.text
    assert "agents[1].enabld is not a setting of this version (did you mean enabled?)" in caplog.text


def test_compaction_and_client_tools_follow_the_file(path: Path) -> None:
    """Both count with the next look, and a pruning agent that goes keeps the last good settings."""
    live = LiveSettings(path, {}, {})
    chosen = "[compaction]\nauto = false\npruning_agent = 'writer'\n"
    path.write_text(AGENT + 'client_tools = "slim"\n' + chosen, encoding="utf-8")
    settings = live.current().settings
    assert (settings.compaction.auto, settings.compaction.pruning_agent) == (False, "writer")
    assert settings.agents[0].client_tools == "slim"
    path.write_text(chosen, encoding="utf-8")
    assert live.current().settings is settings


def test_the_layers_above_stay_above(path: Path) -> None:
    """Variables and flags of the start win over what the file says later."""
    live = LiveSettings(path, {"ELBOWROOM_SERVER__ALLOWED_HOSTS": "nas"}, {("server", "port"): 1003})
    path.write_text("[server]\nport = 1\nallowed_hosts = ['other']\n", encoding="utf-8")
    server = live.current().settings.server
    assert (server.port, server.allowed_hosts) == (1003, ("nas",))


def test_a_file_that_is_no_toml_at_the_start_is_an_error(path: Path) -> None:
    """There are no last good ones yet, and nothing of it can be known."""
    path.write_text("[server\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="not valid TOML"):
        LiveSettings(path, {}, {})


@pytest.mark.parametrize("wrong", [WRONG, "[server\n", "[[agents]]\nid = 'x'\n", "x = " + "[" * 5000])
def test_a_wrong_change_keeps_the_last_good(path: Path, wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong file is logged once and changes nothing; a right one after it counts."""
    live = LiveSettings(path, {}, {})
    before = live.current()
    path.write_text(wrong, encoding="utf-8")
    assert live.current() is before
    assert live.current() is before
    assert caplog.text.count("The changed settings are wrong; the last good ones stay in force.") == 1
    assert str(path) in caplog.text
    assert all(warning.count(str(path)) == 1 for warning in live.warnings)
    path.write_text(AGENT.replace("writer", "reader"), encoding="utf-8")
    assert agents_of(live) == ["reader"]


def test_a_file_that_goes_keeps_the_last_good(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without its file the server goes on as before, and says so once; a new file counts."""
    live = LiveSettings(path, {}, {})
    path.unlink()
    assert agents_of(live) == ["writer"]
    assert agents_of(live) == ["writer"]
    assert caplog.text.count(f"The settings file {path} is gone; the last settings stay in force.") == 1
    path.write_text(AGENT.replace("writer", "reader"), encoding="utf-8")
    assert agents_of(live) == ["reader"]


def test_a_file_that_comes_counts(tmp_path: Path) -> None:
    """A server that started without a file takes the first one that is written."""
    live = LiveSettings(tmp_path / "settings.toml", {}, {})
    assert agents_of(live) == []
    (tmp_path / "settings.toml").write_text(AGENT, encoding="utf-8")
    assert agents_of(live) == ["writer"]
    (tmp_path / "settings.toml").unlink()
    assert agents_of(live) == ["writer"]


def test_a_file_replaced_by_another_counts(path: Path) -> None:
    """Editors write a new file and move it over the old one; size and time may be the same."""
    live = LiveSettings(path, {}, {})
    new = path.with_suffix(".new")
    new.write_text(AGENT.replace("writer", "reader"), encoding="utf-8")
    status = path.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert new.stat().st_size == status.st_size
    new.replace(path)
    assert agents_of(live) == ["reader"]


def test_a_folder_in_the_place_of_the_file_changes_nothing(path: Path) -> None:
    """What cannot be read is a wrong change like any other."""
    live = LiveSettings(path, {}, {})
    path.unlink()
    path.mkdir()
    assert agents_of(live) == ["writer"]


@pytest.mark.parametrize("change", ["port = 1001", "host = 'localhost'"])
def test_a_new_address_waits_for_the_next_start(path: Path, change: str, caplog: pytest.LogCaptureFixture) -> None:
    """Host and port cannot change while the server listens; that is said, until the file agrees with it again."""
    live = LiveSettings(path, {}, {})
    path.write_text(f"[server]\n{change}\n", encoding="utf-8")
    live.current()
    assert caplog.text.count(MOVED) == 1
    assert live.address == ("127.0.0.1", 2345)
    path.write_text(AGENT, encoding="utf-8")
    live.current()
    assert caplog.text.count(MOVED) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("# nothing\n", encoding="utf-8"),
        lambda path: path.write_text("[server]\nhost = '127.0.0.1'\n", encoding="utf-8"),
        lambda path: path.unlink(),
    ],
    ids=["emptied", "back to loopback", "removed"],
)
def test_no_change_takes_the_token_from_an_open_server(
    tmp_path: Path, change: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """A server that other machines reach keeps its token until it is stopped, whatever host the file names now."""
    path = tmp_path / "settings.toml"
    path.write_text("[server]\nhost = '0.0.0.0'\ntoken = 'sesame'\n", encoding="utf-8")
    live = LiveSettings(path, {}, {})
    change(path)
    assert live.current().settings.server.token.reveal(tmp_path, {}) == "sesame"
    assert caplog.records[-1].levelno >= logging.WARNING


def test_an_open_server_takes_another_token(tmp_path: Path) -> None:
    """A token may be replaced while other machines are let in."""
    path = tmp_path / "settings.toml"
    path.write_text("[server]\nhost = '0.0.0.0'\ntoken = 'sesame'\n", encoding="utf-8")
    live = LiveSettings(path, {}, {})
    path.write_text("[server]\nhost = '0.0.0.0'\ntoken = 'open'\n", encoding="utf-8")
    assert live.current().settings.server.token.reveal(tmp_path, {}) == "open"


def test_a_changed_secret_file_makes_new_settings(tmp_path: Path) -> None:
    """Whoever keeps what was made from the settings sees by the new object that a secret may be another."""
    path, secret = tmp_path / "settings.toml", tmp_path / "token"
    secret.write_text("first", encoding="utf-8")
    path.write_text("[server]\ntoken = 'file:token'\n", encoding="utf-8")
    live = LiveSettings(path, {}, {})
    before = live.current()
    secret.write_text("the second", encoding="utf-8")
    assert live.current() is not before
    assert live.current() is live.current()


@pytest.mark.parametrize("content", [None, ""], ids=["removed", "emptied"])
def test_a_secret_file_that_breaks_keeps_the_last_good(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A secret file that goes or is empty for a moment is said and changes nothing; when it is back it counts."""
    path, secret = tmp_path / "settings.toml", tmp_path / "token"
    secret.write_text("first", encoding="utf-8")
    path.write_text("[server]\ntoken = 'file:token'\n", encoding="utf-8")
    live = LiveSettings(path, {}, {})
    before = live.current()
    secret.unlink() if content is None else secret.write_text(content, encoding="utf-8")
    assert live.current() is before
    assert "server.token = file:token is not accepted" in caplog.text
    secret.write_text("the second", encoding="utf-8")
    assert live.current() is not before


def test_a_change_that_looks_like_none(path: Path) -> None:
    """Whoever writes the file can have it read again, even where size, time and number are as before."""
    live = LiveSettings(path, {}, {})
    status = path.stat()
    path.write_text(AGENT.replace("writer", "reader"), encoding="utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert agents_of(live) == ["writer"]
    live.look_again()
    assert agents_of(live) == ["reader"]
    assert live.current() is live.current()


def test_what_would_be_is_not(path: Path) -> None:
    """Content can be tried out before it is written, under the variables and flags of the start."""
    live = LiveSettings(path, {"ELBOWROOM_MEMORY__ENABLED": "true"}, {("server", "port"): 7, ("server", "host"): None})
    before = live.current()
    tried = live.would_be({"server": {"port": 8}, "compaction": {"auto": False}}).settings
    assert (tried.server.port, tried.compaction.auto, tried.memory.enabled) == (7, False, True)
    assert live.current() is before
    assert live.locked == {
        ("memory", "enabled"): "environment variable ELBOWROOM_MEMORY__ENABLED",
        ("server", "port"): "flag --port",
    }
    with pytest.raises(WrongSettings) as raised:
        live.would_be({"compaction": {"max_restarts": 11}})
    assert raised.value.fields == (
        ("compaction.max_restarts", "compaction.max_restarts = 11 is not accepted; it takes 10 or less."),
    )
