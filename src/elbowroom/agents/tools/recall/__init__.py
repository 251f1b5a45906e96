"""How does a model find again what a compaction took out of its window?"""

from elbowroom.agents.tools.recall.past import Past
from elbowroom.agents.tools.recall.tool import RECALL_TOOL, Recaller, ResultRoom

__all__ = ["RECALL_TOOL", "Past", "Recaller", "ResultRoom"]
