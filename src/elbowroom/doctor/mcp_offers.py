"""The MCP servers of the settings, each connected once, and what they offer."""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from elbowroom.agents.mcp_failures import McpUnavailable
from elbowroom.agents.sdk import load_sdk
from elbowroom.settings.tool_sections import McpServerSettings

if TYPE_CHECKING:
    from elbowroom.agents.mcp_tools import McpTool

MOST_SECONDS: Final = 12.0
"""How long is waited for a server, whatever its `connect_timeout` says."""
Offer: TypeAlias = "Sequence[McpTool] | str"
"""The tools of a server, or why it cannot be used: the end of a sentence."""


class McpOffers:
    """Connects when first asked, and closes each connection as soon as the tools are known."""

    def __init__(self, servers: Sequence[McpServerSettings], folder: Path, environ: Mapping[str, str]) -> None:
        self._servers = {server.name: server for server in servers if server.enabled}
        self._folder = folder
        self._environ = environ
        self._asked: dict[str, asyncio.Task[Offer]] = {}

    async def of(self, server: str) -> Offer:
        """Return what a server offers."""
        if server not in self._servers:
            return "it is not enabled"
        if server not in self._asked:
            self._asked[server] = asyncio.create_task(self._ask(self._servers[server]))
        return await asyncio.shield(self._asked[server])

    async def aclose(self) -> None:
        """End the connections that are under way."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def _ask(self, settings: McpServerSettings) -> Offer:
        await asyncio.to_thread(load_sdk)
        link_module = await asyncio.to_thread(importlib.import_module, "elbowroom.agents.mcp_link")
        patient = settings.model_copy(update={"connect_timeout": min(settings.connect_timeout, MOST_SECONDS)})
        try:
            link = await link_module.McpLink.connect(patient, self._folder, self._environ)
        except McpUnavailable as error:
            return error.message.rstrip(".")
        tools: Sequence[McpTool] = link.offered(settings.name, link.call)
        await link.aclose()
        return tools


def names_of(tool: "McpTool") -> tuple[str, str]:
    """Return the names by which settings may name a tool: the server's own, and the one that models call."""
    return tool.name, tool.tool.name
