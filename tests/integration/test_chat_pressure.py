"""Slow clients, silent models, many chats at once."""

import asyncio
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from chatting import (
    MODEL,
    chat_body,
    chunks_of,
    delta_frame,
    elbowroom_with_studio,
    eventually,
    split_frames,
    stream_bytes,
)
from own_tools import own_tool
from serving import Served, text_of

from elbowroom.demo import Raw, Script, SimulatedLMStudio, SimulatedModel, Text, ToolCall
from elbowroom.server.state import Timing

PIECE = "~~~~~~~ " * 8192  # words are counted faster than one long run of a sign
PIECES = 256
MEBIBYTE = 1024 * 1024


def roomy() -> SimulatedModel:
    """Return a model whose window holds more than any answer here."""
    return SimulatedModel(MODEL, max_context_length=1_000_000_000, loaded_context_length=1_000_000_000)


def flood(studio: SimulatedLMStudio) -> None:
    """Let the model say sixteen mebibytes; between the pieces, one token each tells how far it got."""
    large = Raw(delta_frame({"content": PIECE}))
    steps = [step for _ in range(PIECES) for step in (large, Text(".", whole=True))]
    studio.enqueue(Script(*steps))


@asynccontextmanager
async def reader_that_waits(served: Served, body: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """Ask over a socket with a small buffer, and read no byte that the block does not read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", served.port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=16 * 1024)
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    try:
        yield reader
    finally:
        writer.transport.abort()


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Tell how many bytes have been taken since the block began, whatever the process has from other tests."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


async def stalled(studio: SimulatedLMStudio) -> int:
    """Return how many tokens the model has said once it says no more."""
    said = -1
    while said != studio.chats[0].completion_tokens:
        said = studio.chats[0].completion_tokens
        await asyncio.sleep(0.3)
    return said


@pytest.mark.slow
@pytest.mark.fault("slow reader", "streaming", "the engine is read no faster")
async def test_slow_client_pauses_the_model(tmp_path: Path) -> None:
    """While a client does not read, the upstream is not read on and nothing piles up; then it gets every byte."""
    async with elbowroom_with_studio(tmp_path, model=roomy()) as (served, studio):
        await served.chat("writer")  # what is loaded with the first chat is not what is measured
        flood(studio)
        async with reader_that_waits(served, chat_body(stream=True)) as reader:
            with traced_memory() as taken:
                await eventually(lambda: studio.chats and studio.chats[0].completion_tokens > 5, "nothing came")
                said = await stalled(studio)
                assert said < PIECES * 0.8, "the upstream was read to its end"
                assert taken() < 13 * MEBIBYTE
            assert (await served.chat("writer", "Others are served meanwhile."))["choices"]
            received = bytearray()
            while part := await reader.read(1 << 20):
                received += part
        assert received.count(b"~") == PIECES * PIECE.count("~")
        assert received.count(b"data: [DONE]") == 1


@pytest.mark.slow
@pytest.mark.fault("slow reader", "streaming", "dropped after the limit")
async def test_client_that_stops_reading_is_dropped(tmp_path: Path) -> None:
    """A client that reads nothing for longer than the write limit is cut off: upstream and socket are freed."""
    async with elbowroom_with_studio(tmp_path, model=roomy(), timing=Timing(write=0.3)) as (served, studio):
        flood(studio)
        async with reader_that_waits(served, chat_body(stream=True)):
            await eventually(lambda: studio.disconnects, "the upstream goes on for a client that does not read")
            await eventually(lambda: not connections_to(served.port), "the client's socket stays open", 2.0)


@pytest.mark.slow
async def test_client_that_stops_reading_one_huge_frame(tmp_path: Path) -> None:
    """The write limit holds also for a single frame that is larger than all buffers."""
    async with elbowroom_with_studio(tmp_path, model=roomy(), timing=Timing(write=0.3)) as (served, studio):
        huge = Raw(delta_frame({"content": "x" * (14 * MEBIBYTE)}))
        studio.enqueue(Script(huge, huge))
        async with reader_that_waits(served, chat_body(stream=True)):
            await eventually(lambda: studio.disconnects, "the upstream goes on for a client that does not read")


def connections_to(port: int) -> list[Any]:
    """Return the open server-side sockets of this port."""
    return [
        one
        for one in psutil.Process().net_connections("tcp4")
        if one.laddr.port == port and one.status in (psutil.CONN_ESTABLISHED, psutil.CONN_FIN_WAIT1)
    ]


@pytest.mark.slow
@pytest.mark.fault("silence before the headers", "first", "comments keep the connection")
async def test_keep_alive_during_prefill(tmp_path: Path) -> None:
    """While the model reads the prompt, comments keep the connection open; they stand between frames only."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=0.05)) as (served, studio):
        studio.prefill_tokens_per_second = 50
        stream = await stream_bytes(served, chat_body("word " * 20))
        assert stream.startswith(b": elbowroom\n\n")
        first = chunks_of(stream)[0]
        assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}


async def test_keep_alive_while_a_server_tool_runs(tmp_path: Path) -> None:
    """While a tool works, comments follow the text so far."""

    @own_tool
    async def work() -> str:
        """Work for a while."""
        await asyncio.sleep(0.3)
        return "done"

    timing = Timing(keep_alive=0.05)
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work], timing=timing) as (served, studio):
        studio.enqueue(Script("Working.", ToolCall("work")), "Done.")
        stream = await stream_bytes(served, chat_body())
        assert text_of(chunks_of(stream)) == "Working.\n\nDone."
        said = stream.index(b"Work")
        assert said < stream.index(b": elbowroom\n\n", said) < stream.index(b"Done")


async def test_failure_after_comments_only_is_an_error_frame(tmp_path: Path) -> None:
    """A failure that comes after a comment cannot have a status any more: it is a frame."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=0.02)) as (served, studio):
        studio.prefill_tokens_per_second = 100
        studio.enqueue(Script(usage=None))
        [frame] = split_frames(await stream_bytes(served, chat_body("word " * 20)))
        assert json.loads(frame)["error"]["code"] == "upstream_empty"


async def test_no_comment_while_text_flows(tmp_path: Path) -> None:
    """Comments fill silence only."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=5.0)) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue("word " * 20)
        assert b": elbowroom" not in await stream_bytes(served, chat_body())


async def test_two_chats_at_once_never_mix(tmp_path: Path) -> None:
    """Two conversations with one agent, tools included, keep their words, calls and results to themselves."""

    @own_tool
    async def echo(value: str) -> str:
        """Say it again after a while."""
        await asyncio.sleep(0.01)
        return f"echo {value}"

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [echo]) as (served, studio):
        studio.on_request = _answer_by_name
        names = ["alpha", "beta"]
        streams = await asyncio.gather(*(stream_bytes(served, chat_body(name)) for name in names))
        for name, stream, other in zip(names, streams, reversed(names), strict=True):
            text = text_of(chunks_of(stream))
            assert text.split() == [name] * 60
            assert other not in text
        for chat in studio.chats:
            sent = json.dumps(chat.body["messages"])
            assert ("alpha" in sent) != ("beta" in sent)


@pytest.mark.slow
@pytest.mark.parametrize("count", [40, pytest.param(100, marks=pytest.mark.long)])
async def test_many_streams_at_once(tmp_path: Path, count: int) -> None:
    """Dozens of chats through one model all end well, each with its own words."""
    model = SimulatedModel(MODEL, loaded_context_length=32_768, parallel=count)
    async with elbowroom_with_studio(tmp_path, model=model) as (served, studio):
        studio.on_request = _answer_by_name
        names = [f"name{number}" for number in range(count)]
        answers = await asyncio.gather(*(stream_bytes(served, chat_body(name)) for name in names))
        for name, answer in zip(names, answers, strict=True):
            assert text_of(chunks_of(answer)).split() == [name] * 30
        ids = {chunks_of(answer)[0]["id"] for answer in answers}
        assert len(ids) == count


def _answer_by_name(body: dict[str, Any]) -> Script:
    """Repeat the user's one word, and have agents with an echo tool use it once."""
    name = next(message["content"] for message in body["messages"] if message["role"] == "user")
    words = Text(f"{name} " * 30)
    answered = body["messages"][-1]["role"] == "tool"
    return Script(words) if answered or not body.get("tools") else Script(words, ToolCall("echo", {"value": name}))
