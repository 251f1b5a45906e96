"""`elbowroom connect` for coding agents: what stands in their files afterwards, and that it can be taken back."""

import asyncio
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, RAW_MODEL, elbowroom_with_studio
from serving import Served
from small_window import small_window

from elbowroom.cli import main
from elbowroom.connect.clients import CLIENTS
from elbowroom.connect.json_text import parsed

CLAUDE, CODEX, OPENCODE = ".claude/settings.json", ".codex/config.toml", ".config/opencode/opencode.jsonc"
PI, PI_MODELS = ".pi/agent/settings.json", ".pi/agent/models.json"
BEFORE = {
    CLAUDE: '{"permissions": {"allow": ["Bash"]}, "env": {"MINE": "1", "ANTHROPIC_MODEL": "opus"}}',
    CODEX: '# mine\nmodel = "gpt"  # the best\n\n[model_providers.other]\nname = "o"\n\n[tui]\nnotifications = true\n',
    OPENCODE: '{\n    // my theme\n    "theme": "dark",\n    "provider": {"openai": {}},\n}\n',
    PI_MODELS: '{"providers": {"elbowroom": {"models": [{"id": "mine"}]}}}',
}
FILES = {"claude-code": [CLAUDE], "codex": [CODEX], "opencode": [OPENCODE], "pi": [PI_MODELS, PI]}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom with one loaded model of 32,768 tokens, and no agent."""
    async with elbowroom_with_studio(tmp_path / "served", agents="") as (served, _):
        yield served


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home folder with settings of a person in it, which nobody else may read."""
    (tmp_path / "served").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("ELBOWROOM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ELBOWROOM_CONFIG", str(tmp_path / "settings.toml"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "PI_CODING_AGENT_DIR", "ELBOWROOM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "settings.toml").write_text("", encoding="utf-8")
    for name, text in BEFORE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o640)
    return tmp_path


async def connect(program: str, *more: str, port: int = 1) -> int:
    """Run the command for an elbowroom on this port."""
    return await asyncio.to_thread(main, ["connect", program, "--port", str(port), *more])


def settings_in(file: Path) -> Any:
    """Return what a program reads in its file."""
    text = file.read_text(encoding="utf-8")
    return tomllib.loads(text) if file.suffix == ".toml" else parsed(text).value


async def test_what_is_written(home: Path, served: Served) -> None:
    """Each agent gets the address, the model, its true window and an output limit; what was there stays."""
    for program in FILES:
        assert await connect(program, "--write", port=served.port) == 0
    claude, codex, opencode = (settings_in(home / name) for name in (CLAUDE, CODEX, OPENCODE))
    assert claude["permissions"] == {"allow": ["Bash"]}
    assert claude["env"].items() >= {
        ("MINE", "1"),
        ("ANTHROPIC_BASE_URL", served.url),
        ("ANTHROPIC_AUTH_TOKEN", "none"),
        ("ANTHROPIC_MODEL", RAW_MODEL),
        ("CLAUDE_CODE_MAX_CONTEXT_TOKENS", "32768"),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "4096"),
    }
    assert (home / CODEX).read_text(encoding="utf-8").startswith(f'# mine\nmodel = "{RAW_MODEL}"  # the best\n')
    async with served.http.get(f"{served.url}/v1/models?client_version=0.169.0") as response:
        [listed] = (await response.json())["models"]
    assert (listed["slug"], listed["context_window"]) == (codex["model"], 32_768)
    assert codex["model_context_window"] == codex["model_auto_compact_token_limit"] == 32_768 + 4_096 + 20_480
    assert codex["model_providers"]["other"] == {"name": "o"}
    assert codex["model_providers"]["elbowroom"].items() >= {
        ("base_url", f"{served.url}/v1"),
        ("wire_api", "responses"),
    }
    assert "// my theme" in (home / OPENCODE).read_text(encoding="utf-8")
    assert opencode["model"] == f"elbowroom/{RAW_MODEL}"
    assert opencode["provider"]["openai"] == {}
    told = opencode["provider"]["elbowroom"]
    assert told["options"]["baseURL"] == f"{served.url}/v1"
    assert told["models"][RAW_MODEL]["limit"] == {"context": 32_768, "input": 57_344, "output": 4_096}
    mine, ours = settings_in(home / PI_MODELS)["providers"]["elbowroom"]["models"]
    assert (mine, ours) == ({"id": "mine"}, {"id": RAW_MODEL, "contextWindow": 57_344, "maxTokens": 4_096})
    assert settings_in(home / PI)["defaultModel"] == RAW_MODEL


@pytest.mark.parametrize("program", FILES)
async def test_it_is_put_back(home: Path, program: str) -> None:
    """Byte for byte after any number of runs, with its mode, and no trace is left; a second undo has nothing to do."""
    before = contents(home)
    for window in ("8192", "16384", "16384"):
        assert await connect(program, "--write", "--model", "m", "--window", window) == 0
    assert all((home / name).stat().st_mode & 0o777 == (0o640 if name in BEFORE else 0o600) for name in FILES[program])
    kept = (home / FILES[program][0]).with_name(Path(FILES[program][0]).name + ".before-elbowroom")
    assert kept.read_text(encoding="utf-8") == BEFORE[FILES[program][0]]
    assert await connect(program, "--undo") == 0
    assert contents(home) == before
    assert await connect(program, "--undo") == 1


def contents(home: Path) -> dict[str, bytes]:
    """Return what each file of the programs holds, backups included."""
    files = [file for file in home.rglob("*") if file.is_file() and home / "data" not in file.parents]
    return {str(file): file.read_bytes() for file in files}


async def test_codex_has_one_way_to_the_token(home: Path) -> None:
    """Codex refuses a provider with two: another one that stands there already goes, what is beside it stays."""
    old = '[model_providers.elbowroom]\nname = "e"\nexperimental_bearer_token = "old"\n\n[tui]\nnotifications = true\n'
    (home / CODEX).write_text(old, encoding="utf-8")
    assert await connect("codex", "--write", "--model", "m", "--window", "8192") == 0
    codex = settings_in(home / CODEX)
    assert codex["tui"] == {"notifications": True}
    provider = codex["model_providers"]["elbowroom"]
    assert "experimental_bearer_token" not in provider
    assert provider["auth"]["args"][-1] == "none"
    assert await connect("codex", "--undo") == 0
    assert (home / CODEX).read_text(encoding="utf-8") == old


async def test_what_somebody_changed_is_left(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a change by hand no undo takes that away, also not after one more run; it says where the backup is."""
    command = ("opencode", "--write", "--model", "m", "--window")
    assert await connect(*command, "8192") == 0
    changed = (home / OPENCODE).read_text(encoding="utf-8").replace("dark", "light")
    (home / OPENCODE).write_text(changed, encoding="utf-8")
    assert await connect("opencode", "--undo") == 1
    assert (home / OPENCODE).read_text(encoding="utf-8") == changed
    said = capsys.readouterr().err
    assert "has been changed since elbowroom wrote it" in said
    assert f"{home / OPENCODE}.before-elbowroom" in said
    assert await connect(*command, "16384") == 0
    assert '"light"' in (home / OPENCODE).read_text(encoding="utf-8")
    assert await connect("opencode", "--undo") == 1
    assert (home / f"{OPENCODE}.before-elbowroom").read_text(encoding="utf-8") == BEFORE[OPENCODE]


@pytest.mark.parametrize(
    ("program", "name", "text"),
    [
        ("opencode", OPENCODE, "{\n theme: 1}"),
        ("codex", CODEX, "model = \n"),
        ("pi", PI, "[]"),
        ("codex", CODEX, "\xff"),
        ("pi", PI, '{"theme": ' + "[" * 5000 + "]" * 5000 + "}"),
    ],
)
async def test_what_is_not_understood_is_left(
    home: Path, capsys: pytest.CaptureFixture[str], program: str, name: str, text: str
) -> None:
    """The file stays as it is, and so do others of the program; the person gets what to put in by hand."""
    (home / name).write_text(text, encoding="latin-1")
    before = contents(home)
    assert await connect(program, "--write", "--model", "some-model", "--window", "8192") == 1
    assert contents(home) == before
    said = capsys.readouterr()
    assert "is left as it is, since it is not understood (" in said.err
    assert "some-model" in said.out


async def test_it_only_shows_where_nobody_says_write(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes where is shown, the token is not; agents that are not written have something to paste."""
    monkeypatch.setenv("ELBOWROOM_TOKEN", "a-secret")
    before = contents(home)
    for program in (*FILES, "crush", "qwen-code", "cline", "continue", "aider", "zed"):
        assert await connect(program, "--model", "some-model", "--window", "10000") == 0
        said = capsys.readouterr().out
        assert said.count("some-model") >= 2
        assert ("31730" if program in ("pi", "codex") else "10000") in said
        assert "YOUR_TOKEN stands for" in said
        assert "a-secret" not in said
        assert all(str(home / name) in said for name in FILES.get(program, []))
    assert contents(home) == before
    assert await connect("zed", "--write", "--model", "m", "--window", "1") == 1
    assert "Without --write you see what to paste" in capsys.readouterr().err
    assert await connect("pi", "--write", "--model", "m", "--window", "10000") == 0
    assert "a-secret" not in capsys.readouterr().out
    assert settings_in(home / PI_MODELS)["providers"]["elbowroom"]["apiKey"] == "a-secret"


@pytest.mark.parametrize("window", ["0", "-5"])
async def test_a_window_that_is_none_is_refused(home: Path, capsys: pytest.CaptureFixture[str], window: str) -> None:
    """It is not taken for one that was left out, and nothing is written."""
    before = contents(home)
    assert await connect("pi", "--write", "--model", "m", f"--window={window}") == 1
    assert "--window takes a number of tokens, such as 32768." in capsys.readouterr().err
    assert contents(home) == before


async def test_which_model(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any name of a model does; of several that are loaded a person names one; a wrong name gets a suggestion."""
    async with elbowroom_with_studio(tmp_path / "served", agents=AGENT) as (served, _):
        assert await connect("cline", port=served.port) == 1
        assert f"with --model: writer, {RAW_MODEL}." in capsys.readouterr().err
        assert await connect("cline", "--model", "The Writer", port=served.port) == 0
        assert "Model ID: writer\nContext Window Size: 32768\n" in capsys.readouterr().out
        assert await connect("cline", "--model", "writter", port=served.port) == 1
        assert "did you mean writer" in capsys.readouterr().err
        assert await connect("cline", "--address", f"{served.url}/v1", "--model", "writer") == 0
        assert f"Base URL: {served.url}/v1\n" in capsys.readouterr().out
    assert await connect("cline", "--model", "writer", port=served.port) == 1
    assert "Start it, or say both with --model and --window." in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_token_that_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """Where elbowroom asks for another token, the person learns where to say it; with it all is well."""
    async with small_window(tmp_path / "served", agents="", server='token = "the-right-one"') as (served, _):
        monkeypatch.setenv("ELBOWROOM_TOKEN", token)
        assert await connect("cline", port=served.port) == 1
        assert (
            "asks for its token, which your settings do not tell. Say it in ELBOWROOM_TOKEN" in capsys.readouterr().err
        )
        monkeypatch.setenv("ELBOWROOM_TOKEN", "the-right-one")
        assert await connect("cline", port=served.port) == 0


async def test_a_model_that_is_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is none to choose from, and named, it has the window with which it was loaded last, which is said."""
    async with elbowroom_with_studio(tmp_path / "served", agents="") as (served, _):
        assert await connect("cline", port=served.port) == 0
        assert "not loaded" not in capsys.readouterr().out
        body = {"instance_id": MODEL}
        async with served.http.post(f"{served.url}/api/v1/models/unload", json=body) as response:
            assert response.status == 200
        assert await connect("cline", port=served.port) == 1
        told = capsys.readouterr().err
        assert "No model is loaded at " in told
        assert "`elbowroom status` lists them" in told
        assert await connect("cline", "--model", RAW_MODEL, port=served.port) == 0
        said = capsys.readouterr().out
    assert "The model is not loaded; this is the window that it had when it was loaded last.\n" in said
    assert "Context Window Size: 32768\n" in said


async def test_a_window_that_is_too_small_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings are written all the same; from the least window on nothing is said."""
    least = CLIENTS["claude-code"].least_window
    for window, is_said in ((least - 1, True), (least, False)):
        assert await connect("claude-code", "--write", "--model", "m", "--window", str(window)) == 0
        assert (f"Claude Code needs a window of {least:,} tokens" in capsys.readouterr().out) is is_said
    assert (home / CLAUDE).exists()


async def test_a_terminal_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person chooses by number or by name, and is asked again after something else; the end of the input ends it."""
    answers = iter(["3", "nobody", "1", RAW_MODEL])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: next(answers, None) or wrong())
    async with elbowroom_with_studio(tmp_path / "served", agents=AGENT) as (served, _):
        for chosen in ("writer", RAW_MODEL):
            assert await connect("cline", port=served.port) == 0
            said = capsys.readouterr().out
            assert said.startswith(f"  1  writer\n  2  {RAW_MODEL}\nCline with {chosen}: ")
        assert await connect("cline", port=served.port) == 1
    assert "No model was chosen. Name one with --model: writer" in capsys.readouterr().err


def wrong() -> str:
    """End the input."""
    raise EOFError


@pytest.mark.parametrize("program", FILES)
async def test_a_byte_order_mark_stays(home: Path, program: str) -> None:
    """Editors of Windows put one before the text: the file is changed as any other, and has it still."""
    for name in FILES[program]:
        (home / name).write_bytes(b"\xef\xbb\xbf" + (home / name).read_bytes() if name in BEFORE else b"\xef\xbb\xbf")
    before = contents(home)
    for _ in range(2):
        assert await connect(program, "--write", "--model", "m", "--window", "8192") == 0
    for name in FILES[program]:
        assert (home / name).read_bytes().startswith(b"\xef\xbb\xbf")
        assert (home / name).read_bytes().count(b"\xef\xbb\xbf") == 1
    assert await connect(program, "--undo") == 0
    assert contents(home) == before


async def test_a_linked_file_stays_linked(home: Path) -> None:
    """Where the settings are kept elsewhere, that file is changed and put back, and the link stays."""
    real = home / "dotfiles" / "config.toml"
    real.parent.mkdir()
    (home / CODEX).rename(real)
    (home / CODEX).symlink_to(real)
    assert await connect("codex", "--write", "--model", "m", "--window", "8192") == 0
    assert (home / CODEX).is_symlink()
    assert settings_in(real)["model"] == "m"
    assert await connect("codex", "--undo") == 0
    assert (home / CODEX).is_symlink()
    assert real.read_text(encoding="utf-8") == BEFORE[CODEX]
    assert [file.name for file in real.parent.iterdir()] == ["config.toml"]


async def test_lm_studios_own_chat_is_told_where_to_search(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told the address and the token, no model is asked for, its other servers stay, and it can be taken back."""
    monkeypatch.setenv("ELBOWROOM_TOKEN", "a-token")
    (home / "settings.toml").write_text('[server]\ntoken = "env:ELBOWROOM_TOKEN"\n', encoding="utf-8")
    file = home / ".lmstudio/mcp.json"
    file.parent.mkdir()
    before = '{"mcpServers": {"mine": {"command": "mine"}}}'
    file.write_text(before, encoding="utf-8")
    assert await connect("lm-studio", "--write") == 0
    assert settings_in(file)["mcpServers"] == {
        "mine": {"command": "mine"},
        "elbowroom": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer a-token"}},
    }
    assert await connect("lm-studio", "--undo") == 0
    assert file.read_text(encoding="utf-8") == before
