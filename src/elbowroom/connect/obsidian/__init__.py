"""How does elbowroom's plugin get into a vault of Obsidian, and away from it?"""

from elbowroom.connect.obsidian.agents_vault import choosing, leaving
from elbowroom.connect.obsidian.command import add_obsidian
from elbowroom.connect.obsidian.installation import Plan, described, installation, removal, unknown
from elbowroom.connect.obsidian.vaults import KnownVaults, Vault, config_folder, listed_vaults

__all__ = [
    "KnownVaults",
    "Plan",
    "Vault",
    "add_obsidian",
    "choosing",
    "config_folder",
    "described",
    "installation",
    "leaving",
    "listed_vaults",
    "removal",
    "unknown",
]
