"""How are the outputs of tools kept, and read again by reference?"""

from elbowroom.agents.tools.outputs.editing import ClientEdits
from elbowroom.agents.tools.outputs.keeper import NOTHING, OutputKeeper
from elbowroom.agents.tools.outputs.pages import shown_within
from elbowroom.agents.tools.outputs.search import LinearPattern

__all__ = ["NOTHING", "ClientEdits", "LinearPattern", "OutputKeeper", "shown_within"]
