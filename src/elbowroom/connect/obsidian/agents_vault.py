"""Makes a vault the one in which agents work, `vault.path` of the settings, and takes that back."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from elbowroom.connect.obsidian.plugin import Change
from elbowroom.connect.obsidian.vaults import Vault
from elbowroom.elsewhere import NotAnswering, glance
from elbowroom.errors import Conflict
from elbowroom.settings.change import SettingsChanger
from elbowroom.settings.fields import expanded
from elbowroom.settings.live import LiveSettings
from elbowroom.settings.model import Settings

NO_TOOLS: Final = 'No agent has the tools for it yet: give one tools = ["vault"], on the page under Agents.'


def choosing(vault: Vault, live: LiveSettings, environ: Mapping[str, str], *, force: bool) -> list[Change]:
    """Return what makes agents work in a vault. Raises Conflict where they work in another one, unless `force`."""
    _check(live.last_good.settings, vault, force=force)
    if is_chosen(live.last_good.settings, vault):
        return []

    def decide(settings: Settings) -> dict[str, Any]:
        _check(settings, vault, force=force)
        return {"vault": {"path": str(vault.folder)}}

    sign = "~" if live.path.exists() else "+"
    line = f'{sign} {live.path}: vault.path = "{vault.folder}"'
    return [Change([line], partial(SettingsChanger(live, environ).change, decide))]


def leaving(vault: Vault, live: LiveSettings, environ: Mapping[str, str]) -> list[Change]:
    """Return what makes agents work in no vault, if they work in this one."""
    if not is_chosen(live.last_good.settings, vault):
        return []

    def decide(settings: Settings) -> dict[str, Any]:
        return {"vault": {"path": None}} if is_chosen(settings, vault) else {}

    return [Change([f"~ {live.path}: vault.path taken out"], partial(SettingsChanger(live, environ).change, decide))]


def told(settings: Settings, vault: Vault) -> str:
    """Say how agents stand to a vault, empty where there is nothing to do about it."""
    if not settings.vault.path:
        return 'Agents work in no vault yet; --agents-vault lets those with tools = ["vault"] work in this one.'
    has_tools = any(tool.partition(".")[0] == "vault" for agent in settings.agents for tool in agent.tools)
    return NO_TOOLS if is_chosen(settings, vault) and not has_tools else ""


def is_chosen(settings: Settings, vault: Vault) -> bool:
    """Tell whether agents work in a vault."""
    path = settings.vault.path
    return bool(path) and _real(expanded(path)) == os.path.realpath(vault.folder)


def _real(folder: Path) -> str:
    """Return a folder without links, as far as it answers."""
    try:
        return glance(folder, lambda: os.path.realpath(folder))
    except NotAnswering:
        return str(folder)


def _check(settings: Settings, vault: Vault, *, force: bool) -> None:
    if settings.vault.path and not is_chosen(settings, vault) and not force:
        raise Conflict(
            f"Agents work in the vault {Path(settings.vault.path)}. It is kept, and nothing was changed; "
            "elbowroom obsidian install --agents-vault --force replaces it, and so does vault.path in the settings.",
            code="other_vault",
        )
