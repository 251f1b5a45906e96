"""What the settings say about every run: how histories are compacted, and what becomes of clients' tools."""

from dataclasses import dataclass, field

from elbowroom.agents.catalog import Catalog
from elbowroom.agents.history_counter import HistoryCounters
from elbowroom.agents.learned_windows import LearnedWindows
from elbowroom.agents.pruner_choice import PrunerChoice
from elbowroom.settings.model import ClientTools, CompactionSettings


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings at the moment a request came in; `client_tools` is for raw models, agents have their own.

    `histories`, `windows` and `pruners` remember what has been found out about models, from one request to the next.
    """

    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    catalog: Catalog = field(default_factory=lambda: Catalog((), {}))
    client_tools: ClientTools = "pass"
    histories: HistoryCounters = field(default_factory=HistoryCounters)
    pruners: PrunerChoice = field(default_factory=lambda: PrunerChoice(HistoryCounters()))
    windows: LearnedWindows = field(default_factory=LearnedWindows)
