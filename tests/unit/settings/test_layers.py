"""Flag over environment over file over default, each value with its source."""

from pathlib import Path

import pytest
from cases import cases
from settings_file import AGENT, load

from elbowroom.errors import SettingsError
from elbowroom.settings.fields import settings_path
from elbowroom.settings.load import load_settings
from elbowroom.settings.model import Settings

PORT = ("server", "port")
FILE = "[server]\nport = 1001\n"
VARIABLE = {"ELBOWROOM_SERVER__PORT": "1002"}
FLAG = {PORT: 1003}


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    """No file, no variable: LM Studio at 127.0.0.1:1234 behind elbowroom at 127.0.0.1:2345, and nothing to warn of."""
    loaded = load(tmp_path)
    assert loaded.settings == Settings()
    assert (loaded.settings.server.host, loaded.settings.server.port) == ("127.0.0.1", 2345)
    provider = loaded.settings.providers[0]
    assert (provider.id, provider.kind, provider.base_url) == ("lmstudio", "lmstudio", "http://127.0.0.1:1234")
    assert (loaded.sources, loaded.warnings) == ({}, ())


@cases(
    ("text", "environ", "flags", "port", "source"),
    [
        ("", {}, {}, 2345, None),
        (FILE, {}, {}, 1001, "{file}"),
        ("", VARIABLE, {}, 1002, "environment variable ELBOWROOM_SERVER__PORT"),
        ("", {}, FLAG, 1003, "flag --port"),
        (FILE, VARIABLE, {}, 1002, "environment variable ELBOWROOM_SERVER__PORT"),
        (FILE, {}, FLAG, 1003, "flag --port"),
        ("", VARIABLE, FLAG, 1003, "flag --port"),
        (FILE, VARIABLE, FLAG, 1003, "flag --port"),
        (FILE, {}, {PORT: None}, 1001, "{file}"),
    ],
)
def test_precedence_of_each_pair(
    tmp_path: Path,
    text: str,
    environ: dict[str, str],
    flags: dict[tuple[str, str], int | None],
    port: int,
    source: str | None,
) -> None:
    """The higher layer wins, and the source names the layer that won."""
    loaded = load(tmp_path, text, environ, flags)
    assert loaded.settings.server.port == port
    expected = source.format(file=tmp_path / "settings.toml") if source else None
    assert loaded.sources.get(PORT) == expected


def test_a_higher_layer_saves_a_wrong_value_below(tmp_path: Path) -> None:
    """What a flag replaces is not looked at: a person can start with a flag while the file is wrong there."""
    assert load(tmp_path, '[server]\nport = "x"\n', {}, FLAG).settings.server.port == 1003


def test_layers_are_merged_key_by_key(tmp_path: Path) -> None:
    """A variable for one key leaves the others of its table as the file has them."""
    loaded = load(tmp_path, '[server]\nport = 1001\nhost = "localhost"\n', VARIABLE)
    assert (loaded.settings.server.host, loaded.settings.server.port) == ("localhost", 1002)
    assert loaded.sources["server", "host"] == str(tmp_path / "settings.toml")


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("nas", ("nas",)),
        ("nas, nas.local:2345", ("nas", "nas.local:2345")),
        ("", ()),
        (" , ", ()),
        ("a,,b", ("a", "b")),
    ],
)
def test_lists_from_the_environment_are_split_at_commas(tmp_path: Path, written: str, names: tuple[str, ...]) -> None:
    """A list in a variable is its parts between commas, without blanks and empty ones."""
    settings = load(tmp_path, "", {"ELBOWROOM_SERVER__ALLOWED_HOSTS": written}).settings
    assert settings.server.allowed_hosts == names


def test_a_list_in_the_file_may_be_a_list_or_a_text(tmp_path: Path) -> None:
    """`["a", "b"]` and `"a, b"` are the same list of names."""
    vault = "[vault]\npath = '/notes'\n"
    as_list = load(tmp_path, vault + AGENT + 'tools = ["vault.read", "vault.list"]\n').settings
    as_text = load(tmp_path, vault + AGENT + 'tools = "vault.read, vault.list"\n').settings
    assert as_list == as_text
    assert as_text.agents[0].tools == ("vault.read", "vault.list")


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    """A file that Windows' Notepad saved with a byte order mark is read as if it had none."""
    (tmp_path / "settings.toml").write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    assert load(tmp_path).settings.server.port == 1001


def test_windows_line_ends_are_line_ends(tmp_path: Path) -> None:
    """A file with CRLF reads like one with LF."""
    (tmp_path / "settings.toml").write_bytes(FILE.replace("\n", "\r\n").encode())
    assert load(tmp_path).settings.server.port == 1001


def test_an_empty_file_is_no_file(tmp_path: Path) -> None:
    """An empty file, or one with comments only, leaves the defaults."""
    assert load(tmp_path, "# nothing yet\n").settings == Settings()


def test_a_file_that_was_named_has_to_exist(tmp_path: Path) -> None:
    """A missing file is an error, with its path, where the person named it."""
    with pytest.raises(SettingsError, match="There is no settings file at"):
        load_settings(tmp_path / "settings.toml", {}, {}, must_exist=True)


def test_the_file_is_where_the_variable_says(tmp_path: Path) -> None:
    """ELBOWROOM_CONFIG names the file; an empty one counts as not set, a `~` as the home folder."""
    assert settings_path({"ELBOWROOM_CONFIG": str(tmp_path / "mine.toml")}) == tmp_path / "mine.toml"
    assert settings_path({"ELBOWROOM_CONFIG": ""}).name == "settings.toml"
    assert settings_path({"ELBOWROOM_CONFIG": "~/mine.toml"}) == Path.home() / "mine.toml"


def test_an_unknown_home_folder_is_said() -> None:
    """A path of a user whom this machine does not know is an error in words."""
    with pytest.raises(SettingsError, match=r"~nobody-of-that-name/s\.toml begins with a home folder"):
        settings_path({"ELBOWROOM_CONFIG": "~nobody-of-that-name/s.toml"})


def test_the_default_file_is_elbowrooms_own() -> None:
    """Without the variable the file is `elbowroom/settings.toml` in a folder of the platform's choice."""
    path = settings_path({})
    assert path.parts[-2:] == ("elbowroom", "settings.toml")
    assert path.is_absolute()


def test_an_agent_has_all_its_parts(tmp_path: Path) -> None:
    """Id, name, enabled, instructions, provider, model, tools, turns and sampling arrive as they are written."""
    text = """
[vault]
path = "~/Notes"

[[providers]]
id = "far"
kind = "openai"
base_url = "http://10.0.0.5:8080/v1/"
manage_context = true

[[agents]]
id = "writer.2"
name = "Schreiber ✍"
enabled = false
instructions = '''
Two
lines'''
provider = "far"
model = "qwen/qwen3-8b"
tools = ["vault.read"]
max_turns = 3
sampling = { temperature = 0, top_p = 1, seed = 7, stop = ["###"], mirostat = 2, logit_bias = { 42 = -1.5 } }
"""
    settings = load(tmp_path, text).settings
    agent, provider = settings.agents[0], settings.providers[0]
    assert (agent.id, agent.display_name, agent.enabled) == ("writer.2", "Schreiber ✍", False)
    assert (agent.instructions, agent.provider, agent.model) == ("Two\nlines", "far", "qwen/qwen3-8b")
    assert (agent.tools, agent.max_turns) == (("vault.read",), 3)
    assert provider.base_url == "http://10.0.0.5:8080/v1"
    assert provider.manages_context


def test_sampling_goes_on_as_written_with_extras(tmp_path: Path) -> None:
    """Parameters that elbowroom does not know go to the model as they are; those not set are left out."""
    text = AGENT + "[agents.sampling]\ntemperature = 0\nstop = 'END'\nmirostat = 2\nlogit_bias = { 42 = -1.5 }\n"
    loaded = load(tmp_path, text)
    fields = loaded.settings.agents[0].sampling.as_request_fields()
    assert fields == {"temperature": 0, "stop": "END", "mirostat": 2, "logit_bias": {"42": -1.5}}
    assert loaded.warnings == ()


def test_an_agent_without_a_name_is_shown_by_its_id(tmp_path: Path) -> None:
    """The display name falls back to the id."""
    assert load(tmp_path, AGENT).settings.agents[0].display_name == "writer"


@pytest.mark.parametrize(
    ("kind", "address", "manages"),
    [("lmstudio", "http://127.0.0.1:1234", True), ("ollama", "http://127.0.0.1:11434", False)],
)
def test_defaults_of_a_provider_follow_its_kind(tmp_path: Path, kind: str, address: str, manages: bool) -> None:
    """The usual address of its kind, context management for LM Studio only, LM Studio's own key variable."""
    provider = load(tmp_path, f'[[providers]]\nid = "here"\nkind = "{kind}"\n').settings.providers[0]
    assert (provider.base_url, provider.manages_context) == (address, manages)
    assert str(provider.api_key) == ("env:LM_API_TOKEN" if kind == "lmstudio" else "None")


def test_settings_cannot_be_changed_by_accident(tmp_path: Path) -> None:
    """Loaded settings are frozen: what is in force is what was checked."""
    settings = load(tmp_path).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.server.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("host", ["[::1]", "::1", " ::1 "])
def test_an_ipv6_host_may_stand_in_brackets(tmp_path: Path, host: str) -> None:
    """`[::1]`, as it stands in addresses, is `::1`, which can be listened on."""
    assert load(tmp_path, f'[server]\nhost = "{host}"\n').settings.server.host == "::1"


def test_compaction_has_all_its_parts(tmp_path: Path) -> None:
    """Every key of [compaction] arrives as it is written, an enabled agent as the pruning agent among them."""
    text = (
        AGENT
        + """
[compaction]
enabled = false
auto = false
background = false
pruning_agent = "writer"
model = "qwen2.5-3b-instruct"
threshold_ratio = 0.88
max_restarts = 0
max_pruning_seconds = 30
summary_prompt = "Summarise."
summary_directives = ["Keep names, places, dates."]
retain_prompt = "Keep."
retain_directives = ["Keep paths.", "Keep numbers."]
retain_last_turns = 20
notices = "comment"
chat_command = false
"""
    )
    compaction = load(tmp_path, text).settings.compaction
    assert compaction.model_dump() == {
        "enabled": False,
        "auto": False,
        "background": False,
        "pruning_agent": "writer",
        "model": "qwen2.5-3b-instruct",
        "threshold_ratio": 0.88,
        "max_restarts": 0,
        "max_pruning_seconds": 30,
        "summary_prompt": "Summarise.",
        "summary_directives": ("Keep names, places, dates.",),
        "retain_prompt": "Keep.",
        "retain_directives": ("Keep paths.", "Keep numbers."),
        "retain_last_turns": 20,
        "notices": "comment",
        "chat_command": False,
    }


def test_variables_set_compaction_too(tmp_path: Path) -> None:
    """Switches, numbers and choices are read from text; directives are split at line ends, never at commas."""
    environ = {
        "ELBOWROOM_COMPACTION__AUTO": "false",
        "ELBOWROOM_COMPACTION__THRESHOLD_RATIO": "0.7",
        "ELBOWROOM_COMPACTION__SUMMARY_DIRECTIVES": "Keep names, places, dates.\n\n Keep paths. \n",
        "ELBOWROOM_SERVER__CLIENT_TOOLS": "drop",
    }
    loaded = load(tmp_path, "[compaction]\nauto = true\nretain_last_turns = 2\n", environ)
    compaction = loaded.settings.compaction
    assert (compaction.auto, compaction.threshold_ratio, compaction.retain_last_turns) == (False, 0.7, 2)
    assert compaction.summary_directives == ("Keep names, places, dates.", "Keep paths.")
    assert loaded.settings.server.client_tools == "drop"
    assert loaded.sources["compaction", "auto"] == "environment variable ELBOWROOM_COMPACTION__AUTO"
    assert loaded.warnings == ()
