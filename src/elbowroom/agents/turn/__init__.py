"""How is one answer given inside the model's window?"""

from elbowroom.agents.turn.recall import Recall, Standing
from elbowroom.agents.turn.state import RunSettings, Shared
from elbowroom.agents.turn.stream import ReplyStream, read_reply
from elbowroom.agents.turn.turn import Turn

__all__ = ["Recall", "ReplyStream", "RunSettings", "Shared", "Standing", "Turn", "read_reply"]
