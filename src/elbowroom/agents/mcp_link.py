"""One connection to an MCP server, from its start to its end; lost once, it is not used again."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from agents.mcp import MCPServerManager
from mcp import MCPError, types
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen

from elbowroom.agents.mcp_failures import LinkLost, McpUnavailable
from elbowroom.agents.mcp_results import as_tool_result
from elbowroom.agents.mcp_tools import Call, McpTool, mcp_tools
from elbowroom.agents.mcp_transports import HttpServer, StdioServer, quieten_foreign_loggers
from elbowroom.agents.own_tool import ToolResult
from elbowroom.errors import ElbowroomError, SettingsError
from elbowroom.settings.paths import expanded
from elbowroom.settings.secrets import SecretRef
from elbowroom.settings.tool_sections import McpServerSettings

log = logging.getLogger(__name__)
CLEANUP_SECONDS: Final = 10.0
LISTEN_AGAIN_SECONDS: Final = 30.0


class McpLink:
    """A connected server. `tools` is what it offers; `is_stale` tells that it has said that this has changed."""

    def __init__(self, settings: McpServerSettings, folder: Path, environ: Mapping[str, str]) -> None:
        self.tools: list[types.Tool] = []
        self.is_stale = False
        self._settings = settings
        self._over = asyncio.Event()
        self._server = _server(settings, folder, environ, self._over.set)
        self._server.message_handler = self._take_note
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())

    @classmethod
    async def connect(cls, settings: McpServerSettings, folder: Path, environ: Mapping[str, str]) -> Self:
        """Connect and ask for the tools, all within `connect_timeout`.

        Raises McpUnavailable that says why it cannot be done.
        """
        quieten_foreign_loggers()
        link = cls(settings, folder, environ)
        try:
            await asyncio.shield(link._opened)
        except BaseException:
            await link.aclose()
            raise
        return link

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more can be asked."""
        return self._over.is_set()

    def offered(self, server: str, call: Call) -> list[McpTool]:
        """Return the tools as they were told last; `call` is what they do."""
        return mcp_tools(server, self.tools, call)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool and return what it answers. Cancelling it cancels the call, and nothing else.

        Raises LinkLost where the connection ends or has ended, ElbowroomError where the answer is none.
        """
        session = self._server.session
        if self.is_over or session is None:
            raise LinkLost(was_sent=False)
        try:
            return as_tool_result(await session.call_tool(name, dict(arguments)))
        except MCPError as error:
            if (is_cut := error.code == types.CONNECTION_CLOSED) or self._server.is_forgotten:
                self._over.set()
                raise LinkLost(was_sent=is_cut) from error
            return ToolResult(error.message or f"the server refuses the call (code {error.code})", is_error=True)
        except (ValueError, RuntimeError) as error:  # what the protocol, or the tool's own description, does not allow
            log.debug("The MCP server %r answered oddly.", self._settings.name, exc_info=True)
            raise ElbowroomError(f"{self._settings.name} gave an answer that cannot be understood.") from error

    async def list_again(self) -> None:
        """Ask for the tools that have changed. Raises McpUnavailable where there is no answer."""
        self.is_stale = False
        self._server.invalidate_tools_cache()  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                self.tools = await self._server.list_tools()
        except asyncio.CancelledError:
            self.is_stale = True
            raise
        except Exception as error:
            raise McpUnavailable(self._server.why(error)) from error

    async def aclose(self) -> None:
        """End the connection, and the program where one was started for it."""
        self._over.set()
        if not self._opened.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if self._opened.done() and not self._opened.cancelled():
            self._opened.exception()  # nobody need have waited for it

    async def _hold(self) -> None:
        """Connect and stay connected: the SDK wants one task to open and to close a connection."""
        manager = MCPServerManager(
            [self._server],
            connect_timeout_seconds=None,
            cleanup_timeout_seconds=CLEANUP_SECONDS,
            suppress_cancelled_error=False,
        )
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                await self._open(manager)
        except asyncio.CancelledError:
            self._opened.cancel()
        except Exception as error:  # noqa: BLE001  # whoever waits for the connection is told
            self._opened.set_exception(McpUnavailable(self._server.why(error)))
        else:
            self._opened.set_result(None)
            await self._stay()
        finally:
            self._over.set()
            await manager.cleanup_all()

    async def _open(self, manager: MCPServerManager) -> None:
        await manager.connect_all()
        if error := manager.errors.get(self._server):
            raise error
        self.tools = await self._server.list_tools()

    async def _stay(self) -> None:
        watch = asyncio.create_task(self._watch_tools())
        try:
            await self._over.wait()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch_tools(self) -> None:
        """Listen for changes of the tools as servers of the latest protocol tell them: to those who ask."""
        session = self._server.session
        tools = session.server_capabilities.tools if session and session.server_capabilities else None
        if session is None or tools is None or not tools.list_changed:
            return
        with contextlib.suppress(ListenNotSupportedError, MCPError):
            while True:
                with contextlib.suppress(SubscriptionLost):
                    async with listen(session, tools_list_changed=True) as changes:
                        async for _ in changes:
                            self.is_stale = True
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)
                self.is_stale = True  # whatever has changed meanwhile

    async def _take_note(self, message: Any) -> None:
        """Notice a change of the tools as servers of older protocols tell it: to everybody."""
        if isinstance(message, types.ToolListChangedNotification):
            self.is_stale = True


def _server(
    settings: McpServerSettings, folder: Path, environ: Mapping[str, str], on_end: Callable[[], None]
) -> StdioServer | HttpServer:
    if settings.url:
        headers = _revealed("headers", settings.headers, folder, environ)
        return HttpServer(settings.name, settings.url, headers, settings.connect_timeout, on_end)
    program, *arguments = settings.command
    parameters = StdioServerParameters(
        command=os.path.expanduser(program),
        args=arguments,
        env=_revealed("env", settings.env, folder, environ),
        cwd=folder / expanded(settings.cwd) if settings.cwd else None,
        encoding_error_handler="replace",
    )
    return StdioServer(settings.name, parameters, on_end)


def _revealed(field: str, secrets: Mapping[str, SecretRef], folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values behind the references; one whose variable is not set is left out."""
    values = {}
    for name, secret in secrets.items():
        try:
            value = secret.reveal(folder, environ)
        except SettingsError as error:
            raise McpUnavailable(f"{field}.{name}: {error.message}") from error
        if value is not None:
            values[name] = value
    return values
