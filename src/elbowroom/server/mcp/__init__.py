"""How do other programs search what was said, by the Model Context Protocol?"""

from elbowroom.server.mcp.routes import add_mcp_routes

__all__ = ["add_mcp_routes"]
