"""What does a model's chat template demand of a history, and how is a history brought into that form?"""

from elbowroom.context.templates.demands import ANSWER as ANSWER
from elbowroom.context.templates.demands import ASK as ASK
from elbowroom.context.templates.demands import ASK_AGAIN as ASK_AGAIN
from elbowroom.context.templates.demands import SYSTEM as SYSTEM
from elbowroom.context.templates.demands import Asking as Asking
from elbowroom.context.templates.demands import TemplateDemands as TemplateDemands
from elbowroom.context.templates.demands import asked_demands as asked_demands
from elbowroom.context.templates.demands import asked_without_tools as asked_without_tools
from elbowroom.context.templates.normalise import normalise as normalise
from elbowroom.context.templates.repair import TakenIds as TakenIds
from elbowroom.context.templates.repair import answers_in as answers_in
from elbowroom.context.templates.repair import orphans_in as orphans_in
from elbowroom.context.templates.repair import with_free_id as with_free_id
