"""Which request may use a model now, and on which machine?"""

from elbowroom.agents.admission.admission import Admission, Leaving
from elbowroom.agents.admission.jobs import QUIET_SECONDS, Background, Job, Work
from elbowroom.agents.admission.places import Placement, Places, PromptToPlace
from elbowroom.agents.admission.pool import PoolKey, Priority, Ticket

__all__ = [
    "QUIET_SECONDS",
    "Admission",
    "Background",
    "Job",
    "Leaving",
    "Placement",
    "Places",
    "PoolKey",
    "Priority",
    "PromptToPlace",
    "Ticket",
    "Work",
]
