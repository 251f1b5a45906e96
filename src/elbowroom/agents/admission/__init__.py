"""Which request may use a model now?"""

from elbowroom.agents.admission.admission import Admission, PoolKey, Priority, Ticket
from elbowroom.agents.admission.jobs import QUIET_SECONDS, Background, Gate, Job

__all__ = [
    "QUIET_SECONDS",
    "Admission",
    "Background",
    "Gate",
    "Job",
    "PoolKey",
    "Priority",
    "Ticket",
]
