"""A wrong value keeps the server from nothing: the wrong part is left out, unless that would let more in."""

from pathlib import Path

import pytest

from elbowroom.errors import WrongSettings
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.load import load_settings, usable_settings

WRITER = '[[agents]]\nid = "writer"\nmodel = "qwen"\n'
STUDIO = '[[providers]]\nid = "lmstudio"\nkind = "lmstudio"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the settings file is."""
    return tmp_path / "settings.toml"


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("[compaction]\nthreshold_ratio = 2\nmax_restarts = 1\n", ["compaction.threshold_ratio"]),
        (f"{WRITER}max_turns = 'many'\n", ["agents[0].max_turns"]),
        (f"{WRITER}[agents.sampling]\ntemperature = 'hot'\n", ["agents[0].sampling.temperature"]),
        ("[server]\nport = 'high'\n[compaction]\nnotices = 'loud'\n", ["server.port", "compaction.notices"]),
        ("compaction = 3\n", ["compaction"]),
    ],
)
def test_a_wrong_value_has_its_default(path: Path, written: str, wrong: list[str]) -> None:
    """All else counts as it is written, and what is left out is told with its place and its reason."""
    path.write_text(written, encoding="utf-8")
    loaded = usable_settings(path, {}, {})
    assert [name for name, _ in loaded.left_out] == wrong
    for name, _ in loaded.left_out:
        assert any(name in warning and "left out" in warning for warning in loaded.warnings)
    defaults = load_settings(path.with_name("none.toml"), {}, {}).settings
    assert loaded.settings.compaction.threshold_ratio == defaults.compaction.threshold_ratio
    assert loaded.settings.server.port == defaults.server.port
    assert [agent.id for agent in loaded.settings.agents] == (["writer"] if "agents" in written else [])
    if "max_restarts" in written:
        assert loaded.settings.compaction.max_restarts == 1
    with pytest.raises(WrongSettings):
        load_settings(path, {}, {})


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ('[vault]\npath = "."\nexclude = 5\n', "vault"),
        (f"{WRITER}[agents.vault]\nexclude = 5\n", "agents"),
        (f"{WRITER}enabled = 'maybe'\n", "agents"),
        ('[[agents]]\nid = "writer"\n', "agents"),
        (f"{STUDIO}base_url = 'nowhere'\n", "providers"),
        ('[[mcp_servers]]\nname = "files"\ncommand = ["x"]\nenabled = "maybe"\n', "mcp_servers"),
    ],
)
def test_what_a_wrong_value_was_to_keep_out_stays_out(path: Path, written: str, what: str) -> None:
    """Where the default would let more in than was written, the table goes with its wrong value."""
    path.write_text(written, encoding="utf-8")
    settings = usable_settings(path, {}, {}).settings
    assert not settings.vault.path
    if what != "vault":
        assert not getattr(settings, what)


def test_nothing_is_written_down_where_the_store_is_set_wrong(path: Path) -> None:
    """A conversation is kept only as somebody has chosen."""
    path.write_text("[store]\nconversations = 'never'\nmax_gb = 1\n", encoding="utf-8")
    assert not usable_settings(path, {}, {}).settings.store.conversations


@pytest.mark.parametrize(
    ("written", "environ"),
    [
        ("[server]\ntoken = 5\n", {}),
        ("[server]\nhost = '0.0.0.0'\n", {}),
        ("[compaction\n", {}),
        ("", {"ELBOWROOM_SERVER__PORT": "high"}),
    ],
)
def test_some_mistakes_are_refused(path: Path, written: str, environ: dict[str, str]) -> None:
    """Without its token it would be open, no part of what is not TOML is known, and a variable is no part of a file."""
    path.write_text(written, encoding="utf-8")
    with pytest.raises(Exception, match=r"server|TOML|token"):
        usable_settings(path, environ, {})


def test_a_running_server_tells_what_is_left_out_until_it_is_right(path: Path) -> None:
    """Another value can be corrected while one is wrong; a new mistake leaves all as it is."""
    path.write_text("[compaction]\nthreshold_ratio = 2\nmax_restarts = 1\n", encoding="utf-8")
    live = LiveSettings(path, {}, {})
    assert [name for name, _ in live.wrong] == ["compaction.threshold_ratio"]
    path.write_text("[compaction]\nthreshold_ratio = 2\nmax_restarts = 2\n", encoding="utf-8")
    assert live.current().settings.compaction.max_restarts == 2
    path.write_text("[compaction]\nthreshold_ratio = 2\nmax_restarts = 'x'\n", encoding="utf-8")
    assert live.current().settings.compaction.max_restarts == 2
    assert [name for name, _ in live.wrong] == ["compaction.threshold_ratio", "compaction.max_restarts"]
    path.write_text("[compaction]\nthreshold_ratio = 0.7\n", encoding="utf-8")
    assert live.current().settings.compaction.threshold_ratio == 0.7
    assert live.wrong == ()


def test_one_of_several_wrong_values_can_be_corrected(path: Path) -> None:
    """A change is taken that makes no value wrong which was right; and one that does is refused."""
    path.write_text("[compaction]\nthreshold_ratio = 2\nnotices = 'loud'\n", encoding="utf-8")
    live = LiveSettings(path, {}, {})
    before = {"compaction": {"threshold_ratio": 2, "notices": "loud"}}
    changed = {"compaction": {"threshold_ratio": 0.7, "notices": "loud"}}
    assert live.would_be(changed).settings.compaction.threshold_ratio == 0.7
    with pytest.raises(WrongSettings):
        live.would_be({**before, "server": {"port": -1}})
