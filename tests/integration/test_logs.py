"""The log of a server at work: a line for each request, no secrets, nothing of what was said."""

import asyncio
import io
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import running
from fake_upstream import fake_upstream
from own_tools import own_tool
from serving import Served, serve, settings_for

from elbowroom.agents.answer import ClientLeft
from elbowroom.demo import Error, Reply, Script, SimulatedLMStudio, SimulatedModel, ToolCall
from elbowroom.logs.formats import HumanFormatter
from elbowroom.logs.redaction import REDACTOR
from elbowroom.logs.set_up import SafeRecords, logging_to_file
from elbowroom.server.event_stream import EventStream
from elbowroom.settings.live import LiveSettings

PROMPT = "Planted question about the orchid in the cellar"
ANSWER = "Planted answer: it wants darkness and old tea"
TOKEN = "door-sesame-4711"
KEY = "sk-lm-abcdefgh:12345678901234567890"
AGENT = '[[agents]]\nid = "writer"\nmodel = "tiny"\ninstructions = "Planted instructions of the house"\n'


@pytest.fixture
async def studio() -> AsyncIterator[SimulatedLMStudio]:
    """Run a simulated LM Studio that asks for a key."""
    async with SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=8192)], api_token=KEY) as studio:
        yield studio


@pytest.fixture
def terminal() -> Iterator[io.StringIO]:
    """Have what a person at a terminal sees on stderr."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(HumanFormatter())
    handler.addFilter(SafeRecords(REDACTOR))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
async def served(studio: SimulatedLMStudio, tmp_path: Path, terminal: io.StringIO) -> AsyncIterator[Served]:
    """Run elbowroom with a token and a key, and with its log file."""
    environ = {"ELBOWROOM_DATA_DIR": str(tmp_path), "ELBOWROOM_TOKEN": TOKEN, "LM_API_TOKEN": KEY}
    text = settings_for(studio.base_url, agents=AGENT)
    async with serve(tmp_path, text, environ=environ) as served:
        served.http.headers["Authorization"] = f"Bearer {TOKEN}"
        with logging_to_file(LiveSettings(served.settings, environ, {}).current(), environ):
            yield served


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the log file."""
    text = (folder / "logs" / "elbowroom.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def requests(folder: Path) -> list[dict[str, Any]]:
    """Return the lines that tell of a request."""
    return [line for line in lines(folder) if line.get("event") == "request"]


async def test_each_request_has_one_line(served: Served, studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """With its id, route, agent, model, status, tokens and time; the id is in the answer's header, too."""
    studio.enqueue(ANSWER)
    body = {"model": "writer", "messages": [{"role": "user", "content": PROMPT}]}
    async with served.http.post(served.chat_url, json=body) as response:
        usage, chat_id = (await response.json())["usage"], response.headers["X-Request-Id"]
    async with served.http.post(served.chat_url, json={**body, "stream": True}) as response:
        stream_id = response.headers["X-Request-Id"]
        await response.read()
    async with served.http.get(f"{served.url}/models") as response:
        list_id = response.headers["X-Request-Id"]
    first, second, third = requests(tmp_path)
    assert {key: first[key] for key in ("method", "route", "agent", "model", "status", "tokens_in", "tokens_out")} == {
        "method": "POST",
        "route": "/v1/chat/completions",
        "agent": "writer",
        "model": "lmstudio/tiny",
        "status": 200,
        "tokens_in": usage["prompt_tokens"],
        "tokens_out": usage["completion_tokens"],
    }
    assert (first["compactions"], first["finish_reason"]) == (0, "stop")
    assert first["milliseconds"] >= 0
    assert (third["route"], third["agent"]) == ("/v1/models", None)
    assert [first["request"], second["request"], third["request"]] == [chat_id, stream_id, list_id]
    assert len({chat_id, stream_id, list_id}) == 3


async def test_what_is_passed_on_has_a_line(served: Served, tmp_path: Path) -> None:
    """A bare completion names its model and what it took, as an answer in a chat does."""
    async with served.http.post(f"{served.url}/v1/completions", json={"model": "writer", "prompt": "Once"}) as response:
        usage = (await response.json())["usage"]
    [line] = requests(tmp_path)
    assert (line["agent"], line["model"], line["tokens_in"]) == ("writer", "lmstudio/tiny", usage["prompt_tokens"])


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
async def test_a_client_that_leaves_a_stream(
    served: Served, studio: SimulatedLMStudio, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that nobody reads to its end says so in its line, whichever route it came by."""

    async def leave(stream: EventStream, frames: bytes) -> None:
        raise ClientLeft

    monkeypatch.setattr(EventStream, "_send", leave)
    studio.enqueue(ANSWER)
    body = {"model": "writer", "messages": [{"role": "user", "content": "a"}], "input": "a", "stream": True}
    async with served.http.post(f"{served.url}/v1/{path}", json=body) as response:
        await response.read()
    [line] = requests(tmp_path)
    assert line["error"] == "client_left"


async def test_compactions_are_counted(served: Served, studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """A request whose conversation was compacted says how often; all lines about that carry its id."""
    studio.reload("tiny", 2048)
    says = [
        {"role": role, "content": f"{PROMPT} {number} " * 12} for number in range(20) for role in ("user", "assistant")
    ]
    body = {"model": "writer", "messages": [*says, {"role": "user", "content": PROMPT}]}
    async with served.http.post(served.chat_url, json=body) as response:
        assert response.status == 200, await response.text()
    (line,) = requests(tmp_path)
    assert line["compactions"] == 1
    told = next(one for one in lines(tmp_path) if "compacted from" in one["message"])
    assert told["request"] == line["request"]
    assert PROMPT not in (tmp_path / "logs" / "elbowroom.jsonl").read_text(encoding="utf-8")


async def test_compaction_events_have_fields_and_a_failed_pruning_its_reason(
    served: Served, studio: SimulatedLMStudio, tmp_path: Path
) -> None:
    """Programs read sizes, rung, seconds and reason; the reason stays whole, though the second order has told it."""
    studio.reload("tiny", 2048)
    studio.enqueue("Lorem ipsum.", "Lorem ipsum.", ANSWER)
    says = [
        {"role": role, "content": f"{PROMPT} {number} " * 12} for number in range(20) for role in ("user", "assistant")
    ]
    body = {"model": "writer", "messages": [*says, {"role": "user", "content": PROMPT}]}
    async with served.http.post(served.chat_url, json=body) as response:
        assert response.status == 200, await response.text()
    reason = "The answer was no JSON object with retain, summary and keep."
    first, second, done = (line for line in lines(tmp_path) if line.get("event") in ("rung failed", "compacted"))
    for line in (first, second):
        assert (line["event"], line["agent"], line["reason"]) == ("rung failed", "writer", reason)
        assert line["message"] == f"writer: the next rung of the compaction: {reason}"
    fields = {name: done[name] for name in ("event", "agent", "rung", "reason")}
    assert fields == {"event": "compacted", "agent": "writer", "rung": "digest", "reason": reason}
    assert done["before"] > 1600 > 1024 > done["after"] > 0
    assert 0 <= done["seconds"] < 60


async def test_failures_have_their_line_and_their_id(served: Served, studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """What was refused, what failed in the middle and what is nowhere: each says what went wrong."""
    studio.enqueue(Script("Once upon", Error("The model has crashed without additional information")))
    await served.chat_frames("writer", PROMPT)
    await served.chat("nobody", PROMPT)
    async with served.http.get(f"{served.url}/v1/nowhere/{TOKEN}") as response:
        assert response.status == 404
    async with served.http.get(f"{served.url}/v1/models", headers={"Authorization": "Bearer wrong"}) as response:
        assert response.status == 401
        assert response.headers["X-Request-Id"]
    told = [(line["route"], line["status"], line["error"]) for line in requests(tmp_path)]
    assert told == [
        ("/v1/chat/completions", 200, "model_not_loaded"),
        ("/v1/chat/completions", 404, "model_not_found"),
        ("(unknown)", 404, "NotFound"),
        ("/v1/models", 401, "invalid_api_key"),
    ]


async def test_all_lines_of_a_request_carry_its_id(served: Served, studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Also those that the agent's run writes, in tasks of its own."""
    studio.enqueue(Script("Once upon", Error("The model has crashed without additional information")))
    await served.chat_frames("writer", PROMPT)
    warning = next(line for line in lines(tmp_path) if line["level"] == "warning")
    assert warning["request"] == requests(tmp_path)[0]["request"]


@pytest.mark.threat("secrets in logs", "not in the log either")
async def test_neither_secrets_nor_conversations_get_into_a_log(
    served: Served, studio: SimulatedLMStudio, tmp_path: Path, terminal: io.StringIO
) -> None:
    """Not from prompts, answers, instructions, errors that quote them, keys in errors, tokens, or names of clients."""
    secret = "user-password-99"
    studio.enqueue(
        Script(ANSWER),
        Script(Reply(400, {"error": f"Cannot render: {PROMPT!r}; Authorization: Bearer {KEY}; token={secret}"})),
        Script(Reply(500, {"error": f"{ANSWER[:10]} http://me:{secret}@host/ while reading: {PROMPT}"})),
    )
    for _ in range(3):
        await served.chat_frames("writer", PROMPT, user="a\nb\x1b[31m")
    for name in (f"{KEY}\n12:00:00 ERROR forged\u202e", "x" * 100_000):
        await served.chat(name, PROMPT)
        await served.chat(f"lmstudio/{name}", PROMPT)
    async with served.http.get(f"{served.url}/v1/models?api_key={secret}") as response:
        assert response.status == 200
    async with served.http.get(f"{served.url}/api/logs?tail=1000") as response:
        shown = await response.text()
    written = (tmp_path / "logs" / "elbowroom.jsonl").read_text(encoding="utf-8")
    for text in (written, shown, terminal.getvalue()):
        assert "tokens in" in text
        for planted in (
            PROMPT,
            PROMPT[8:40],
            ANSWER,
            "instructions of the house",
            TOKEN,
            KEY,
            secret,
            "\x1b",
            "\u202e",
        ):
            assert planted not in text
        assert not re.search("^12:00:00 ERROR forged", text, re.MULTILINE)
    assert all(len(line) < 12_000 for line in written.splitlines())


async def test_what_tools_say_does_not_get_into_a_log(tmp_path: Path, terminal: io.StringIO) -> None:
    """Not by a tool that fails, and not by an engine that quotes a result in its error; names of models stay."""
    found = "Planted note about the orchid: the key is under the third pot"

    async def read_note() -> str:
        """Read a note."""
        return found

    async def break_down() -> str:
        """Break down."""
        raise ValueError(found)

    model = "a-model-with-a-long-name-7b"
    async with SimulatedLMStudio([SimulatedModel(model, loaded_context_length=8192)]) as studio:
        studio.enqueue(
            Script(ToolCall("read_note"), ToolCall("break_down")),
            Script("Well, ", Error(f"{model} cannot read: {found}")),
        )
        tools = [own_tool(read_note), own_tool(break_down)]
        text = settings_for(studio.base_url, agents=AGENT.replace("tiny", model))
        async with serve(tmp_path, text, toolbox=lambda _: tools) as served:
            await served.chat_frames("writer", f"{PROMPT} with {model}")
    said = terminal.getvalue()
    assert "break_down failed" in said
    assert re.search(rf"reports an error: {model} cannot .*\[\.\.\.\]$", said, re.MULTILINE)
    assert found[:24] not in said
    assert found[24:] not in said


async def test_the_settings_in_force_are_told_once(served: Served, tmp_path: Path) -> None:
    """With their sources; secrets and texts for models only as that they are there."""
    first, *others = lines(tmp_path)
    assert first["settings"]["providers[0].api_key"].startswith("env:LM_API_TOKEN, set")
    assert first["settings"]["agents[0].model"].startswith("'tiny' (")
    assert "characters" in first["settings"]["agents[0].instructions"]
    assert not [line for line in others if "settings" in line]


async def test_the_tail_is_bounded_and_checked(served: Served) -> None:
    """`tail` is how many lines come, the newest last; nonsense is a 400 that says so."""
    for _ in range(5):
        async with served.http.get(f"{served.url}/v1/models") as response:
            await response.read()
    async with served.http.get(f"{served.url}/api/logs?tail=2") as response:
        found = (await response.json())["data"]
    assert [line["route"] for line in found] == ["/v1/models", "/v1/models"]
    assert {"time", "level", "message", "request"} <= found[0].keys()
    for wrong in ("0", "-1", "many", "1.5", ""):
        async with served.http.get(f"{served.url}/api/logs", params={"tail": wrong}) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] == "tail"


async def test_the_logs_ask_for_the_token(served: Served) -> None:
    """They are no public page."""
    async with served.http.get(f"{served.url}/api/logs", headers={"Authorization": "Bearer no"}) as response:
        assert response.status == 401


async def test_a_client_that_leaves_has_its_line(served: Served, studio: SimulatedLMStudio, tmp_path: Path) -> None:
    """Its status is 499, as nobody was there to be answered."""
    studio.tokens_per_second = 1
    studio.enqueue(ANSWER)
    asked = asyncio.create_task(served.chat("writer", PROMPT))
    await studio.wait_until(lambda: studio.chats)
    asked.cancel()
    await asyncio.wait([asked])
    await studio.wait_until(lambda: requests(tmp_path))
    assert requests(tmp_path)[0]["status"] == 499


async def test_polling_leaves_no_lines(served: Served, tmp_path: Path) -> None:
    """What the page and `elbowroom status --watch` ask for again and again does not push the rest out of the log."""
    for path in ("/health", "/api/logs", "/api/live", "/api/providers", "/v1/conversations?limit=5"):
        async with served.http.get(served.url + path) as response:
            assert response.status == 200
    assert requests(tmp_path) == []


async def test_what_the_page_reads_leaves_no_lines_and_what_it_changes_does(served: Served, tmp_path: Path) -> None:
    """Who looks at the log on the page sees others' requests, and the page's failures and changes."""
    own = {"Sec-Fetch-Site": "same-origin"}
    async with served.http.get(served.url + "/", headers={"Sec-Fetch-Site": "none"}) as response:
        assert response.status == 200
    for path in ("/", "/page/app.js", "/api/settings", "/api/agents", "/v1/conversations?q=tides"):
        async with served.http.get(served.url + path, headers=own) as response:
            assert response.status == 200
    async with served.http.head(
        served.url + "/page/icon.svg", headers=own
    ) as response:  # each second, to see it is there
        assert response.status == 200
    assert requests(tmp_path) == []
    change = {"compaction": {"retain_last_turns": 2}}
    async with served.http.patch(served.url + "/api/settings", json=change, headers=own) as response:
        assert response.status == 200
    async with served.http.get(served.url + "/v1/conversations/none", headers=own) as response:
        assert response.status == 404
    async with served.http.get(served.url + "/api/settings") as response:
        assert response.status == 200
    assert [line["method"] for line in requests(tmp_path)] == ["PATCH", "GET", "GET"]


SPOKEN = """
import logging
from elbowroom.logs.set_up import log_to_terminal
log_to_terminal({level!r})
logging.getLogger("elbowroom.x").info("ours")
logging.getLogger("mcp.client").info("Received session ID: 123")
logging.getLogger("mcp.client").warning("a warning")
"""


@pytest.mark.parametrize(("level", "is_told"), [("info", False), ("debug", True)])
def test_libraries_do_not_chatter_at_the_terminal(level: str, is_told: bool) -> None:
    """What libraries say below a warning, such as the ids of sessions, is for `debug` alone."""
    command = [sys.executable, "-c", SPOKEN.format(level=level)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "ours" in said
    assert "a warning" in said
    assert ("session ID" in said) is is_told


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
async def test_the_program_logs_to_its_data_folder(tmp_path: Path) -> None:
    """`elbowroom serve` does, and one whose log folder cannot be written says so once and serves all the same."""
    async with fake_upstream({}) as upstream:
        settings = tmp_path / "settings.toml"
        settings.write_text(settings_for(upstream.url), encoding="utf-8")
        variables = {"ELBOWROOM_DATA_DIR": str(tmp_path)}
        async with running(tmp_path, "serve", "--config", str(settings), variables=variables) as program:
            await program.address()
            assert await program.end(signal.SIGTERM) == 0
        assert lines(tmp_path)[0]["message"] == "The settings in force."
        other = tmp_path / "other"
        other.mkdir()
        (other / "logs").write_text("no folder", encoding="utf-8")
        variables = {"ELBOWROOM_DATA_DIR": str(other)}
        async with running(tmp_path, "serve", "--config", str(settings), variables=variables) as program:
            await program.address()
            assert await program.end(signal.SIGTERM) == 0
        assert program.said.count("cannot be written") == 1
