"""A wrong file: what is said names the file, the key, the value and what is accepted."""

from pathlib import Path

import pytest
from cases import cases
from settings_file import AGENT, OPENAI, load, refusal

from elbowroom.errors import SettingsError
from elbowroom.settings.load import load_settings

PROVIDER = '[[providers]]\nid = "one"\nkind = "lmstudio"\n'
URL = "it takes an address such as http://127.0.0.1:1234, without user name, password, query or fragment."
ID = "it takes letters, digits, dots, dashes and underscores, beginning with a letter or digit."
SECRET = "it takes env:NAME, file:PATH, or the secret itself as a text that is not empty."
NO_PROVIDER = "it takes an id of [[providers]], of which there is none (agent 'writer')."
CHOICES = "it takes 'auto', 'pass', 'slim', 'search' or 'drop'."
NOTICES = "it takes 'auto', 'event', 'content', 'comment' or 'off'."
PRUNER = "it takes 'same' or the id of an enabled agent, which are:"
LIST = 'it takes a list such as ["one", "two"].'


@cases(("text", "said"), [
        ('[server]\nport = "x"', "FILE: server.port = 'x' is not accepted; it takes a whole number."),
        ("[server]\nport = 2345.5", "FILE: server.port = 2345.5 is not accepted; it takes a whole number."),
        ("[server]\nport = true", "FILE: server.port = true is not accepted; it takes a number, not true or false."),
        ("[server]\nport = -1", "FILE: server.port = -1 is not accepted; it takes 0 or more."),
        ("[server]\nport = 65536", "FILE: server.port = 65536 is not accepted; it takes 65535 or less."),
        ("[server]\nport = inf", "FILE: server.port = inf is not accepted; it takes a finite number."),
        ("[server]\nport = []", "FILE: server.port = [] is not accepted; it takes a whole number."),
        ("[server]\nhost = 5", "FILE: server.host = 5 is not accepted; it takes a text in quotes."),
        ('[server]\nhost = ""', "FILE: server.host = '' is not accepted; it takes a text that is not empty."),
        ("[server]\nallowed_hosts = 5", f"FILE: server.allowed_hosts = 5 is not accepted; {LIST}"),
        (
            '[server]\nallowed_hosts = ["a", 5]',
            "FILE: server.allowed_hosts[1] = 5 is not accepted; it takes a text in quotes.",
        ),
        ("server = 5", "FILE: server = 5 is not accepted; it takes a table headed [server]."),
        ("[[server]]\nport = 1", "FILE: server = a list of tables is not accepted; it takes a table headed [server]."),
        ('[agents]\nid = "a"', "FILE: agents = a table is not accepted; it takes tables headed [[agents]]."),
        ('agents = ["a"]', "FILE: agents[0] = 'a' is not accepted; it takes tables headed [[agents]]."),
        (
            '[[agents]]\nid = "a"\nmodel = "m"\ntool_timeout = 0',
            "FILE: agents[0].tool_timeout = 0 is not accepted; it takes more than 0.",
        ),
        ('[[agents]]\nid = "a"', "FILE: agents[0].model is missing."),
        ('[[agents]]\nmodel = "a"', "FILE: agents[0].id is missing."),
        ('[[agents]]\nid = "a b"\nmodel = "m"', f"FILE: agents[0].id = 'a b' is not accepted; {ID}"),
        ('[[agents]]\nid = "a/b"\nmodel = "m"', f"FILE: agents[0].id = 'a/b' is not accepted; {ID}"),
        ('[[agents]]\nid = ""\nmodel = "m"', f"FILE: agents[0].id = '' is not accepted; {ID}"),
        (AGENT + "enabled = 5", "FILE: agents[0].enabled = 5 is not accepted; it takes true or false."),
        (AGENT + "max_turns = 0", "FILE: agents[0].max_turns = 0 is not accepted; it takes 1 or more."),
        (AGENT + "tools = 5", f"FILE: agents[0].tools = 5 is not accepted; {LIST}"),
        (AGENT + "sampling = 5", "FILE: agents[0].sampling = 5 is not accepted; it takes a table."),
        (AGENT + "sampling = { temperature = -1 }",
         "FILE: agents[0].sampling.temperature = -1 is not accepted; it takes 0 or more."),
        (AGENT + "sampling = { temperature = inf }",
         "FILE: agents[0].sampling.temperature = inf is not accepted; it takes a finite number."),
        (AGENT + "sampling = { temperature = true }",
         "FILE: agents[0].sampling.temperature = true is not accepted; it takes a number, not true or false."),
        (AGENT + "sampling = { top_p = 1.5 }",
         "FILE: agents[0].sampling.top_p = 1.5 is not accepted; it takes 1 or less."),
        (AGENT + "sampling = { stop = 5 }",
         f"FILE: agents[0].sampling.stop = 5 is not accepted; {LIST.replace('takes', 'takes a text in quotes or')}"),
        (AGENT + 'sampling = { model = "x", messages = [] }',
         "FILE: agents[0].sampling: messages, model cannot be set here: each request brings its own."),
        (AGENT + 'client_tools = "keep"',
         f"FILE: agents[0].client_tools = 'keep' is not accepted; {CHOICES}"),
        ('[server]\nclient_tools = 5', f"FILE: server.client_tools = 5 is not accepted; {CHOICES}"),
        ("compaction = 5", "FILE: compaction = 5 is not accepted; it takes a table headed [compaction]."),
        ("[compaction]\nauto = 5", "FILE: compaction.auto = 5 is not accepted; it takes true or false."),
        ("[compaction]\nthreshold_ratio = 0.5",
         "FILE: compaction.threshold_ratio = 0.5 is not accepted; it takes 0.6 or more."),
        ("[compaction]\nthreshold_ratio = 0.9",
         "FILE: compaction.threshold_ratio = 0.9 is not accepted; it takes 0.88 or less."),
        ("[compaction]\nthreshold_ratio = true",
         "FILE: compaction.threshold_ratio = true is not accepted; it takes a number, not true or false."),
        ("[compaction]\nmax_restarts = 11", "FILE: compaction.max_restarts = 11 is not accepted; it takes 10 or less."),
        ("[compaction]\nretain_last_turns = -1",
         "FILE: compaction.retain_last_turns = -1 is not accepted; it takes 0 or more."),
        ("[compaction]\nsummary_prompt = 5",
         "FILE: compaction.summary_prompt = 5 is not accepted; it takes a text in quotes."),
        ("[compaction]\nretain_directives = 5",
         f"FILE: compaction.retain_directives = 5 is not accepted; {LIST}"),
        ("[compaction]\nnotices = false",
         f"FILE: compaction.notices = false is not accepted; {NOTICES}"),
        ('[compaction]\npruning_agent = ""',
         "FILE: compaction.pruning_agent = '' is not accepted; it takes a text that is not empty."),
        ('[compaction]\npruning_agent = "far"',
         f"FILE: compaction.pruning_agent = 'far' is not accepted; {PRUNER} none."),
        (AGENT + AGENT.replace("writer", "b") + '[compaction]\npruning_agent = "far"',
         f"FILE: compaction.pruning_agent = 'far' is not accepted; {PRUNER} 'writer', 'b'."),
        (AGENT + "enabled = false\n" + '[compaction]\npruning_agent = "writer"',
         f"FILE: compaction.pruning_agent = 'writer' is not accepted; {PRUNER} none (agent 'writer' is not enabled)."),
        (PROVIDER.replace("lmstudio", "vllm"),
         "FILE: providers[0].kind = 'vllm' is not accepted; it takes 'lmstudio', 'ollama' or 'openai'."),
        ('[[providers]]\nid = "one"', "FILE: providers[0].kind is missing."),
        (PROVIDER.replace("lmstudio", "openai"),
         "FILE: providers[0]: a provider of kind 'openai' needs base_url, for example http://127.0.0.1:8080/v1."),
        (PROVIDER + 'manage_context = "perhaps"',
         "FILE: providers[0].manage_context = 'perhaps' is not accepted; it takes true or false."),
        (PROVIDER + 'base_urls = ["http://a:1", "far"]',
         f"FILE: providers[0].base_urls[1] = 'far' is not accepted; {URL}"),
        (PROVIDER + 'base_url = "http://a:1"\nbase_urls = ["http://b:1", "http://c:1"]',
         "FILE: providers[0]: a provider has either base_url or base_urls: put all its addresses into base_urls."),
        (PROVIDER + 'base_urls = ["http://a:1", "http://a:1/"]',
         "FILE: providers[0]: base_urls names an address twice: each machine counts once."),
        (PROVIDER + 'base_urls = ["http://localhost:1", "http://127.0.0.1:1/v1"]',
         "FILE: providers[0]: base_urls names an address twice: each machine counts once."),
        (PROVIDER + 'base_urls = ["http://a:1", "HTTP://A:1"]',
         "FILE: providers[0]: base_urls names an address twice: each machine counts once."),
        (PROVIDER + PROVIDER.replace("one", "two") + 'machine_of = "one"',
         ("FILE: providers[1].machine_of = 'one' is not accepted: 'one' has the same address, and a machine counts "
          "once.")),
        (PROVIDER + "".join(PROVIDER.replace("one", name) + 'base_url = "http://b:1"\nmachine_of = "one"\n'
                            for name in ("two", "three")),
         ("FILE: providers[2].machine_of = 'one' is not accepted: 'two' has the same address, and a machine counts "
          "once.")),
        (PROVIDER + 'machine_of = "far"',
         ("FILE: providers[0].machine_of = 'far' is not accepted; it takes an id of [[providers]], of which there is "
          "no other (provider 'one').")),
        (PROVIDER + PROVIDER.replace("one", "two") + 'machine_of = "two"',
         "FILE: providers[1].machine_of = 'two' is not accepted; it takes 'one' (provider 'two')."),
        (PROVIDER + PROVIDER.replace("one", "two") + 'machine_of = "one"\nmanage_context = false',
         ("FILE: providers[1].machine_of = 'one' is not accepted while both have another manage_context: set it the "
         "same for 'one' and 'two'.")),
        (PROVIDER + PROVIDER.replace("one", "two") + 'base_url = "http://b:1"\nmachine_of = "one"\n'
         + AGENT + 'provider = "two"',
         "FILE: agents[0].provider = 'two' is not accepted; it takes 'one' (agent 'writer')."),
        (PROVIDER + AGENT,
         "FILE: agents[0].provider is 'lmstudio' where it is not set; it takes 'one' (agent 'writer')."),
        (PROVIDER + "api_key = 5",
         f"FILE: providers[0].api_key = ******** is not accepted; {SECRET}"),
        (AGENT + AGENT, "FILE: agents[1].id = 'writer' is not accepted; agents[0] has the same id."),
        (AGENT + 'name = "A"\n' + AGENT.replace('writer"', 'other"\nname = "a"'),
         "FILE: agents[1].name = 'a' is not accepted; agents[0] has the same name."),
        (PROVIDER + PROVIDER, "FILE: providers[1].id = 'one' is not accepted; providers[0] has the same id."),
        (AGENT + 'provider = "far"',
         "FILE: agents[0].provider = 'far' is not accepted; it takes 'lmstudio' (agent 'writer')."),
        ("providers = []\n" + AGENT,
         f"FILE: agents[0].provider is 'lmstudio' where it is not set; {NO_PROVIDER}"),
    ])  # fmt: skip
def test_a_wrong_value_is_named_with_what_is_accepted(tmp_path: Path, text: str, said: str) -> None:
    """File, key, value, what the key takes: one line, and no word of the validation library's own."""
    assert refusal(tmp_path, text) == said


@cases(
    "url",
    [
        "127.0.0.1:1234",
        "ftp://127.0.0.1",
        "http://",
        "http://h:abc",
        "http://h:99999",
        "http://h:0",
        "http://192.168.1..5:1234",
        "http://[::1",
        "http://a b",
        " http://h",
        "http://h?x",
        "http://h#x",
    ],
)
def test_an_address_that_leads_nowhere_is_refused(tmp_path: Path, url: str) -> None:
    """What could never be connected to is found when the file is read, not at the first request."""
    said = refusal(tmp_path, PROVIDER + f'base_url = "{url}"')
    assert said.startswith("FILE: providers[0].base_url = 'h" if url.startswith("http:") else "FILE: providers[0]")
    assert said.endswith(f"is not accepted; {URL}")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1234", "https://h", "http://[::1]:1234", "http://münchen:1/v1/"])
def test_an_address_is_kept_without_its_last_slash(tmp_path: Path, url: str) -> None:
    """Addresses with name, IPv4, IPv6 and path are accepted."""
    assert load(tmp_path, PROVIDER + f'base_url = "{url}"').settings.providers[0].base_url == url.rstrip("/")


def test_every_wrong_key_is_said_at_once(tmp_path: Path) -> None:
    """Several mistakes are one message with a line for each: nobody has to mend one to hear of the next."""
    said = refusal(tmp_path, '[server]\nport = "x"\nhost = 5\n' + AGENT + "max_turns = 0")
    assert [line.split(" is not")[0] for line in said.splitlines()] == [
        "FILE: server.host = 5",
        "FILE: server.port = 'x'",
        "FILE: agents[0].max_turns = 0",
    ]


def test_a_wrong_variable_or_flag_is_named_as_such(tmp_path: Path) -> None:
    """The source that is named is the one that has to be changed."""
    from_variable = refusal(tmp_path, "[server]\nport = 1\n", {"ELBOWROOM_SERVER__PORT": ""})
    assert from_variable == (
        "environment variable ELBOWROOM_SERVER__PORT: server.port = '' is not accepted; it takes a whole number."
    )
    from_flag = refusal(tmp_path, "[server]\nport = 1\n", {}, {("server", "port"): 70000})
    assert from_flag == "flag --port: server.port = 70000 is not accepted; it takes 65535 or less."


def test_a_pruning_agent_from_a_variable_is_named_as_such(tmp_path: Path) -> None:
    """What does not fit the rest of the file is laid to the source that set it."""
    said = refusal(tmp_path, AGENT, {"ELBOWROOM_COMPACTION__PRUNING_AGENT": "far"})
    assert said == (
        "environment variable ELBOWROOM_COMPACTION__PRUNING_AGENT: compaction.pruning_agent = 'far' is not accepted; "
        f"{PRUNER} 'writer'."
    )


def test_a_variable_does_not_hide_a_wrong_table(tmp_path: Path) -> None:
    """Where the file has something else in the place of [server], that is said, variable or not."""
    said = refusal(tmp_path, "server = 5", {"ELBOWROOM_SERVER__PORT": "1"})
    assert said == "FILE: server = 5 is not accepted; it takes a table headed [server]."


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    """A value of any length leaves the message readable."""
    said = refusal(tmp_path, AGENT + f'enabled = "{"x" * 5000}"')
    assert len(said) < 250
    assert said.endswith("... is not accepted; it takes true or false.")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[server]\nport = \n", "line 2"),
        ("[server\n", "line 1"),
        ("a = 1\na = 2\n", "line 2"),
        ('[server]\n\nhost = "127.0.0.1\n', "line 3"),
        ("[server]\nhost = C:\\x\n", "line 2"),
    ],
)
def test_broken_syntax_is_said_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    """A file that is not TOML is named with the line that breaks it."""
    said = refusal(tmp_path, text)
    assert said.startswith("The settings file FILE is not valid TOML: ")
    assert line in said


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000], ids=["brackets", "digits"])
def test_a_file_made_to_break_the_parser_is_refused_like_any_other(tmp_path: Path, text: str) -> None:
    """Nesting without end and endless numbers are errors in the file, not in elbowroom."""
    assert refusal(tmp_path, text).startswith("The settings file FILE is not valid TOML: ")


def test_a_file_that_is_not_utf8_is_said(tmp_path: Path) -> None:
    """A file in another encoding is refused with the place of the first wrong byte."""
    (tmp_path / "settings.toml").write_bytes("# Grüße".encode("latin-1"))
    assert refusal(tmp_path) == "The settings file FILE is not UTF-8 text (byte 4)."


def test_a_folder_in_the_place_of_the_file_is_said(tmp_path: Path) -> None:
    """A folder is not a settings file, and not a missing one either."""
    (tmp_path / "settings.toml").mkdir()
    assert refusal(tmp_path).startswith("The settings file FILE cannot be read: ")


def test_an_unreadable_file_is_not_a_missing_one(tmp_path: Path) -> None:
    """A file that is there but cannot be opened is an error: the defaults would be somebody else's settings."""
    (tmp_path / "settings.toml").symlink_to(tmp_path / "settings.toml")
    assert refusal(tmp_path).startswith("The settings file FILE cannot be read: ")


def test_a_file_below_a_file_is_said(tmp_path: Path) -> None:
    """A path that leads through a file is an error, not a missing file."""
    (tmp_path / "settings").write_text("", encoding="utf-8")
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path / "settings" / "settings.toml", {}, {})


def test_openai_is_accepted_with_its_address(tmp_path: Path) -> None:
    """What the message for a missing base_url asks for is accepted."""
    assert load(tmp_path, OPENAI + AGENT).settings.agents[0].provider == "lmstudio"
