"""How are the outputs of tools kept, and read again by reference?"""

from elbowroom.agents.tools.outputs.editing import ClientEdits
from elbowroom.agents.tools.outputs.keeper import NOTHING, OutputKeeper

__all__ = ["NOTHING", "ClientEdits", "OutputKeeper"]
