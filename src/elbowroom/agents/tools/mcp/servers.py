"""The MCP servers of the settings, and which of their tools an agent has."""

import asyncio
import contextlib
import importlib
import logging
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from elbowroom.agents.sdk import load_sdk
from elbowroom.agents.tools.tool import ServerTool, ToolResult
from elbowroom.errors import ElbowroomError, LinkLost, McpUnavailable
from elbowroom.settings.load import LoadedSettings
from elbowroom.settings.model import McpServerSettings

if TYPE_CHECKING:
    from elbowroom.agents.tools.mcp.convert import McpTool
    from elbowroom.agents.tools.mcp.link import McpLink

log = logging.getLogger(__name__)
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
"""Seconds until a server that could not be reached is tried again: twice as many each time."""
LINK_MODULE: Final = "elbowroom.agents.tools.mcp.link"
_LOADING = threading.Lock()


class McpConnection:
    """One server. If it cannot be reached, the log says so once, and the background tries again."""

    def __init__(
        self, settings: McpServerSettings, folder: Path, environ: Mapping[str, str], first_pause: float = FIRST_PAUSE
    ) -> None:
        self.settings = settings
        self._folder = folder
        self._environ = environ
        self._first_pause = first_pause
        self._link: McpLink | None = None
        self._tools: list[McpTool] | None = None
        self._why_not = ""
        self._trying: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._listing = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False

    def begin(self) -> None:
        """Begin to connect in the background, unless that has been done."""
        is_under_way = self._trying is not None and not self._trying.done()
        if not self._is_closed and not is_under_way and self._live_link() is None:
            self._tried = asyncio.Event()
            self._trying = asyncio.create_task(self._try_until_connected(self._tried))

    async def tools(self) -> "list[McpTool]":
        """Return what the server offers, nothing where it cannot be reached.

        Only the first attempt to reach it is waited for, `connect_timeout` at most. A server that was lost since then
        is connected again in the background, and offers meanwhile what it did.
        """
        self.begin()
        if self._tools is None:
            await self._wait_for_attempt()
        if (link := self._live_link()) is not None and link.is_stale:
            await self._list_again(link)
        return self._tools or []

    async def call(self, name: str, arguments: Mapping[str, Any], can_repeat: bool) -> ToolResult:
        """Call a tool. Where the connection turns out to be lost, connect again and repeat the call if that is safe.

        Raises ElbowroomError in words for the model. Cancelling it cancels this call alone.
        """
        is_repeated = False
        with self._counted():
            while True:
                link = await self._connected_link()
                try:
                    return await self._ask(link, name, arguments)
                except LinkLost as lost:
                    self._begin_again()
                    if is_repeated or (lost.was_sent and not can_repeat):
                        raise self._uncertain() from lost
                    is_repeated = True

    async def retire(self) -> None:
        """Take no more calls, wait for those that run, and close the connection."""
        self._is_closed = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.connect_timeout + self.settings.timeout):
                await self._idle.wait()
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, and end the program where one was started for it; running calls fail in words."""
        self._is_closed = True
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.wait([self._trying])
        if self._link is not None:
            await self._link.aclose()

    async def _ask(self, link: "McpLink", name: str, arguments: Mapping[str, Any]) -> ToolResult:
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await link.call(name, arguments)
        except TimeoutError:
            raise ElbowroomError(
                f"{self.settings.name} did not answer within {self.settings.timeout:g} seconds; the call was cancelled."
            ) from None

    async def _connected_link(self) -> "McpLink":
        self.begin()
        if self._live_link() is None:
            await self._wait_for_attempt()
        if self._is_closed:
            raise ElbowroomError(
                f"The tools of {self.settings.name} are no longer there: its settings have changed. Go on without it."
            )
        if (link := self._live_link()) is None:
            why = self._why_not or "it does not answer in time"
            raise ElbowroomError(f"{self.settings.name} cannot be reached now: {why}.")
        return link

    def _live_link(self) -> "McpLink | None":
        return None if self._link is None or self._link.is_over else self._link

    def _begin_again(self) -> None:
        if not self._is_closed:
            log.warning("The connection to the MCP server %r was lost.", self.settings.name)
            self.begin()

    def _uncertain(self) -> ElbowroomError:
        return ElbowroomError(
            f"The connection to {self.settings.name} was lost during the call. "
            "It is not known whether the call took effect: check that before you repeat it."
        )

    async def _wait_for_attempt(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.connect_timeout):
                await self._tried.wait()

    async def _try_until_connected(self, tried: asyncio.Event) -> None:
        pause = self._first_pause
        while not await self._connect():
            tried.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        tried.set()

    async def _connect(self) -> bool:
        if self._link is not None:
            await self._link.aclose()  # what is left of the one that was lost
        try:
            link: McpLink = await (await asyncio.to_thread(_load)).McpLink.connect(
                self.settings, self._folder, self._environ
            )
        except ElbowroomError as error:
            return self._failed(error.message.rstrip("."))
        except Exception as error:
            log.debug("The MCP server %r could not be connected.", self.settings.name, exc_info=True)
            return self._failed(f"of a {type(error).__name__}")
        self._link = link
        self._take_tools(link)
        log.info("The MCP server %r is connected; it offers %d tools.", self.settings.name, len(link.tools))
        self._why_not = ""
        return True

    def _failed(self, why: str) -> bool:
        level = logging.DEBUG if self._why_not else logging.WARNING  # one warning until it works again
        log.log(
            level,
            "The MCP server %r cannot be used: %s. Agents do without its tools; it is tried again now and then.",
            self.settings.name,
            why,
        )
        self._why_not = why
        self._tools = []
        return False

    async def _list_again(self, link: "McpLink") -> None:
        async with self._listing:
            if not link.is_stale:
                return  # another request has just done it
            try:
                await link.list_again()
            except McpUnavailable as error:
                log.warning("The MCP server %r has not told its new tools: %s.", self.settings.name, error.message)
            else:
                self._take_tools(link)

    def _take_tools(self, link: "McpLink") -> None:
        self._tools = link.offered(self.settings.name, self.call)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()


def _load() -> ModuleType:
    with _LOADING:
        if LINK_MODULE not in sys.modules:
            load_sdk()
        return importlib.import_module(LINK_MODULE)


class McpServers:
    """The connections to all MCP servers, made when an agent first needs them and kept from request to request.

    `first_pause` is how many seconds after a failure a server is tried again.
    """

    def __init__(self, environ: Mapping[str, str], first_pause: float = FIRST_PAUSE) -> None:
        self._environ = environ
        self._first_pause = first_pause
        self._connections: dict[str, McpConnection] = {}
        self._retiring: dict[asyncio.Task[None], McpConnection] = {}
        self._missing: set[str] = set()
        self._is_closed = False

    def warm_up(self, loaded: LoadedSettings) -> None:
        """Begin to connect the servers that enabled agents use."""
        self._follow(loaded)
        for agent in loaded.settings.agents:
            for name in agent.mcp if agent.enabled else ():
                if connection := self._connections.get(_server_of(name)):
                    connection.begin()

    async def tools(self, loaded: LoadedSettings, names: Sequence[str]) -> list[ServerTool]:
        """Return the tools that an agent's `mcp` names: "files" for all of a server, "files/read_file" for one.

        They come as the agent lists them, and within a server as the server does. Those of a server that cannot be
        reached are left out; the first attempt to reach it is waited for, its `connect_timeout` at most.
        """
        self._follow(loaded)
        servers = [name for name in dict.fromkeys(map(_server_of, names)) if name in self._connections]
        offers = await asyncio.gather(*(self._connections[name].tools() for name in servers))
        offered = dict(zip(servers, offers, strict=True))
        chosen = dict.fromkeys(
            (server, tool.name)
            for name in names
            for server in [_server_of(name)]
            for tool in self._named(name, offered)
        )
        by_name = {(server, tool.name): tool.tool for server, tools in offered.items() for tool in tools}
        return [by_name[key] for key in chosen]

    async def aclose(self) -> None:
        """Close all connections and end the programs that were started for them."""
        self._is_closed = True
        every = [*self._connections.values(), *self._retiring.values()]
        self._connections = {}
        await asyncio.gather(*(connection.aclose() for connection in every))
        if self._retiring:
            await asyncio.wait(self._retiring)

    def _follow(self, loaded: LoadedSettings) -> None:
        """Make connections for servers that are new, and close those whose settings have changed."""
        if self._is_closed:
            return
        wanted = {server.name: server for server in loaded.settings.mcp_servers if server.enabled}
        for name, connection in list(self._connections.items()):
            if wanted.get(name) != connection.settings:
                del self._connections[name]
                self._retire(connection)
        for name, settings in wanted.items():
            if name not in self._connections:
                self._connections[name] = McpConnection(settings, loaded.folder, self._environ, self._first_pause)

    def _retire(self, connection: McpConnection) -> None:
        task = asyncio.create_task(connection.retire())
        self._retiring[task] = connection
        task.add_done_callback(lambda done: self._retiring.pop(done, None))

    def _named(self, name: str, offered: "Mapping[str, list[McpTool]]") -> "Iterator[McpTool]":
        server, _, wanted = name.partition("/")
        tools = offered.get(server, [])
        found = [tool for tool in tools if not wanted or wanted in (tool.name, tool.tool.name)]
        if tools and not found and name not in self._missing:
            self._missing.add(name)
            log.warning("The MCP server %r has no tool %r, which an agent's mcp names.", server, wanted)
        yield from found


def _server_of(name: str) -> str:
    return name.partition("/")[0]
