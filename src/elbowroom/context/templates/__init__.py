"""What does a model's chat template demand of a history, and how is a history brought into that form?"""

from elbowroom.context.templates.demands import (
    ANSWER,
    ASK,
    ASK_AGAIN,
    SYSTEM,
    Asking,
    TemplateDemands,
    asked_demands,
    asked_without_tools,
)
from elbowroom.context.templates.normalise import normalise, with_content
from elbowroom.context.templates.repair import TakenIds, answers_in, orphans_in, with_free_id

__all__ = [
    "ANSWER",
    "ASK",
    "ASK_AGAIN",
    "SYSTEM",
    "Asking",
    "TakenIds",
    "TemplateDemands",
    "answers_in",
    "asked_demands",
    "asked_without_tools",
    "normalise",
    "orphans_in",
    "with_content",
    "with_free_id",
]
