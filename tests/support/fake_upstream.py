"""Upstreams that a test makes up: one that answers by path, one that says exact bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """Its body, parsed."""
        return json.loads(self.raw)


@dataclass(slots=True)
class FakeUpstream:
    """A server whose `answers` may be changed at any time; what is not among them is a 404. `asked` is its journal."""

    answers: dict[str, Answer]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.method, request.path, request.headers.copy(), await request.read()))
        answer = self.answers.get(request.path)
        return await answer(request) if answer else web.Response(status=404)

    def asked_at(self, path: str) -> list[Asked]:
        """Return the requests that came for this path."""
        return [asked for asked in self.asked if asked.path == path]


@asynccontextmanager
async def fake_upstream(answers: Mapping[str, Answer]) -> AsyncIterator[FakeUpstream]:
    """Run a fake upstream on 127.0.0.1 and a free port."""
    fake = FakeUpstream(dict(answers))
    app = web.Application(client_max_size=2**28)
    app.router.add_route("*", "/{path:.*}", fake._answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield fake
    finally:
        await runner.cleanup()


def says(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Answer with this: bytes or a str as they stand, anything else as JSON."""

    async def answer(_: web.Request) -> web.Response:
        if isinstance(body, bytes):
            return web.Response(body=body, status=status, headers=headers)
        if isinstance(body, str):
            return web.Response(text=body, status=status, headers=headers)
        return web.json_response(body, status=status, headers=headers)

    return answer


def streams(*parts: bytes) -> Answer:
    """Answer with a stream of server-sent events, written part by part."""
    return says_in_parts(*parts, content_type="text/event-stream")


def says_in_parts(*parts: bytes, content_type: str, status: int = 200) -> Answer:
    """Answer with a body that arrives in several packets."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0.02)
        return response

    return answer


def chunk(delta: Mapping[str, Any], finish_reason: str | None = None, **fields: Any) -> bytes:
    """Return one frame of a chat stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"model": "m", "choices": [choice], **fields}).encode() + b"\n\n"


def completion(text: str = "Hi", **fields: Any) -> dict[str, Any]:
    """Return a whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]} | fields


@asynccontextmanager
async def byte_server(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """Run `talk` for every connection on 127.0.0.1 and close the connection after it; yields the port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await talk(reader, writer)
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
        await server.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return the request line and the body of the next request on a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lengths = [line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length:")]
    body = await reader.readexactly(int(lengths[0])) if lengths else b""
    return head.split("\r\n")[0], body
