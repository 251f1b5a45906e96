"""Client libraries of other people, each in its own language and process: streams, tools, errors, stopping.

scripts/client_libraries runs these and writes what came of it into docs/clients.md.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from chatting import RAW_MODEL, elbowroom_with_studio, eventually, function_spec
from client_libraries import LIBRARIES, Heard, Library, LibraryUnavailableError, asking, installed
from long_answer import FIRST, LOG, writes_the_log
from patient_counting import wait_for_counts
from recording_relay import RecordingRelay
from serving import Served, parse_frames
from small_window import ANSWER, history, orders_of, small_window, turns_of

from elbowroom.demo import Error, Pause, Script, ToolCall, WaitFor

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]
Body = dict[str, Any]


@pytest.fixture(params=LIBRARIES.values(), ids=[*LIBRARIES])
def library(request: pytest.FixtureRequest) -> Library:
    """Each library in turn."""
    chosen: Library = request.param
    return chosen


@cache
def command_or_reason(folder: str) -> list[str] | str:
    """Install the libraries of a folder where that is not done yet; return why it cannot be done, where it cannot."""
    try:
        return installed(folder, platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    except LibraryUnavailableError as error:
        return str(error)


@pytest.fixture
def command(library: Library) -> list[str]:
    """Return how to run the library; skip where it cannot be had."""
    found = command_or_reason(library.folder)
    if isinstance(found, str):
        pytest.skip(found)
    return found


class Asking:
    """A library in front of a server, with what went over the wire."""

    def __init__(self, command: list[str], library: Library, relay: RecordingRelay) -> None:
        self._command = command
        self._library = library
        self._relay = relay

    async def __call__(self, scenario: str, messages: list[Body], model: str = "writer", **fields: Any) -> Heard:
        """Have it play a scenario to the end."""
        request = {"model": model, "messages": messages, **fields}
        base = f"{self._relay.base_url}/v1"
        async with asking(self._command, self._library, base, scenario, request) as runner:
            return await runner.ended()

    def chunks(self) -> list[Any]:
        """Every chunk that went to the library."""
        frames = [frame for sent in self._relay.requests for frame in parse_frames(bytes(sent.answer))]
        return [frame for frame in frames if frame != "[DONE]"]


@asynccontextmanager
async def in_front_of(served: Served, command: list[str], library: Library) -> AsyncIterator[Asking]:
    """Put the library in front of a server."""
    async with RecordingRelay(served.url) as relay:
        yield Asking(command, library, relay)


def said(text: str) -> list[Body]:
    """Return a history of one question."""
    return [{"role": "user", "content": text}]


async def test_stream_with_a_compaction_in_the_middle(
    tmp_path: Path, command: list[str], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is compacted while it is written: its text arrives as one, every chunk is read, usage adds up."""
    wait_for_counts(monkeypatch)
    async with (
        small_window(tmp_path, writes_the_log) as (served, studio),
        in_front_of(served, command, library) as ask,
    ):
        heard = await ask("stream", FIRST, RAW_MODEL)
        assert heard.error == {}
        assert heard.text == LOG
        assert len(turns_of(studio)) > 1
        assert orders_of(studio)
        sent = ask.chunks()
    chunks = [frame for frame in sent if "choices" in frame]  # none of them where responses are asked for
    assert any("event" in chunk for chunk in chunks) == bool(chunks), "nobody was told of the compaction"
    assert heard.end["finish"] == "stop"
    assert heard.end["chunks"] >= len([chunk for chunk in chunks if chunk["choices"]])
    usage = chunks[-1]["usage"]["completion_tokens"] if chunks else sent[-1]["response"]["usage"]["output_tokens"]
    assert str(usage) in str(heard.end["usage"])


async def test_whole_answer_after_a_compaction(
    tmp_path: Path, command: list[str], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without streaming, a conversation that has outgrown the window is compacted and answered the same."""
    wait_for_counts(monkeypatch)
    async with small_window(tmp_path) as (served, studio), in_front_of(served, command, library) as ask:
        heard = await ask("whole", history(12))
        assert heard.error == {}
        assert orders_of(studio)
    assert heard.text == ANSWER
    assert heard.end["finish"] == "stop"
    assert heard.end["usage"]


async def test_loop_of_tools(tmp_path: Path, command: list[str], library: Library) -> None:
    """The library's own loop runs two calls at once and a third after them, and gives the answer."""
    async with elbowroom_with_studio(tmp_path) as (served, studio), in_front_of(served, command, library) as ask:
        studio.enqueue(
            Script("Looking. ", ToolCall("read_note", {"path": "a.md"}), ToolCall("read_note", {"path": "ä b.md"})),
            Script(ToolCall("read_note", {"path": "c.md"})),
            "Found all three.",
        )
        heard = await ask("tools", said("Which pier?"), tools=[function_spec("read_note")])
        assert heard.error == {}
        assert heard.end["calls"] == ["a.md", "ä b.md", "c.md"]
        assert heard.text.endswith("Found all three.")
        told = [message["content"] for message in studio.chats[-1].body["messages"] if message["role"] == "tool"]
        assert told == [f"The note at {path} says: pier nine." for path in ("a.md", "ä b.md", "c.md")]


@pytest.mark.parametrize("scenario", ["stream", "whole"])
async def test_overflow(tmp_path: Path, command: list[str], library: Library, scenario: str) -> None:
    """A question that does not fit, too short for pasted text, is a 400 with OpenAI's code and the numbers."""
    async with small_window(tmp_path) as (served, _), in_front_of(served, command, library) as ask:
        heard = await ask(scenario, said("word " * 1500))
    assert heard.error["status"] == 400
    assert "context_length_exceeded" in str(heard.error)
    assert "1000 tokens" in heard.error["message"]


async def test_error_in_the_middle(tmp_path: Path, command: list[str], library: Library) -> None:
    """The text until then has arrived, and the library raises the error with its words."""
    async with elbowroom_with_studio(tmp_path) as (served, studio), in_front_of(served, command, library) as ask:
        studio.enqueue(Script("Half an answer", Pause(0.02), Error("The model has crashed.")))
        heard = await ask("stream", said("Hello"))
    assert heard.text == "Half an answer"
    assert heard.error["text"] == heard.text
    assert "The model has crashed." in heard.error["message"]


async def test_upstream_that_is_down(tmp_path: Path, command: list[str], library: Library) -> None:
    """While LM Studio is down, the error says what to start."""
    async with elbowroom_with_studio(tmp_path) as (served, studio), in_front_of(served, command, library) as ask:
        await studio.stop()
        heard = await ask("stream", said("Hello"))
    assert heard.error["status"] == 503
    assert "lms server start" in heard.error["message"]


async def test_stop(tmp_path: Path, command: list[str], library: Library) -> None:
    """A stream that the library aborts ends at the model too."""
    async with elbowroom_with_studio(tmp_path) as (served, studio), in_front_of(served, command, library) as ask:
        studio.enqueue(Script("Half", WaitFor(asyncio.Event())))
        heard = await ask("stop", said("Hello"))
        assert heard.text == "Half"
        await eventually(lambda: studio.disconnects, "the model goes on for nobody")
