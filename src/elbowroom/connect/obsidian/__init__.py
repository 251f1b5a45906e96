"""How does elbowroom's plugin get into a vault of Obsidian, and away from it?"""

from elbowroom.connect.obsidian.agents_vault import choosing, is_chosen, leaving
from elbowroom.connect.obsidian.command import add_obsidian
from elbowroom.connect.obsidian.installation import Plan, described, installation, removal
from elbowroom.connect.obsidian.vaults import Vault, config_folder, known_vaults

__all__ = [
    "Plan",
    "Vault",
    "add_obsidian",
    "choosing",
    "config_folder",
    "described",
    "installation",
    "is_chosen",
    "known_vaults",
    "leaving",
    "removal",
]
