"""One connection to an MCP server, from its start to its end; once lost, it is not used again."""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

import httpx2
from agents.exceptions import UserError
from agents.mcp import MCPServerManager, MCPServerStdio, MCPServerStreamableHttp
from mcp import MCPError, types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.message import SessionMessage

from elbowroom.agents.tools.mcp.bounded import bound_answer
from elbowroom.agents.tools.mcp.convert import MOST_TOOLS, Call, McpTool, as_tool_result, mcp_tools, mend_tool_list
from elbowroom.agents.tools.mcp.lines import read_whole_lines
from elbowroom.agents.tools.tool import ToolResult
from elbowroom.errors import ElbowroomError, LinkLost, McpUnavailable, SettingsError
from elbowroom.settings.fields import SecretRef, expanded
from elbowroom.settings.model import McpServerSettings

log = logging.getLogger(__name__)
LONGEST_STDERR_LINE: Final = 4000
LONGEST_REASON: Final = 200
LARGEST_EVENT: Final = 256 * 1024 * 1024
"""Bytes of one event of a packed HTTP answer; all others are bounded before they are read."""
FOREIGN_LOGGERS: Final = ("mcp", "client", "httpx2", "openai.agents")

Streams = tuple[Any, Any]


class StdioServer(MCPServerStdio):
    """A program that speaks over its standard input and output; its stderr is logged at DEBUG."""

    def __init__(self, name: str, parameters: StdioServerParameters, on_end: Callable[[], None]) -> None:
        super().__init__({"command": parameters.command}, name=name, client_session_timeout_seconds=None)
        self.params = parameters
        self.is_forgotten = False
        self._on_end = on_end

    def create_streams(self) -> AbstractAsyncContextManager[Streams]:
        """Return the streams to a program that is started for them, and ended with them."""
        return self._started()

    def why(self, error: BaseException) -> str:
        """Return why it cannot be used, as the end of a sentence."""
        match _first(error):
            case FileNotFoundError(filename=missing):
                return f"there is no {str(missing)!r}"
            case OSError(strerror=str(reason)):
                return f"{self.params.command!r} cannot be started: {reason}"
            case MCPError(code=types.CONNECTION_CLOSED):
                return "the program ended before it had answered; its own words are logged at level debug"
            case first:
                return _common_reason(first)

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[Streams]:
        read_whole_lines(self._on_end)
        with _logged(self.name) as errors:
            streams = stdio_client(self.params, errlog=errors)
            async with _watched(streams, self._on_end) as watched:
                errors.close()  # the program has its own by now: the log ends when it does
                yield watched


class HttpServer(MCPServerStreamableHttp):
    """A server at an address; `refusal` is the last HTTP error that it answered with.

    `is_forgotten` is true once the server no longer knows the session, as after its restart. Proxies of the environment
    are not used.
    """

    def __init__(self, name: str, url: str, headers: dict[str, str], patience: float, on_end: Callable[[], None]):
        super().__init__({"url": url}, name=name, client_session_timeout_seconds=None)
        self._url = url
        self._headers = headers
        self._patience = patience
        self._on_end = on_end
        self.refusal = ""
        self.is_forgotten = False

    def create_streams(self) -> AbstractAsyncContextManager[Streams]:
        """Return the streams of a session with the server."""
        return self._opened()

    def why(self, error: BaseException) -> str:
        """Return why it cannot be used, as the end of a sentence."""
        if self.refusal:
            return f"it answers {self.refusal}"
        match _first(error.__cause__ if isinstance(error, UserError) and error.__cause__ else error):
            case UserError(message=message):  # the SDK's words for a transport that failed
                return message.rpartition(": ")[2].rstrip(".").lower()
            case httpx2.TransportError() | MCPError(code=types.CONNECTION_CLOSED):
                return "the connection was cut"
            case first:
                return _common_reason(first)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Streams]:
        # How long an answer may take is for each call to say.
        limits = httpx2.Timeout(None, connect=self._patience, write=self._patience)
        hooks = {"response": [self._note_refusal]}
        headers = {"Accept-Encoding": "identity", **self._headers}  # what is packed cannot be bounded
        async with httpx2.AsyncClient(headers=headers, timeout=limits, trust_env=False, event_hooks=hooks) as client:
            streams = streamable_http_client(self._url, http_client=client, max_sse_event_size=LARGEST_EVENT)
            async with _watched(streams, self._on_end) as watched:
                yield watched

    async def _note_refusal(self, response: httpx2.Response) -> None:
        bound_answer(response)
        if response.is_error:
            self.refusal = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
        if response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in response.request.headers:
            self.is_forgotten = True


class WatchedStream:
    """Wraps a stream: repairs lists of tools that come through it, and calls `on_end` when it ends."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """Return the context that the wrapped stream has for the last message, if it has one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except BaseException:  # its end, or its reader was cancelled
            self._on_end()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
            mend_tool_list(item.message.result)
        return item

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(kind, error, trace)
        return ended


def quieten_foreign_loggers() -> None:
    """Keep the libraries' messages out of the log unless its level is DEBUG: elbowroom tells each failure once."""
    if not logging.getLogger().isEnabledFor(logging.DEBUG):
        for name in FOREIGN_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _common_reason(error: BaseException) -> str:
    match error:
        case TimeoutError():
            return "it does not answer in time"
        case ElbowroomError(message=message):
            return message
        case MCPError(message=str(message)):
            return f"it answers: {message[:LONGEST_REASON]}"
        case ValueError():
            return "its answers are not those of an MCP server"
        case _:
            return f"of a {type(error).__name__}"


@asynccontextmanager
async def _watched(streams: AbstractAsyncContextManager[Streams], on_end: Callable[[], None]) -> AsyncIterator[Streams]:
    async with streams as (read, write):
        yield WatchedStream(read, on_end), write


@contextmanager
def _logged(name: str) -> Iterator[TextIO]:
    """Open a file for a program to write to; a thread logs its lines until all writers have closed it."""
    reader, writer = os.pipe()
    threading.Thread(target=_log_lines, args=(name, reader), name=f"stderr of {name}", daemon=True).start()
    with os.fdopen(writer, "w") as file:
        yield file


def _log_lines(name: str, reader: int) -> None:
    with os.fdopen(reader, "rb") as file:
        while line := file.readline(LONGEST_STDERR_LINE):
            log.debug("MCP server %s: %s", name, line.decode("utf-8", "backslashreplace").rstrip())


CLEANUP_SECONDS: Final = 10.0
LISTEN_AGAIN_SECONDS: Final = 30.0


class McpLink:
    """A connected server. `tools` are those that it offers; `is_stale` is true once it says that they have changed."""

    def __init__(self, settings: McpServerSettings, folder: Path, environ: Mapping[str, str]) -> None:
        self.tools: list[types.Tool] = []
        self.is_stale = False
        self._settings = settings
        self._over = asyncio.Event()
        self._server = _server(settings, folder, environ, self._over.set)
        self._server.message_handler = self._take_note
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opening: asyncio.Timeout | None = None
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
        """Return the tools of the last list; `call` carries out a call of any of them."""
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
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                self.tools = await self._listed()
        except asyncio.CancelledError:
            self.is_stale = True
            raise
        except Exception as error:
            raise McpUnavailable(self._server.why(error)) from error

    async def aclose(self) -> None:
        """End the connection, and the program where one was started for it."""
        self._over.set()
        if self._opening is None:
            self._task.cancel()
        elif not (self._opened.done() or self._opening.expired()):
            self._opening.reschedule(0)  # cancelled a second time, it would leave the program that it is ending
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
            async with asyncio.timeout(self._settings.connect_timeout) as self._opening:
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
        self.tools = await self._listed()

    async def _listed(self) -> list[types.Tool]:
        """Return the first tools that the server lists; it is asked for no page beyond those that are taken."""
        session, tools, cursor = self._server.session, list[types.Tool](), None
        while session is not None and len(tools) <= MOST_TOOLS:
            page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
            tools += page.tools
            if not (cursor := page.next_cursor):
                break
        if len(tools) > MOST_TOOLS:
            text = "The MCP server %r offers more than %d tools: those from %r on are left out."
            log.warning(text, self._settings.name, MOST_TOOLS, tools[MOST_TOOLS].name)
        return tools[:MOST_TOOLS]

    async def _stay(self) -> None:
        watch = asyncio.create_task(self._watch_tools())
        try:
            await self._over.wait()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _watch_tools(self) -> None:
        """Listen for changes of the tools, for which servers of the latest protocol want a subscription."""
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
        """Note a change of the tools, which servers of older protocols announce without a subscription."""
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
    """Return the values to which the references point; one whose variable is not set is left out."""
    values = {}
    for name, secret in secrets.items():
        try:
            value = secret.reveal(folder, environ)
        except SettingsError as error:
            raise McpUnavailable(f"{field}.{name}: {error.message}") from error
        if value is not None:
            values[name] = value
    return values
