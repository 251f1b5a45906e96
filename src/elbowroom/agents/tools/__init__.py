"""What can a model call, and how is one call carried out?"""

from elbowroom.agents.tools.calls_in_text import CallsInText
from elbowroom.agents.tools.client import arrange_tools, with_arranged_tools
from elbowroom.agents.tools.events import call_notice, result_notice
from elbowroom.agents.tools.memory import ByConversation, ToldMemories, memory_tools, remembers
from elbowroom.agents.tools.search import ToolSearch, searched
from elbowroom.agents.tools.tool import (
    ServerTool,
    ToolArguments,
    Toolbox,
    ToolCalls,
    distinct,
    free_name,
    function_spec,
    result_of,
    schema_of,
)

__all__ = [
    "ByConversation",
    "CallsInText",
    "ServerTool",
    "ToldMemories",
    "ToolArguments",
    "ToolCalls",
    "ToolSearch",
    "Toolbox",
    "arrange_tools",
    "call_notice",
    "distinct",
    "free_name",
    "function_spec",
    "memory_tools",
    "remembers",
    "result_notice",
    "result_of",
    "schema_of",
    "searched",
    "with_arranged_tools",
]
