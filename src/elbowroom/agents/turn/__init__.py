"""How is one answer given inside the model's window?"""

from elbowroom.agents.turn.asking import Asking
from elbowroom.agents.turn.compactor import Compactor
from elbowroom.agents.turn.entries import Entries
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.agents.turn.forgetting import last_came_back, let_go
from elbowroom.agents.turn.gauge import note_fill
from elbowroom.agents.turn.recall import Recall
from elbowroom.agents.turn.standing import Standing, put_in_words, standing_summary, take_back
from elbowroom.agents.turn.state import CompactionNotes, RunSettings, Shared
from elbowroom.agents.turn.stream import ReplyStream
from elbowroom.agents.turn.turn import Turn

__all__ = [
    "Asking",
    "CompactionNotes",
    "Compactor",
    "Entries",
    "PromptFit",
    "Recall",
    "ReplyStream",
    "RunSettings",
    "Shared",
    "Standing",
    "Turn",
    "last_came_back",
    "let_go",
    "note_fill",
    "put_in_words",
    "standing_summary",
    "take_back",
]
