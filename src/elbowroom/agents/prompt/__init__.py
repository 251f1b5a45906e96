"""What is sent upstream, and how large is it?"""

from elbowroom.agents.prompt.body import StepRequest, relay_body, step_body, with_instructions
from elbowroom.agents.prompt.counters import NO_THINKING, HistoryCounter, HistoryCounters, StepCounter, Unreported
from elbowroom.agents.prompt.size import PromptSize, prompt_size, step_usage_of
from elbowroom.agents.prompt.windows import LEAST_GUESS, LEAST_LESSON, LearnedWindows

__all__ = [
    "LEAST_GUESS",
    "LEAST_LESSON",
    "NO_THINKING",
    "HistoryCounter",
    "HistoryCounters",
    "LearnedWindows",
    "PromptSize",
    "StepCounter",
    "StepRequest",
    "Unreported",
    "prompt_size",
    "relay_body",
    "step_body",
    "step_usage_of",
    "with_instructions",
]
