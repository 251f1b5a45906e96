"""A recorded answer, cut at every byte: never taken for a whole one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from fake_upstream import byte_server, chunk, read_request
from outcome import chat
from serving import serve, settings_for

from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider, StreamEvent, TextDelta, ToolCallDelta
from elbowroom.providers.openai_compatible import OpenAICompatible
from elbowroom.providers.upstream import open_session

USAGE = {"prompt_tokens": 17, "completion_tokens": 3, "total_tokens": 20}
CALL = {"tool_calls": [{"index": 0, "id": "0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]}
FRAMES = [
    b": reading\n\n",
    chunk({"role": "assistant", "content": "Gr\u00fc\u00dfe "}),
    chunk({"role": "assistant", "content": "\U0001f600"}),
    chunk(CALL),
    chunk({}, "tool_calls"),
    b"data: " + json.dumps({"model": "m", "choices": [], "usage": USAGE}).encode() + b"\r\n\r\n",
    b"data: [DONE]\n\n",
]
STREAM = b"".join(FRAMES)
FINISHED_AT = sum(map(len, FRAMES[:5])) - 2  # from here on the finish_reason has arrived; its blank line may not have
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(STREAM)


class Cutter:
    """Answers every request with `answer` and closes the connection."""

    def __init__(self) -> None:
        self.answer = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        await read_request(reader)
        writer.write(self.answer)
        await writer.drain()


class Upstream(OpenAICompatible):
    """A provider whose errors name it."""

    name = "Upstream"


@asynccontextmanager
async def cut_endpoint() -> AsyncIterator[tuple[Cutter, Provider]]:
    """Run a cutter and make a provider that asks it."""
    cutter = Cutter()
    async with byte_server(cutter) as port, open_session() as http:
        yield cutter, Upstream("u", f"http://127.0.0.1:{port}/v1", http)


async def read_whole(endpoint: Provider) -> bytes:
    """Return a whole answer that is passed on."""
    async with endpoint.passed("chat/completions", {}) as answer:
        return await answer.text("other")


async def read_stream(endpoint: Provider) -> tuple[list[StreamEvent], ElbowroomError | None]:
    """Return what a streamed answer said, and how it failed."""
    said: list[StreamEvent] = []
    try:
        async with aclosing(endpoint.stream({"stream": True}, ModelInfo("m", "u", "m"))) as answer:
            async for events in answer:
                said += events
    except ElbowroomError as error:
        return said, error
    return said, None


def chunked(data: bytes) -> bytes:
    """Return one HTTP chunk, complete."""
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(UNTIL_CLOSED, id="until closed"),
        pytest.param(WITH_LENGTH, id="with length", marks=pytest.mark.long),
        pytest.param(CHUNKED, id="chunked", marks=pytest.mark.long),
    ],
)
async def test_a_stream_cut_at_every_byte_is_never_a_success(head: bytes) -> None:
    """Before the finish_reason is there, every cut is a failure, and what was said before it is a true beginning."""
    async with cut_endpoint() as (cutter, endpoint):
        for at in range(len(STREAM)):
            body = STREAM[:at]
            cutter.answer = head + (chunked(body) if head is CHUNKED and body else body)
            said, error = await read_stream(endpoint)
            assert "Gr\u00fc\u00dfe \U0001f600".startswith("".join(e.text for e in said if isinstance(e, TextDelta)))
            if at < FINISHED_AT:
                assert error is not None, f"cut at byte {at}: {STREAM[:at][-60:]!r}"
            assert error is None or error.message.startswith("Upstream") or "Upstream" in error.message


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, len(STREAM)])
async def test_however_the_bytes_are_cut_into_chunks_the_answer_is_the_same(size: int) -> None:
    """Chunks of one byte, of odd sizes, or one chunk: the same events."""
    async with cut_endpoint() as (cutter, endpoint):
        parts = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
        cutter.answer = CHUNKED + b"".join(map(chunked, parts)) + b"0\r\n\r\n"
        said, error = await read_stream(endpoint)
    assert error is None
    assert "".join(event.text for event in said if isinstance(event, TextDelta)) == "Gr\u00fc\u00dfe \U0001f600"
    assert [event for event in said if isinstance(event, ToolCallDelta)] == [ToolCallDelta(0, "f", '{"a": 1}')]


async def test_a_whole_answer_needs_neither_done_nor_usage() -> None:
    """The finish_reason is the end: some servers send no [DONE], some leave out the last blank line."""
    async with cut_endpoint() as (cutter, endpoint):
        for body in (b"".join(FRAMES[:5]), b"".join(FRAMES[:5])[:-2], STREAM[:-1], STREAM[:-2]):
            cutter.answer = UNTIL_CLOSED + body
            said, error = await read_stream(endpoint)
            assert error is None
            assert len([event for event in said if isinstance(event, ToolCallDelta)]) == 1


async def test_a_completion_cut_at_every_byte_is_never_a_success() -> None:
    """The same for an answer in one piece, whether its length was named or not."""
    whole = json.dumps({"model": "m", "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).encode()
    heads = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(whole),
    )
    async with cut_endpoint() as (cutter, endpoint):
        for head in heads:
            for at in range(len(whole)):
                cutter.answer = head + whole[:at]
                with pytest.raises(ElbowroomError):
                    await read_whole(endpoint)
                assert (await read_stream(endpoint))[1] is not None
            cutter.answer = head + whole
            assert json.loads(await read_whole(endpoint))["model"] == "other"


async def test_a_head_cut_at_every_byte_is_never_a_success() -> None:
    """A response that does not even get through its headers, or is no HTTP at all."""
    async with cut_endpoint() as (cutter, endpoint):
        for at in range(len(UNTIL_CLOSED)):
            cutter.answer = UNTIL_CLOSED[:at]
            assert (await read_stream(endpoint))[1] is not None
        for nonsense in (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"\x15\x03\x01\x00\x02\x02\x46",
            b"220 mail ready\r\n",
            b"\x00" * 100,
        ):
            cutter.answer = nonsense
            error = (await read_stream(endpoint))[1]
            assert error is not None
            assert error.status == 502


@pytest.mark.fault("cut stream", "streaming", "words kept, error frame")
@pytest.mark.parametrize("streamed", [True, False])
async def test_cuts_reach_the_client_as_errors(tmp_path: Path, *, streamed: bool) -> None:
    """Through the whole server: text and an error frame, or a status; a success only once the finish was there."""
    cutter = Cutter()
    async with (
        byte_server(cutter) as port,
        serve(tmp_path, settings_for(f"http://127.0.0.1:{port}", kind="openai")) as served,
    ):
        for at in [*range(0, len(STREAM), 23), FINISHED_AT - 1]:
            cutter.answer = UNTIL_CLOSED + STREAM[:at]
            outcome = await chat(served, "openai/m", stream=streamed)
            if at < FINISHED_AT or not streamed:
                assert outcome.error is not None, at
        cutter.answer = UNTIL_CLOSED + STREAM
        assert (await chat(served, "openai/m", stream=True)).error is None
