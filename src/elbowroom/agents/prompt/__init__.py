"""What is sent upstream, and how large is it?"""

from elbowroom.agents.prompt.body import (
    StepRequest,
    relay_body,
    step_body,
    thinking_off,
    with_instructions,
    without_answer_fields,
)
from elbowroom.agents.prompt.counters import (
    HistoryCounter,
    HistoryCounters,
    is_short,
    warn_of_orphans,
)
from elbowroom.agents.prompt.effects import carried_out
from elbowroom.agents.prompt.fitting_tools import fitting_tools
from elbowroom.agents.prompt.size import (
    LEAST_GUESS,
    LEAST_LESSON,
    LearnedWindows,
    PromptSize,
    cached_of,
    prompt_size,
    rough_size,
    step_usage_of,
    template_arguments,
)
from elbowroom.agents.prompt.step_prompt import StepPrompt, Unreported

__all__ = [
    "LEAST_GUESS",
    "LEAST_LESSON",
    "HistoryCounter",
    "HistoryCounters",
    "LearnedWindows",
    "PromptSize",
    "StepPrompt",
    "StepRequest",
    "Unreported",
    "cached_of",
    "carried_out",
    "fitting_tools",
    "is_short",
    "prompt_size",
    "relay_body",
    "rough_size",
    "step_body",
    "step_usage_of",
    "template_arguments",
    "thinking_off",
    "warn_of_orphans",
    "with_instructions",
    "without_answer_fields",
]
