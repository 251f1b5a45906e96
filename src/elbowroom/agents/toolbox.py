"""Gives each agent the tools that its settings name."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from elbowroom.agents.catalog import Target
from elbowroom.settings.layers import LoadedSettings
from elbowroom.settings.model import VaultSettings
from elbowroom.settings.paths import expanded
from elbowroom.vault.index import Index
from elbowroom.vault.scope import Scope
from elbowroom.vault.vault import Vault

if TYPE_CHECKING:
    from agents import Tool


class SettingsToolbox:
    """The tools of the agents as the settings have them; `current` returns those in force.

    What has been read of a vault is kept from one request to the next. To be called once the SDK is loaded.
    """

    def __init__(self, current: Callable[[], LoadedSettings]) -> None:
        self._current = current
        self._indexes: dict[str, Index] = {}

    def __call__(self, target: Target) -> "Sequence[Tool]":
        """Return the tools of the agent that stands behind a name; none for a raw model."""
        from elbowroom.agents.vault_tools import as_function_tool, vault_tools

        settings = self._current().settings.vault
        if target.agent is None or not target.agent.tools or not settings.path:
            return ()
        vault = self._vault(settings)
        return [as_function_tool(tool, vault) for tool in vault_tools(target.agent.tools, settings)]

    def _vault(self, settings: VaultSettings) -> Vault:
        root = str(expanded(settings.path))
        index = self._indexes.setdefault(root, Index())
        return Vault(root, Scope.of(settings.include, settings.exclude), index)
