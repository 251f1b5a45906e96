"""The tables of the settings file and the keys in them, and how a key is written for a person."""

from typing import Final

from pydantic import BaseModel

from elbowroom.settings.model import (
    AgentSettings,
    CompactionSettings,
    ProviderSettings,
    ServerSettings,
    StoreSettings,
)
from elbowroom.settings.tool_sections import (
    AgentVault,
    McpServerSettings,
    MemorySettings,
    OwnToolOutput,
    ToolOutputSettings,
    VaultSettings,
)

Key = tuple[str | int, ...]
TABLES: Final[dict[str, type[BaseModel]]] = {
    "server": ServerSettings,
    "compaction": CompactionSettings,
    "tool_output": ToolOutputSettings,
    "vault": VaultSettings,
    "memory": MemorySettings,
    "store": StoreSettings,
}
TABLE_LISTS: Final[dict[str, type[BaseModel]]] = {
    "providers": ProviderSettings,
    "agents": AgentSettings,
    "mcp_servers": McpServerSettings,
}
AGENT_TABLES: Final[dict[str, type[BaseModel]]] = {"vault": AgentVault, "tool_output": OwnToolOutput}
"""Tables that an agent has of its own, by their keys."""


def key_text(key: Key) -> str:
    """Write a key as a person would: `server.port`, `agents[0].model`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
