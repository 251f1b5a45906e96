"""`elbowroom config path|show|check`, as the real program."""

from pathlib import Path

import pytest
from command_line import run
from settings_file import AGENT

from elbowroom import __version__

SESAME = "sesame-open-7391"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a settings file with one agent."""
    path = tmp_path / "mine.toml"
    path.write_text(AGENT, encoding="utf-8")
    return path


@pytest.mark.slow
def test_path_is_below_an_empty_home(tmp_path: Path) -> None:
    """Without any variable the path is in the home folder, and nothing is made there."""
    answer = run(tmp_path, "config", "path")
    assert (answer.returncode, answer.stderr) == (0, "")
    path = Path(answer.stdout.strip())
    assert path.is_relative_to(tmp_path)
    assert path.parts[-2:] == ("elbowroom", "settings.toml")
    assert list(tmp_path.iterdir()) == []


def test_path_follows_variable_and_flag(tmp_path: Path) -> None:
    """The flag wins over the variable, as everywhere."""
    from_variable = run(tmp_path, "config", "path", ELBOWROOM_CONFIG="/a/one.toml")
    from_flag = run(tmp_path, "config", "path", "--config", "/a/two.toml", ELBOWROOM_CONFIG="/a/one.toml")
    assert (Path(from_variable.stdout.strip()), Path(from_flag.stdout.strip())) == (
        Path("/a/one.toml"),
        Path("/a/two.toml"),
    )


def test_show_all_has_the_defaults(tmp_path: Path) -> None:
    """With `--all` every value is there, also with `(default)`, and the exit code is 0."""
    answer = run(tmp_path, "config", "show", "--all")
    assert answer.returncode == 0
    assert "server.port = 2345   (default)" in answer.stdout.splitlines()
    assert "providers[0].base_url = 'http://127.0.0.1:1234'   (default)" in answer.stdout.splitlines()


def test_show_has_only_what_was_set(tmp_path: Path, file: Path) -> None:
    """Without `--all` no default is listed, and where nothing is set that is said."""
    answer = run(tmp_path, "config", "show", "--config", str(file), ELBOWROOM_SERVER__PORT="1002")
    assert answer.stdout.splitlines() == [
        "server.port = 1002   (environment variable ELBOWROOM_SERVER__PORT)",
        f"agents[0].id = 'writer'   ({file})",
        f"agents[0].model = 'qwen2.5-7b-instruct'   ({file})",
    ]
    nothing = run(tmp_path, "config", "show").stdout
    assert nothing == "Nothing is set; `elbowroom config show --all` lists the defaults.\n"


def test_show_names_sources_and_hides_secrets(tmp_path: Path, file: Path) -> None:
    """File, variable and default are named; of secrets only the reference and whether it is set."""
    file.write_text(f'{AGENT}[[providers]]\nid = "lmstudio"\nkind = "lmstudio"\napi_key = "{SESAME}"\n', "utf-8")
    variables = {"ELBOWROOM_SERVER__PORT": "1002", "ELBOWROOM_TOKEN": SESAME}
    answer = run(tmp_path, "config", "show", "--config", str(file), **variables)
    lines = answer.stdout.splitlines()
    assert answer.returncode == 0
    assert "server.port = 1002   (environment variable ELBOWROOM_SERVER__PORT)" in lines
    assert f"agents[0].model = 'qwen2.5-7b-instruct'   ({file})" in lines
    assert "server.token = env:ELBOWROOM_TOKEN, set   (default)" in lines
    assert f"providers[0].api_key = ********   ({file})" in lines
    assert "providers[0].api_key holds the secret itself" in answer.stderr
    assert SESAME not in answer.stdout + answer.stderr


@pytest.mark.slow
def test_show_survives_a_terminal_without_letters(tmp_path: Path, file: Path) -> None:
    """A name that the terminal's encoding does not have is shown escaped, not as a traceback."""
    file.write_text(AGENT + 'name = "Schreiber ✍"\n', encoding="utf-8")
    answer = run(tmp_path, "config", "show", "--config", str(file), PYTHONIOENCODING="ascii")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert r"agents[0].name = 'Schreiber \u270d'" in answer.stdout


def test_check_of_a_good_file(tmp_path: Path, file: Path) -> None:
    """A file without mistakes is said to be accepted, with exit code 0 and nothing on stderr."""
    answer = run(tmp_path, "config", "check", "--config", str(file))
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"{file}: all settings are accepted.\n", "")


def test_check_without_a_file(tmp_path: Path) -> None:
    """No file is no mistake: the defaults are used, and that is said."""
    answer = run(tmp_path, "config", "check")
    assert answer.returncode == 0
    assert answer.stdout.endswith("settings.toml: not there; the defaults are used.\n")


def test_check_of_a_misspelt_key(tmp_path: Path, file: Path) -> None:
    """A warning with the nearest name goes to stderr; the file is accepted, and not all that is in it."""
    file.write_text(AGENT + "enabld = false\n", encoding="utf-8")
    answer = run(tmp_path, "config", "check", "--config", str(file))
    assert (answer.returncode, answer.stdout) == (0, f"{file}: all settings are accepted, but for the warnings.\n")
    assert answer.stderr == (
        f"Warning: {file}: agents[0].enabld is not a setting of this version (did you mean enabled?); it is ignored.\n"
    )


@pytest.mark.parametrize("command", [["config", "check"], ["config", "show"]])
def test_a_wrong_file_ends_every_command_with_the_reason(tmp_path: Path, file: Path, command: list[str]) -> None:
    """Exit code 1, one line on stderr with file, key, value and what is accepted, no traceback."""
    file.write_text("[server]\nallowed_hosts = 5\n", encoding="utf-8")
    answer = run(tmp_path, *command, "--config", str(file))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == (
        f'elbowroom: {file}: server.allowed_hosts = 5 is not accepted; it takes a list such as ["one", "two"].\n'
    )


@pytest.mark.parametrize(
    ("command", "flags", "variables"),
    [
        (["config", "check"], ["--config", "{}"], {}),
        (["config", "show"], [], {"ELBOWROOM_CONFIG": "{}"}),
        (["serve", "--port", "0"], [], {"ELBOWROOM_CONFIG": "{}"}),
    ],
)
def test_a_file_that_was_named_and_is_not_there(
    tmp_path: Path, command: list[str], flags: list[str], variables: dict[str, str]
) -> None:
    """Whoever names a file, by flag or variable, means it: that it is missing is an error."""
    missing = str(tmp_path / "missing.toml")
    named = {name: value.format(missing) for name, value in variables.items()}
    answer = run(tmp_path, *command, *(flag.format(missing) for flag in flags), **named)
    assert (answer.returncode, answer.stderr) == (1, f"elbowroom: There is no settings file at {missing}.\n")


@pytest.mark.parametrize("arguments", [[], ["config", "mend"], ["serve", "--port", "x"]])
def test_a_wrong_command_line_is_explained(tmp_path: Path, arguments: list[str]) -> None:
    """Exit code 2 and the usage, as with any command line program."""
    answer = run(tmp_path, *arguments)
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage: elbowroom")


def test_version(tmp_path: Path) -> None:
    """`--version` is the package's version."""
    answer = run(tmp_path, "--version")
    assert (answer.returncode, answer.stdout) == (0, f"elbowroom {__version__}\n")


def test_check_tells_every_mistake_at_once(tmp_path: Path) -> None:
    """Wrong values, missing ones, wrong names of others, a secret that cannot be read and unknown keys are told."""
    file = tmp_path / "wrong.toml"
    file.write_text(
        """[server]
prot = 1
[compaction]
threshold_ratio = 3
pruning_agent = "nobody"
[[providers]]
id = "lmstudio"
kind = "lmstudio"
api_key = "file:missing-key"
[[agents]]
id = "one"
model = "m"
provider = "elsewhere"
handoffs = ["two", "one"]
[[agents]]
id = "two"
temperature = 1
tools = ["vault"]
""",
        encoding="utf-8",
    )
    answer = run(tmp_path, "config", "check", "--config", str(file))
    assert answer.returncode == 1
    told = answer.stderr
    for mistake in (
        "compaction.threshold_ratio = 3 is not accepted",
        "compaction.pruning_agent = 'nobody' is not accepted",
        "providers[0].api_key = file:missing-key is not accepted",
        "agents[0].provider = 'elsewhere' is not accepted",
        "agents[0].handoffs = ['two', 'one'] is not accepted; it takes ids of other enabled agents",
        "agents[1].model is missing",
        "agents[1].tools = ['vault'] is not accepted",
        "Warning: " + f"{file}: server.prot is not a setting of this version (did you mean port?)",
        "agents[1].temperature is not a setting of this version",
    ):
        assert told.count(mistake) == 1, mistake
    assert "row." not in told


def test_a_lost_name_makes_no_second_mistake(tmp_path: Path) -> None:
    """Where the id of an agent or a provider is wrong, those that name it are not said to be wrong as well."""
    file = tmp_path / "wrong.toml"
    file.write_text(
        """[compaction]
pruning_agent = "good one"
[[providers]]
id = "my studio"
kind = "lmstudio"
[[agents]]
id = "good one"
model = "m"
provider = "my studio"
""",
        encoding="utf-8",
    )
    told = run(tmp_path, "config", "check", "--config", str(file)).stderr.splitlines()
    assert [line.partition(": ")[2].partition(" ")[0] for line in told] == [f"{file}:", "agents[0].id"]
