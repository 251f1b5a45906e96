"""A program that speaks just enough of MCP to be called, and answers with as many megabytes as it is asked for."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

MEGABYTE = 1024 * 1024
SCHEMA = {"type": "object", "properties": {"megabytes": {"type": "number"}, "id_comes_last": {"type": "boolean"}}}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    method, parameters = request["method"], request.get("params", {})
    if method == "initialize":
        about = {"name": "large", "version": "1"}
        version = parameters["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": "fetch", "inputSchema": SCHEMA}]}}
    if method == "tools/call":
        text = "a line of text\n" * int(parameters["arguments"]["megabytes"] * MEGABYTE / 15)
        return {"result": {"content": [{"type": "text", "text": text}]}}
    return {"error": {"code": -32601, "message": "Method not found"}}


@asynccontextmanager
async def large_server_on_http(*, events: bool) -> AsyncIterator[str]:
    """Serve the same over HTTP, each answer as an event or as JSON; yield the address."""

    async def post(request: web.Request) -> web.Response:
        asked = await request.json()
        if "id" not in asked:
            return web.Response(status=202)
        reply = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer(asked)})
        if events:
            return web.Response(text=f"event: message\ndata: {reply}\n\n", content_type="text/event-stream")
        return web.Response(text=reply, content_type="application/json")

    app = web.Application()
    app.router.add_post("/mcp", post)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            head = {"jsonrpc": "2.0", "id": request["id"]}
            comes_last = request.get("params", {}).get("arguments", {}).get("id_comes_last")
            reply = {**answer(request), **head} if comes_last else {**head, **answer(request)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
