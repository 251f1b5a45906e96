"""Installs, updates and removes the plugin in a vault: what changes, and what is said about it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elbowroom.connect.obsidian.enabling import disabling, enabling, is_enabled
from elbowroom.connect.obsidian.plugin import DATA, MANIFEST, Change, PluginFolder, packaged, version_of
from elbowroom.connect.obsidian.vaults import Vault, config_folder
from elbowroom.errors import ElbowroomError, NotFound

RELOAD: Final = "In a running Obsidian, reload it: Ctrl+P (Cmd+P), Reload app without saving."
RESTRICTED: Final = (
    "Where Obsidian is in Restricted mode, it begins with no plugin until you turn that off: Settings, Community "
    "plugins, Turn on community plugins."
)
SWITCH_ON: Final = (
    "It is not switched on yet. In Obsidian: Settings, Community plugins, leave Restricted mode by Turn on community "
    "plugins, press Reload plugins, and switch Elbowroom on."
)
STILL_PAIRED: Final = "What was paired stays so until you revoke it on elbowroom's page, under Connect."


@dataclass(frozen=True, slots=True)
class Plan:
    """What is changed in a vault, and what to say afterwards."""

    changes: Sequence[Change]
    notes: Sequence[str]

    @property
    def lines(self) -> list[str]:
        """Return the lines that tell of the changes, a file each."""
        return [line for change in self.changes for line in change.lines]

    def make(self) -> None:
        """Make the changes. Raises ElbowroomError."""
        for change in self.changes:
            change.make()


def installation(config: Path, address: str, *, enable: bool, force: bool = False) -> Plan:
    """Return what installs the plugin, which asks elbowroom at `address`. Raises ElbowroomError."""
    plugin, new = PluginFolder(config), packaged()
    files = [*plugin.installing(new, force=force), *plugin.setting_address(address)]
    switching, problems = _understood(enabling, config)
    changes = [*files, *(switching if enable else [])]
    notes = [_linked(plugin) if plugin.is_linked else _installed(plugin, version_of(new[MANIFEST]), "is installed")]
    known = plugin.address()
    if known and known.rstrip("/").removesuffix("/v1") != address:
        notes.append(f"The plugin's own settings say {known}; that is kept.")
    if problems or (switching and not enable):
        notes += [*problems, SWITCH_ON]
    elif changes:
        notes += [RELOAD, RESTRICTED]
    return Plan(changes, notes)


def update(config: Path, *, force: bool) -> Plan:
    """Return what brings an installed plugin up to date. Raises ElbowroomError."""
    plugin, new = PluginFolder(config), packaged()
    if plugin.version() is None:
        raise NotFound("The plugin is not installed there: elbowroom obsidian install puts it there.")
    if plugin.is_linked:
        return Plan([], [_linked(plugin)])
    changes = plugin.installing(new, force=force)
    notes = [_installed(plugin, version_of(new[MANIFEST]), "is there, the newest")]
    return Plan(changes, [*notes, RELOAD] if changes else notes)


def removal(config: Path, *, with_data: bool) -> Plan:
    """Return what takes the plugin away. Raises ElbowroomError."""
    plugin = PluginFolder(config)
    switching, notes = _understood(disabling, config)
    changes = [*switching, *plugin.removing(with_data=with_data)]
    if changes:
        notes += [RELOAD, STILL_PAIRED]
    if plugin.is_linked:
        notes.append(_linked(plugin))
    elif not changes:
        notes.append("The plugin is not installed there.")
    if not with_data and os.path.exists(plugin.path / DATA):
        notes.append(f"Its own settings stay in {plugin.path / DATA}.")
    return Plan(changes, notes)


def _understood(changes_of: Callable[[Path], list[Change]], config: Path) -> tuple[list[Change], list[str]]:
    """Return the changes of the list of plugins, or why it is left as it is."""
    try:
        return changes_of(config), []
    except ElbowroomError as error:
        return [], [error.message]


def _installed(plugin: PluginFolder, newest: str, as_it_is: str) -> str:
    """Say which version there is, and from which one it comes."""
    before = plugin.version()
    if before is None or before == newest:
        return f"Elbowroom {newest} {as_it_is}."
    return f"Elbowroom: from {before or 'an unknown version'} to {newest}."


def _linked(plugin: PluginFolder) -> str:
    return f"{plugin.path} is a link, or has links in it. It is left as it is: whoever made it keeps it up to date."


def is_installed(vault: Vault) -> bool:
    """Tell whether a vault has the plugin."""
    try:
        return PluginFolder(config_folder(vault)).version() is not None
    except ElbowroomError:
        return False


def described(vault: Vault) -> dict[str, Any]:
    """Return how the plugin stands in a vault, as JSON values; `problem` says why that is not known."""
    try:
        config = config_folder(vault)
        plugin = PluginFolder(config)
        state = {
            "installed": plugin.version(),
            "linked": plugin.version() is not None and plugin.is_linked,
            "up_to_date": plugin.is_up_to_date(packaged()),
            "enabled": is_enabled(config),
            "problem": None,
        }
    except ElbowroomError as error:
        return unknown(vault, error)
    return _named(vault) | state


def unknown(vault: Vault, error: ElbowroomError) -> dict[str, Any]:
    """Return a vault of which the plugin's state is not known, as JSON values; the error is its `problem`."""
    state = {"installed": None, "linked": False, "up_to_date": False, "enabled": False, "problem": error.message}
    return _named(vault) | state


def _named(vault: Vault) -> dict[str, Any]:
    return {"id": vault.id, "name": vault.name, "path": str(vault.folder), "open": vault.is_open}
