"""The state that a server's requests share, without a store and tools: for what needs neither."""

from typing import Any, cast

from elbowroom.agents.turn import RunSettings, Shared
from elbowroom.settings.model import CompactionSettings, MemorySettings, ToolOutputSettings
from elbowroom.store import open_in_memory


def bare_shared() -> Shared:
    """Return the state of a server that keeps nothing."""
    return Shared.over(open_in_memory(), cast("Any", None))


def bare_settings(compaction: CompactionSettings, catalog: Any, shared: Shared | None = None) -> RunSettings:
    """Return the settings of a request."""
    return RunSettings(compaction, catalog, "pass", ToolOutputSettings(), MemorySettings(), shared or bare_shared())
