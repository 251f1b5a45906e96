"""What is kept of a conversation, and what waits in its queue?"""

from elbowroom.agents.conversations.beginning import Recording, new_id
from elbowroom.agents.conversations.queue import DROPPED, FOLLOW_UP, STEER, Accepted, Intake, MessageQueue, told
from elbowroom.agents.conversations.recording import HANDED_OVER, TurnRecorder
from elbowroom.agents.conversations.shared_queue import queue_of

__all__ = [
    "DROPPED",
    "FOLLOW_UP",
    "HANDED_OVER",
    "STEER",
    "Accepted",
    "Intake",
    "MessageQueue",
    "Recording",
    "TurnRecorder",
    "new_id",
    "queue_of",
    "told",
]
