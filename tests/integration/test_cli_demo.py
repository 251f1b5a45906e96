"""`elbowroom demo`, as the real program: what it prints works."""

import os
import shlex
import signal
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from command_line import Program, run, running
from serving import serve

from elbowroom.cli import DEMO_SETTINGS
from elbowroom.demo import demo_studio


@dataclass(frozen=True, slots=True)
class Curl:
    """A request as a curl command line states it."""

    url: str
    headers: dict[str, str]
    body: str


def parse_curl(command: str, variables: Mapping[str, str]) -> Curl:
    """Read a curl command as a shell would that has these variables."""
    words = [string.Template(word).safe_substitute(variables) for word in shlex.split(command)]
    assert words[0] == "curl"
    headers = [words[index + 1] for index, word in enumerate(words) if word == "-H"]
    return Curl(words[1], dict(header.split(": ", 1) for header in headers), words[words.index("-d") + 1])


async def printed_curl(program: Program, variables: Mapping[str, str] | None = None) -> Curl:
    """Wait until the demo has said everything and return the request it suggests."""
    await program.line_with("Ctrl-C ends it.")
    command = program.said[program.said.index("curl ") :].split("\n\n")[0]
    return parse_curl(command, variables or {})


async def answer_to(curl: Curl) -> tuple[int, Any]:
    """Send the request and return status and parsed body."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(curl.url, data=curl.body.encode(), headers=curl.headers) as response,
    ):
        return response.status, await response.json()


@pytest.mark.slow
async def test_what_it_prints_can_be_used(tmp_path: Path) -> None:
    """The command on the screen is answered by the demo's agent, and the address is that of a list of models.

    Variables of the real elbowroom, even wrong ones, leave the demo as it is.
    """
    variables = {"ELBOWROOM_CONFIG": str(tmp_path / "missing.toml"), "ELBOWROOM_SERVER__PORT": "x"}
    async with running(tmp_path, "demo", "--port", "0", variables=variables) as program:
        address = await program.address()
        status, answer = await answer_to(await printed_curl(program))
        assert status == 200
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert "simulated" in answer["choices"][0]["message"]["content"]
        assert "any API key will do" in program.said
        async with aiohttp.ClientSession() as http, http.get(f"{address}/v1/models") as response:
            ids = [row["id"] for row in (await response.json())["data"]]
        assert ids[:2] == ["writer", "lmstudio/qwen2.5-7b-instruct"]
        assert await program.end(signal.SIGTERM) == 0
    assert "Traceback" not in program.said


async def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ended with Ctrl-C, its settings folder goes with it, and the person's own settings were never touched."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    async with running(tmp_path, "demo", "--port", "0", variables={"TMPDIR": str(temporary)}) as program:
        line = await program.line_with("Settings of this demo: ")
        assert Path(line.removeprefix("Settings of this demo: ")).is_relative_to(temporary)
        assert await program.end(signal.SIGINT) == 0
    assert os.listdir(tmp_path) == ["temporary"]
    assert os.listdir(temporary) == []


async def test_a_long_chat_is_summed_up_in_its_own_words(tmp_path: Path) -> None:
    """What a newcomer sees of a compaction is about the chat, without a word of the order to the pruning agent."""
    studio = demo_studio()
    studio.tokens_per_second = studio.prefill_tokens_per_second = 0
    async with studio, serve(tmp_path, DEMO_SETTINGS.format(url=studio.base_url)) as served:
        messages: list[dict[str, Any]] = []
        for number in range(8):
            asked = f"Question {number}: when does ferry {number} leave? " + f"It is boat {number}. " * 150
            messages.append({"role": "user", "content": asked})
            body = {"model": "writer", "messages": messages}
            async with served.http.post(f"{served.url}/v1/chat/completions", json=body) as response:
                answer = await response.json()
            messages.append(answer["choices"][0]["message"])
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            [row] = (await response.json())["data"]
        async with served.http.get(f"{served.url}/v1/conversations/{row['id']}") as response:
            [done, *_] = (await response.json())["compactions"]
    assert (done["rung"], done["method"]) == ("plan", "plan")
    assert "The user wrote: Question 1: when does ferry 1 leave?" in done["summary"]
    assert "first words" not in done["summary"]


@pytest.mark.slow
async def test_with_a_token_the_curl_carries_it(tmp_path: Path) -> None:
    """Where ELBOWROOM_TOKEN is set the demo asks for it, prints a command that sends it, and does not print it."""
    variables = {"ELBOWROOM_TOKEN": "sesame-open-7391"}
    async with running(tmp_path, "demo", "--port", "0", variables=variables) as program:
        curl = await printed_curl(program, variables)
        status, _ = await answer_to(curl)
        assert status == 200
        status, _ = await answer_to(Curl(curl.url, {"Content-Type": "application/json"}, curl.body))
        assert status == 401
    assert "sesame" not in program.said


def test_an_open_address_needs_a_token_here_too(tmp_path: Path) -> None:
    """The demo is no back door: without a token it does not let other machines in."""
    answer = run(tmp_path, "demo", "--port", "0", "--host", "0.0.0.0")
    assert answer.returncode == 1
    assert "export ELBOWROOM_TOKEN=" in answer.stderr


async def test_a_second_demo_says_that_the_port_is_in_use(tmp_path: Path) -> None:
    """Started twice, the second says what to add to the command and ends with exit code 1."""
    async with running(tmp_path, "demo", "--port", "0") as first:
        port = int((await first.address()).rpartition(":")[2])
        async with running(tmp_path, "demo", "--port", str(port)) as second:
            assert await second.ended() == 1
            assert f"Port {port} on 127.0.0.1 is in use" in second.said
            assert "add --port" in second.said


def test_it_takes_no_settings_file(tmp_path: Path) -> None:
    """The demo has settings of its own; a file that would be ignored in silence is refused."""
    answer = run(tmp_path, "demo", "--config", os.devnull)
    assert answer.returncode == 2
    assert "unrecognized arguments: --config" in answer.stderr
