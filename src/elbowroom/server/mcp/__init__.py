"""How do other programs search what was said, by the Model Context Protocol?"""

from elbowroom.server.mcp.routes import add_mcp_routes
from elbowroom.server.mcp.tools import MCP_TOOLS, McpTool

__all__ = ["MCP_TOOLS", "McpTool", "add_mcp_routes"]
