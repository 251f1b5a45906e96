"""Which request may use a model now, and on which machine?"""

from elbowroom.agents.admission.admission import Admission, Leaving, OnWait
from elbowroom.agents.admission.jobs import QUIET_SECONDS, Background, Job, Work
from elbowroom.agents.admission.places import Placement, Places, PromptToPlace
from elbowroom.agents.admission.pool import PoolKey, Priority, Ticket

__all__ = [
    "QUIET_SECONDS",
    "Admission",
    "Background",
    "Job",
    "Leaving",
    "OnWait",
    "Placement",
    "Places",
    "PoolKey",
    "Priority",
    "PromptToPlace",
    "Ticket",
    "Work",
]
