"""How is the plugin installed in a vault from elbowroom's page?"""

from elbowroom.server.obsidian.routes import add_obsidian_routes

__all__ = ["add_obsidian_routes"]
