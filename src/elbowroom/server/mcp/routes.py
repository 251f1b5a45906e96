"""`/mcp`: the protocol over HTTP; `/api/recall/{tool}`: one call of a tool, for the program that speaks it by pipes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from elbowroom.errors import NotFound, RequestError
from elbowroom.server.conversations import owner_asking
from elbowroom.server.encode import to_json
from elbowroom.server.mcp.tools import MCP_TOOLS, Past
from elbowroom.server.request import read_json
from elbowroom.server.state import SHARED

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

MOST_BYTES: Final = 262_144
ASKED_BY: Final = "elbowroom.request"
SERVING: web.AppKey["Serving"] = web.AppKey("SERVING")
BY_NAME: Final = {tool.name: tool for tool in MCP_TOOLS}
NO_BODY_HEADERS: Final = frozenset({b"content-length", b"connection", b"transfer-encoding"})


def add_mcp_routes(app: web.Application) -> None:
    """Add the routes; the protocol's library is loaded with the first request."""
    app[SERVING] = Serving()
    app.cleanup_ctx.append(_served)
    app.router.add_post("/mcp", serve_mcp)
    app.router.add_post("/api/recall/{tool}", call_tool)


async def call_tool(request: web.Request) -> web.Response:
    """Answer a call of one tool with its text."""
    written = await read_json(request, MOST_BYTES)
    if not isinstance(written, dict):
        raise RequestError("The body has to be the arguments of the tool, as a JSON object.")
    text = await _answered(request, request.match_info["tool"], written)
    return web.json_response({"text": text}, dumps=to_json)


async def _answered(request: web.Request, name: str, written: Mapping[str, Any]) -> str:
    if (tool := BY_NAME.get(name)) is None:
        raise NotFound(f"There is no tool {name[:40]!r}, but {', '.join(BY_NAME)}.")
    shared = request.app[SHARED]
    return await tool.call(Past(shared.store, shared.notes.pasts), owner_asking(request), written)


async def serve_mcp(request: web.Request) -> web.Response:
    """Answer one message of the protocol, which needs no session: each is complete in itself."""
    body = await request.content.read(MOST_BYTES + 1)
    while len(body) <= MOST_BYTES and (more := await request.content.read(MOST_BYTES + 1 - len(body))):
        body += more
    if len(body) > MOST_BYTES:
        raise RequestError(f"A message of the protocol has at most {MOST_BYTES:,} bytes.")
    return await _by_asgi(request, body, await request.app[SERVING].manager())


async def _by_asgi(request: web.Request, body: bytes, manager: "StreamableHTTPSessionManager") -> web.Response:
    """Hand a request to the library, which speaks ASGI, and return its answer."""
    parts, headers, status = [{"type": "http.request", "body": body}], dict[str, str](), 500
    content = bytearray()
    is_over = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop()
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.update(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message.get("headers", ())
                if name.lower() not in NO_BODY_HEADERS
            )
        else:
            content.extend(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": request.query_string.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": None,
        "server": None,
        ASKED_BY: request,
    }
    try:
        await manager.handle_request(scope, receive, send)
    finally:
        is_over.set()
    return web.Response(body=bytes(content), status=status, headers=headers)


class Serving:
    """Speaks the protocol over HTTP from the first request on; its library's tasks live in a task of their own."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._made: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._ends = asyncio.Event()

    async def manager(self) -> "StreamableHTTPSessionManager":
        """Return the library's part that answers requests."""
        if self._made is None or (self._made.done() and self._made.exception() is not None):
            self._made = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._made))
        return await asyncio.shield(self._made)

    async def _run(self, made: "asyncio.Future[StreamableHTTPSessionManager]") -> None:
        try:
            manager = await asyncio.to_thread(_new_manager)
            async with manager.run():
                made.set_result(manager)
                await self._ends.wait()
        except BaseException as error:
            if not made.done():
                made.set_exception(error)
            raise

    async def aclose(self) -> None:
        """End what runs."""
        self._ends.set()
        if self._task is not None:
            await asyncio.wait([self._task])


def _new_manager() -> "StreamableHTTPSessionManager":
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from elbowroom.server.mcp.protocol import mcp_server

    async def call(asked: Any, name: str, written: Mapping[str, Any]) -> str:
        return await _answered(asked.scope[ASKED_BY], name, written)

    return StreamableHTTPSessionManager(mcp_server(call), json_response=True, stateless=True)


async def _served(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[SERVING].aclose()
