"""`elbowroom count`, as the real program: texts, chats, lists of messages, and what it says when it cannot."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL
from command_line import run_with_input
from serving import settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel, SimulatedTokenizer

RAW = f"lmstudio/{MODEL}"
CHAT = {"messages": [{"role": "user", "content": "Hello there"}]}
Result = tuple[int, str, str]


async def count(
    folder: Path,
    studio: SimulatedLMStudio,
    file: str,
    model: str = RAW,
    *,
    agent: str = AGENT,
    stdin: bytes = b"",
    **variables: str,
) -> Result:
    """Run the command with this LM Studio; return the exit code and what it says to stdout and stderr."""
    settings = folder / "settings.toml"
    settings.write_text(settings_for(studio.base_url, agents=agent), encoding="utf-8")
    command = ("count", "--config", str(settings), "--model", model, file)
    done = await asyncio.to_thread(run_with_input, stdin, folder, *command, **variables)
    return done.returncode, done.stdout, done.stderr


def write(folder: Path, content: bytes | str | dict[str, Any] | list[Any]) -> str:
    """Write a file for the command and return its path."""
    path = folder / "input"
    if isinstance(content, dict | list):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def loaded(window: int = 8192) -> SimulatedLMStudio:
    """Return a simulated LM Studio with the model loaded."""
    return SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=window), SimulatedModel("other")])


def says(tokens: int, method: str, window: int = 8192) -> str:
    """Return the line for a count."""
    return f"{tokens} tokens ({method}); {tokens * 100 // window} % of the window of {window}\n"


@pytest.mark.parametrize(
    "content",
    ["Hello there", "", "\ufeffHello there", '{"a": 1}', "[1, 2]", '["messages"]', "[]", "{broken", "7", "[" * 5000],
)
async def test_a_text(tmp_path: Path, content: str) -> None:
    """Whatever is no chat is counted as the text that it is, a byte order mark aside."""
    tokens = len(SimulatedTokenizer().encode(content.removeprefix("\ufeff")))
    async with loaded() as studio:
        assert await count(tmp_path, studio, write(tmp_path, content)) == (0, says(tokens, "engine"), "")


@pytest.mark.slow
@pytest.mark.parametrize("content", [CHAT, CHAT["messages"], {**CHAT, "model": "of another program", "stream": True}])
async def test_a_chat(tmp_path: Path, content: Any) -> None:
    """A chat request and a bare list of messages are counted as prompts, template and all; no chat is sent."""
    tokens = SimulatedTokenizer().count_tokens([dict(message) for message in CHAT["messages"]])
    async with loaded() as studio:
        assert await count(tmp_path, studio, write(tmp_path, content)) == (0, says(tokens, "engine"), "")
        assert not studio.chats


@pytest.mark.slow
async def test_an_agents_instructions_count(tmp_path: Path) -> None:
    """For an agent its instructions are part of the prompt."""
    messages = [{"role": "system", "content": "You help with notes."}, *CHAT["messages"]]
    tokens = SimulatedTokenizer().count_tokens(messages)
    async with loaded() as studio:
        assert await count(tmp_path, studio, write(tmp_path, CHAT), "writer") == (0, says(tokens, "engine"), "")


@pytest.mark.slow
async def test_an_agents_tools_count(tmp_path: Path) -> None:
    """They are part of the prompt as well, and may be chosen by name; a name that nobody offers is an error."""
    tools = 'tools = ["save_memory", "search_memory"]'
    chosen = {**CHAT, "tool_choice": {"type": "function", "function": {"name": "save_memory"}}}
    async with loaded() as studio:
        with_tools = f"{AGENT}{tools}\n[memory]\nenabled = true\n"
        plain, all_of_them, one = [
            await count(tmp_path, studio, write(tmp_path, body), "writer", agent=agent)
            for body, agent in ((CHAT, AGENT), (CHAT, with_tools), (chosen, with_tools))
        ]
        tokens = [int(out.split()[0]) for _, out, _ in (plain, one, all_of_them)]
        assert tokens == sorted({*tokens})
        code, out, error = await count(tmp_path, studio, write(tmp_path, chosen), "writer")
    assert (code, out) == (1, "")
    assert "'save_memory'" in error


@pytest.mark.slow
async def test_a_server_of_tools_that_never_answers_is_left_out(tmp_path: Path) -> None:
    """It is waited for as long as the settings say, and its program is gone when the command ends."""
    program = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    command = json.dumps([sys.executable, "-c", program])
    mute = f'\n[[mcp_servers]]\nname = "mute"\ncommand = {command}\nconnect_timeout = 1\n'
    async with loaded() as studio:
        code, out, _ = await count(
            tmp_path, studio, write(tmp_path, CHAT), "writer", agent=f'{AGENT}mcp = ["mute"]{mute}'
        )
    assert (code, out.split()[1:3]) == (0, ["tokens", "(engine);"])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.slow
async def test_standard_input(tmp_path: Path) -> None:
    """A dash reads what is piped in, as UTF-8 whatever the terminal's language is."""
    text = "日本語 naïve"
    tokens = len(SimulatedTokenizer().encode(text))
    async with loaded() as studio:
        for variables in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
            result = await count(tmp_path, studio, "-", stdin=text.encode(), **variables)
            assert result == (0, says(tokens, "engine"), "")


@pytest.mark.slow
async def test_what_is_no_text(tmp_path: Path) -> None:
    """A binary file, a folder, a file that is not there: one sentence that names it, and exit code 1."""
    binary = write(tmp_path, b"GGUF\xff\xfe\x00")
    cases = {
        binary: f"elbowroom: {binary} is not UTF-8 text (byte 4).\n",
        str(tmp_path): f"elbowroom: {tmp_path} cannot be read: Is a directory.\n",
        "/nowhere.txt": "elbowroom: /nowhere.txt cannot be read: No such file or directory.\n",
    }
    async with loaded() as studio:
        for file, message in cases.items():
            assert await count(tmp_path, studio, file) == (1, "", message)
        piped = await count(tmp_path, studio, "-", stdin=b"\xff", LC_ALL="C", PYTHONUTF8="0")
        assert piped == (1, "", "elbowroom: - is not UTF-8 text (byte 0).\n")


async def test_a_chat_that_is_none(tmp_path: Path) -> None:
    """What looks like a chat request and is wrong is said to be wrong, by the field."""
    async with loaded() as studio:
        code, out, error = await count(tmp_path, studio, write(tmp_path, {"messages": [{"role": 7}]}))
    assert (code, out) == (1, "")
    assert "messages[0].role" in error


async def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    """The models that there are are named."""
    async with loaded() as studio:
        for name in ("lmstudio/nothing", "nothing"):
            code, out, error = await count(tmp_path, studio, write(tmp_path, "Hello"), name)
            assert (code, out) == (1, "")
            assert MODEL in error
            assert "Traceback" not in error


@pytest.mark.slow
async def test_a_model_that_is_not_loaded(tmp_path: Path) -> None:
    """It is counted by its family, with how far that may be off, without a window; nothing is loaded for it."""
    async with loaded() as studio:
        code, out, _ = await count(tmp_path, studio, write(tmp_path, "Hello there " * 50), "lmstudio/other")
        assert code == 0
        assert "in 95 of 100 cases)\n" in out
        assert "window" not in out
        assert [instance.id for instance in studio.residency.ready] == [MODEL]


async def test_lm_studio_is_down(tmp_path: Path) -> None:
    """One sentence says so and what to do."""
    async with loaded() as studio:
        pass
    code, out, error = await count(tmp_path, studio, write(tmp_path, "Hello"))
    assert (code, out) == (1, "")
    assert error.startswith(f"elbowroom: LM Studio does not answer at {studio.base_url}.")
    assert error.count("\n") == 1
