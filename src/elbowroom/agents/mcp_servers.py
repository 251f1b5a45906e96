"""The MCP servers of the settings, and which of their tools an agent has."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from elbowroom.agents.mcp_connection import FIRST_PAUSE, McpConnection
from elbowroom.agents.own_tool import OwnTool
from elbowroom.settings.layers import LoadedSettings

if TYPE_CHECKING:
    from elbowroom.agents.mcp_tools import McpTool

log = logging.getLogger(__name__)


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

    async def tools(self, loaded: LoadedSettings, names: Sequence[str]) -> list[OwnTool]:
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
