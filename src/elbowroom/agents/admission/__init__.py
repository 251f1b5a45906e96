"""Which request may use a model now?"""

from elbowroom.agents.admission.admission import Admission
from elbowroom.agents.admission.jobs import QUIET_SECONDS, Background, Job
from elbowroom.agents.admission.pool import PoolKey, Priority, Ticket

__all__ = ["QUIET_SECONDS", "Admission", "Background", "Job", "PoolKey", "Priority", "Ticket"]
