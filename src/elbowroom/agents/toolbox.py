"""Gives each agent the tools that its settings name."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elbowroom.agents.catalog import Target
from elbowroom.agents.request import Caller
from elbowroom.agents.tools import OwnTool, memory_tools, vault_tools
from elbowroom.agents.tools.mcp import McpServers
from elbowroom.context.memories import Memories
from elbowroom.settings.fields import data_dir, expanded
from elbowroom.settings.load import LoadedSettings
from elbowroom.settings.model import AgentSettings, VaultSettings
from elbowroom.settings.references import VAULT_TOOLS
from elbowroom.vault.changes import Changes
from elbowroom.vault.index import Index
from elbowroom.vault.journal import Journal
from elbowroom.vault.names import Scope
from elbowroom.vault.vault import Vault

log = logging.getLogger(__name__)


class SettingsToolbox:
    """The tools of the agents as the settings have them; `current` returns those in force.

    What has been read of a vault is kept from one request to the next. To be called once the SDK is loaded.
    """

    def __init__(self, current: Callable[[], LoadedSettings], environ: Mapping[str, str], memories: Memories) -> None:
        self._current = current
        self._environ = environ
        self._memories = memories
        self._mcp = McpServers(environ)
        self._reading: asyncio.Task[None] | None = None
        self._vaults: dict[str, tuple[Index, Journal]] = {}

    async def __call__(self, target: Target, caller: Caller) -> Sequence[OwnTool]:
        """Return the tools of the agent that stands behind a name; none for a raw model. Two may have the same name."""
        agent = target.agent
        if agent is None:
            return ()
        loaded = self._current()
        settings = loaded.settings
        tools = self._vault_tools(agent, settings.vault)
        if settings.memory.enabled:
            tools += memory_tools(agent.tools, self._memories, caller.owner, agent.id, time.time)
        return [*tools, *await self._mcp.tools(loaded, agent.mcp)]

    def warm_up(self) -> None:
        """Begin to connect to the MCP servers, which may take a while to start, and to read the vault."""
        loaded = self._current()
        self._mcp.warm_up(loaded)
        settings = loaded.settings
        readers = [agent for agent in settings.agents if agent.enabled and not VAULT_TOOLS.isdisjoint(agent.tools)]
        if settings.vault.path and readers and self._reading is None:
            vault = self._changes(readers[0], settings.vault).vault
            self._reading = asyncio.create_task(asyncio.to_thread(_read, vault))

    async def aclose(self) -> None:
        """End the MCP servers, and wait until the vault is read."""
        await self._mcp.aclose()
        if self._reading is not None:
            await self._reading

    def _vault_tools(self, agent: AgentSettings, settings: VaultSettings) -> list[OwnTool]:
        if not settings.path or VAULT_TOOLS.isdisjoint(agent.tools):
            return []
        changes = self._changes(agent, settings)
        return vault_tools(agent.tools, changes, may_write=settings.write and agent.vault.write)

    def _changes(self, agent: AgentSettings, settings: VaultSettings) -> Changes:
        root = str(expanded(settings.path))
        if root not in self._vaults:  # another one than before, whose notes need not be kept
            self._vaults = {root: (Index(), Journal(self._undo_folder(root)))}
        index, journal = self._vaults[root]
        opened = Scope.of(settings.include, settings.exclude)
        scope = Scope.of(agent.vault.include, agent.vault.exclude, opened)
        return Changes(Vault(root, scope, index), journal, agent.id)

    def _undo_folder(self, root: str) -> Path:
        """Return where the changes of a vault are noted down: outside of it, and of what is synchronised with it."""
        return data_dir(self._environ) / "vault-undo" / hashlib.sha256(root.encode()).hexdigest()[:16]


def _read(vault: Vault) -> None:
    """Read all notes, so that the first search need not; one that cannot be read will say so when it is used."""
    try:
        vault.refresh()
    except Exception as error:  # noqa: BLE001  # a server starts without its vault, too
        log.warning("The vault could not be read: %s", error)
