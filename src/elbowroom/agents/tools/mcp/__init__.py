"""Which tools do MCP servers offer, and how are they called?"""

from elbowroom.agents.tools.mcp.servers import McpServers

__all__ = ["McpServers"]
