"""What the settings say about every run: how histories are compacted, and what becomes of clients' tools."""

from dataclasses import dataclass

from elbowroom.agents.catalog import Catalog
from elbowroom.agents.live_turn import LiveTurn
from elbowroom.agents.running_turns import RunningTurn
from elbowroom.agents.shared import Shared
from elbowroom.settings.model import ClientTools, CompactionSettings
from elbowroom.settings.tool_sections import MemorySettings, ToolOutputSettings


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings at the moment a request came in; `client_tools` is for raw models, agents have their own.

    `shared` is what this request has in common with all others of the server. `live` keeps what the request is answered
    with, and `running` is the turn that a person may stop; both are None where that is no turn of a conversation: a
    task, an agent that another one asks.
    """

    compaction: CompactionSettings
    catalog: Catalog
    client_tools: ClientTools
    tool_output: ToolOutputSettings
    memory: MemorySettings
    shared: Shared
    live: LiveTurn | None = None
    running: RunningTurn | None = None
