"""Keys and variables that this version does not know are said, with the nearest known name, and stop nothing."""

from pathlib import Path

import pytest
from cases import cases
from settings_file import AGENT, load


def warnings(folder: Path, text: str = "", environ: dict[str, str] | None = None) -> list[str]:
    """Return the warnings, with `FILE` for the path of the file."""
    return [line.replace(str(folder / "settings.toml"), "FILE") for line in load(folder, text, environ).warnings]


@cases(
    ("text", "key", "meant"),
    [
        ("[server]\nprot = 1", "server.prot", "port"),
        ("[server]\nallowedHosts = []", "server.allowedHosts", "allowed_hosts"),
        ("[server]\nPORT = 1", "server.PORT", "port"),
        ('[[providers]]\nid = "a"\nkind = "lmstudio"\nbase-url = "http://h"', "providers[0].base-url", "base_url"),
        ('[[providers]]\nid = "a"\nkind = "ollama"\napikey = "x"', "providers[0].apikey", "api_key"),
        (AGENT + AGENT.replace("writer", "b") + "modle = 1", "agents[1].modle", "model"),
        (AGENT + "instruction = 'x'", "agents[0].instruction", "instructions"),
        (AGENT + "mcp_servers = ['files']", "agents[0].mcp_servers", "mcp"),
        (AGENT + "client_tool = 'drop'", "agents[0].client_tool", "client_tools"),
        ("[compaction]\nprunning_agent = 'a'", "compaction.prunning_agent", "pruning_agent"),
        ("[compaction]\nnotice = 'off'", "compaction.notice", "notices"),
        ("[compactoin]\nauto = true", "compactoin", "compaction"),
        ("threshold_ratio = 0.7", "threshold_ratio", "compaction.threshold_ratio"),
        ('[[agent]]\nid = "a"', "agent", "agents"),
        ("[provider]\nx = 1", "provider", "providers"),
        ("port = 1", "port", "server.port"),
        ("prot = 1", "prot", "server.port"),
    ],
)
def test_a_misspelt_key_is_said_with_the_nearest(tmp_path: Path, text: str, key: str, meant: str) -> None:
    """The warning names file, key and what was probably meant; the rest of the file counts."""
    assert warnings(tmp_path, text) == [
        f"FILE: {key} is not a setting of this version (did you mean {meant}?); it is ignored."
    ]


@pytest.mark.parametrize("text", ["[weather]\nx = 1", "[server]\nweather = 1", AGENT + "weather = 1"])
def test_a_key_like_no_other_is_said_without_a_guess(tmp_path: Path, text: str) -> None:
    """Where nothing is near, nothing is suggested."""
    (said,) = warnings(tmp_path, text)
    assert said.endswith("weather is not a setting of this version; it is ignored.")


def test_sampling_takes_everything_but_says_what_looks_misspelt(tmp_path: Path) -> None:
    """A sampling parameter of another name is passed on; one that is nearly a known name is mentioned."""
    text = AGENT + "sampling = { temprature = 1, mirostat = 2, top_k = 40 }"
    assert warnings(tmp_path, text) == [
        "FILE: agents[0].sampling.temprature is passed on as it stands (did you mean temperature?)."
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ELBOWROOM_SERVER__PROT", " (did you mean ELBOWROOM_SERVER__PORT?)"),
        ("ELBOWROOM_SERVER_PORT", " (did you mean ELBOWROOM_SERVER__PORT?)"),
        ("ELBOWROOM_COMPACTION__NOTICE", " (did you mean ELBOWROOM_COMPACTION__NOTICES?)"),
        ("ELBOWROOM_SERVER_ALLOWED_HOSTS", " (did you mean ELBOWROOM_SERVER__ALLOWED_HOSTS?)"),
        ("ELBOWROOM_AGENTS__0__MODEL", ""),
    ],
)
def test_a_misspelt_variable_is_said(tmp_path: Path, name: str, meant: str) -> None:
    """A variable that looks like a key's and is none is mentioned, never its value."""
    assert warnings(tmp_path, "", {name: "sesame"}) == [
        f"The environment variable {name} is not known{meant}; it is ignored."
    ]


@cases(
    "name", ["ELBOWROOM_TOKEN", "ELBOWROOM_CONFIG", "ELBOWROOM_DATA_DIR", "ELBOWROOM_KEY_OF_MINE", "SERVER__PORT", "X"]
)
def test_other_variables_are_left_alone(tmp_path: Path, name: str) -> None:
    """elbowroom's other variables, and names that people chose for secrets, are not complained about."""
    assert warnings(tmp_path, "", {name: "x"}) == []


def test_a_variable_in_small_letters_counts(tmp_path: Path) -> None:
    """Windows does not tell capital from small letters in names of variables; neither do we."""
    loaded = load(tmp_path, "", {"elbowroom_server__port": "1002"})
    assert loaded.settings.server.port == 1002
    assert loaded.sources["server", "port"] == "environment variable elbowroom_server__port"
