"""How is a conversation made shorter? The ladder, the pruning agent's order and answer, and summaries made by code."""

from elbowroom.context.compaction.answer import CALLED, CUT_OFF, EMPTY, ONLY_THOUGHT, Plan, Unusable, read_prune_answer
from elbowroom.context.compaction.calls import (
    RemovedCalls,
    index_of,
    lists_named_in,
    note_on,
    results_in,
    summary_of_calls,
)
from elbowroom.context.compaction.division import (
    SUMMARISES,
    Rung,
    TaskState,
    inner_summary,
    is_of_person,
    is_summary,
    is_summary_message,
    naming_tool,
    restored,
    smallest,
    state_of,
    tail_starts,
    usual_turn,
    with_whole_answer,
    with_words,
)
from elbowroom.context.compaction.files import State
from elbowroom.context.compaction.identifiers import find_identifiers, stands_in
from elbowroom.context.compaction.ladder import Cannot, Ladder
from elbowroom.context.compaction.loose_json import depths_in, find_values, spoken
from elbowroom.context.compaction.order import Wishes
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.compaction.record import carried_in
from elbowroom.context.compaction.sealed import Seal, sealed_key
from elbowroom.context.compaction.verdict import (
    all_said,
    identifiers_in,
    own_words,
    unpaired,
)

__all__ = [
    "CALLED",
    "CUT_OFF",
    "EMPTY",
    "ONLY_THOUGHT",
    "SUMMARISES",
    "Cannot",
    "Compaction",
    "Ladder",
    "Plan",
    "RemovedCalls",
    "Rung",
    "Seal",
    "State",
    "TaskState",
    "Unusable",
    "Wishes",
    "all_said",
    "carried_in",
    "depths_in",
    "find_identifiers",
    "find_values",
    "identifiers_in",
    "index_of",
    "inner_summary",
    "is_of_person",
    "is_summary",
    "is_summary_message",
    "lists_named_in",
    "naming_tool",
    "note_on",
    "own_words",
    "read_prune_answer",
    "restored",
    "results_in",
    "sealed_key",
    "smallest",
    "spoken",
    "stands_in",
    "state_of",
    "summary_of_calls",
    "tail_starts",
    "unpaired",
    "usual_turn",
    "with_whole_answer",
    "with_words",
]
