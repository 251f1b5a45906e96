"""An MCP server with tools of every kind, for tests; it writes down what it is asked in a journal file."""

import asyncio
import base64
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError, types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HUGE = 5_000_000
ODD_NAME = "odd.name/ü"

Result = types.CallToolResult
Answer = Callable[[dict[str, Any]], Awaitable[Result]]


def said(text: str, **fields: Any) -> Result:
    """Return a result of one text."""
    return Result(content=[types.TextContent(type="text", text=text)], **fields)


class SampleServer:
    """The server; `is_old` makes it one that does not know the latest protocol."""

    def __init__(self, journal: Path, *, is_old: bool = False) -> None:
        self._journal = journal
        self._is_old = is_old
        self._met = 0
        self._all_met = asyncio.Event()
        self._bus = InMemorySubscriptionBus()
        self._added: list[types.Tool] = []
        self._calls: dict[str, Answer] = {
            name.removeprefix("_call_"): getattr(self, name) for name in dir(self) if name.startswith("_call_")
        }
        self._calls[ODD_NAME] = self._calls["echo"]
        self.server: Server[Any] = Server(
            "sample",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        if is_old:
            self.server.add_request_handler("server/discover", types.RequestParams, _unknown)

    def note(self, line: str) -> None:
        """Write a line into the journal."""
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    async def run_on_stdio(self) -> None:
        """Serve standard input and output until the input ends."""
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            options = self.server.create_initialization_options(NotificationOptions(tools_changed=True))
            if self._is_old:
                await serve_loop(self.server, read, write, lifespan_state={}, init_options=options)
            else:
                await self.server.run(read, write, options)

    async def _list(self, context: Any, parameters: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        self.note("list")
        reads, writes = types.ToolAnnotations(read_only_hint=True), types.ToolAnnotations(read_only_hint=False)
        hints = {"echo": reads, "pid": reads, "slow": reads, "die_once": reads, "append": writes}
        names = [*sorted(name for name in self._calls if name != ODD_NAME), ODD_NAME]
        tools = [
            types.Tool(name=name, description=f"Does {name}.", input_schema=_schema(name), annotations=hints.get(name))
            for name in names
        ]
        return types.ListToolsResult(tools=[*tools, *self._added])

    async def _call(self, context: Any, parameters: types.CallToolRequestParams) -> Result:
        if (answer := self._calls.get(parameters.name)) is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {parameters.name}")
        if parameters.name == "change":
            return await self._change(context)
        return await answer(parameters.arguments or {})

    async def _change(self, context: Any) -> Result:
        self._added = [types.Tool(name="added", description="Came later.", input_schema=NO_ARGUMENTS)]
        await self._bus.publish(ToolsListChanged())
        await context.session.send_tool_list_changed()
        return said("changed")

    async def _call_change(self, arguments: dict[str, Any]) -> Result:
        raise AssertionError("it needs the session")

    async def _call_echo(self, arguments: dict[str, Any]) -> Result:
        return said(str(arguments.get("text")))

    async def _call_pid(self, arguments: dict[str, Any]) -> Result:
        return said(str(os.getpid()))

    async def _call_slow(self, arguments: dict[str, Any]) -> Result:
        self.note("slow begun")
        try:
            await asyncio.sleep(arguments["seconds"])
        except asyncio.CancelledError:
            self.note("slow cancelled")
            raise
        return said("slept")

    async def _call_meet(self, arguments: dict[str, Any]) -> Result:
        self._met += 1
        if self._met == arguments["count"]:
            self._all_met.set()
        await self._all_met.wait()
        return said("met")

    async def _call_append(self, arguments: dict[str, Any]) -> Result:
        self.note("appended")
        await asyncio.sleep(arguments.get("seconds", 0))
        return said("appended")

    async def _call_die_once(self, arguments: dict[str, Any]) -> Result:
        if "died" in self._journal.read_text(encoding="utf-8"):
            return said("alive")
        self.note("died")
        os._exit(1)

    async def _call_fail(self, arguments: dict[str, Any]) -> Result:
        return said("the disk is full", is_error=True)

    async def _call_refuse(self, arguments: dict[str, Any]) -> Result:
        raise MCPError(types.INVALID_PARAMS, "the path is missing")

    async def _call_crash(self, arguments: dict[str, Any]) -> Result:
        raise ValueError("an error of its own")

    async def _call_huge(self, arguments: dict[str, Any]) -> Result:
        return said("ä" * HUGE)

    async def _call_structured(self, arguments: dict[str, Any]) -> Result:
        return Result(content=[], structured_content={"temperature": 21.5, "city": "Zürich"})

    async def _call_nothing(self, arguments: dict[str, Any]) -> Result:
        return Result(content=[])

    async def _call_mixed(self, arguments: dict[str, Any]) -> Result:
        blob = base64.b64encode(b"\0\1\2").decode()
        return Result(
            content=[
                types.TextContent(type="text", text="Two pictures:"),
                types.ImageContent(type="image", data=base64.b64encode(PIXEL).decode(), mime_type="image/png"),
                types.ImageContent(type="image", data="no base64!", mime_type="image/jpeg"),
                types.AudioContent(type="audio", data=blob, mime_type="audio/wav"),
                types.ResourceLink(type="resource_link", name="plan", uri="file:///plan.md", description="the plan"),
                types.EmbeddedResource(
                    type="resource", resource=types.TextResourceContents(uri="note://1", text="A note.")
                ),
                types.EmbeddedResource(type="resource", resource=types.BlobResourceContents(uri="blob://1", blob=blob)),
            ]
        )

    async def _call_environment(self, arguments: dict[str, Any]) -> Result:
        return said(json.dumps(dict(os.environ)))

    async def _call_noise(self, arguments: dict[str, Any]) -> Result:
        for _ in range(20):
            sys.stderr.write("x" * 100_000)
        sys.stderr.write("\nthe end of the noise\n")
        sys.stderr.flush()
        return said("done")


def _schema(name: str) -> dict[str, Any]:
    if name == "structured":
        kind = {"$defs": {"Unit": {"enum": ["C", "F"], "title": "Unit"}}}
        return {"type": "object", "properties": {"unit": {"$ref": "#/$defs/Unit"}}, **kind}
    return NO_ARGUMENTS


async def _unknown(context: Any, parameters: Any) -> Any:
    raise MCPError(types.METHOD_NOT_FOUND, "Method not found")


def _listener(address_file: Path) -> socket.socket:
    """Listen on the port that the file names, or else on a free one of 127.0.0.1, which is written into it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(address_file.read_text()) if address_file.exists() else 0))
    listener.listen(64)
    address_file.write_text(str(listener.getsockname()[1]))
    return listener


async def _serve_on_http(sample: SampleServer, listener: socket.socket) -> None:
    import uvicorn

    app = sample.server.streamable_http_app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    transport, journal, *options = sys.argv[1:]
    sample = SampleServer(Path(journal), is_old="--old" in options)
    if transport == "stdio":
        anyio.run(sample.run_on_stdio)
    else:
        anyio.run(_serve_on_http, sample, _listener(Path(options[0])))
