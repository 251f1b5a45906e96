"""How does a model find again what a compaction took out of its window?"""

from elbowroom.agents.tools.recall.past import Past, PastMessage
from elbowroom.agents.tools.recall.past_index import PastIndex
from elbowroom.agents.tools.recall.pasts import Pasts
from elbowroom.agents.tools.recall.tool import RECALL_TOOL, Recaller, ResultRoom

__all__ = ["RECALL_TOOL", "Past", "PastIndex", "PastMessage", "Pasts", "Recaller", "ResultRoom"]
