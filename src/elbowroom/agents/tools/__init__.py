"""What can a model call, and how is one call carried out?"""

from elbowroom.agents.tools.client import arrange_tools, with_arranged_tools
from elbowroom.agents.tools.memory import FlushedBefore, ToldBefore, TurnMemories, cycle_of, memory_tools, remembers
from elbowroom.agents.tools.tool import ServerTool, Toolbox, ToolCalls, distinct, free_name, result_of
from elbowroom.agents.tools.vault import vault_tools

__all__ = [
    "FlushedBefore",
    "ServerTool",
    "ToldBefore",
    "ToolCalls",
    "Toolbox",
    "TurnMemories",
    "arrange_tools",
    "cycle_of",
    "distinct",
    "free_name",
    "memory_tools",
    "remembers",
    "result_of",
    "vault_tools",
    "with_arranged_tools",
]
