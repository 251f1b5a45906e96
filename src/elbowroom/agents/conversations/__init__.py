"""What is kept of a conversation, which turns run now, and what waits in their queues?"""

from elbowroom.agents.conversations.queue import STEER, Intake, MessageQueue
from elbowroom.agents.conversations.recording import HANDED_OVER, LiveTurn, Recording
from elbowroom.agents.conversations.running import (
    GRACE_SECONDS,
    ConversationStatus,
    Phase,
    RunningTurn,
    RunningTurns,
    stoppable,
)

__all__ = [
    "GRACE_SECONDS",
    "HANDED_OVER",
    "STEER",
    "ConversationStatus",
    "Intake",
    "LiveTurn",
    "MessageQueue",
    "Phase",
    "Recording",
    "RunningTurn",
    "RunningTurns",
    "stoppable",
]
