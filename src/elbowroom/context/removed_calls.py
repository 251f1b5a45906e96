"""What is told of tool calls that a compaction takes out of a conversation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elbowroom.context.call_summary import MOST_TOKENS
from elbowroom.settings.tool_sections import ToolKind


@dataclass(frozen=True, slots=True)
class RemovedCalls:
    """`results` says where their results can be read, if anywhere.

    Where no pruning agent sums up what they did, the code does in at most so many tokens; `kinds` are those that are
    declared of tools.
    """

    results: str = ""
    most_tokens: int = MOST_TOKENS
    kinds: Mapping[str, ToolKind] = field(default_factory=dict)
