"""What a turn lets others know while it goes on: its phase, the fill of the window, and what its steps have used."""

from collections.abc import Callable, Mapping
from typing import Any

from elbowroom.agents.catalog import Target
from elbowroom.agents.managed_step import ManagedStep
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.running_turns import Phase
from elbowroom.agents.step import Step
from elbowroom.agents.step_usage_of import step_usage_of
from elbowroom.agents.stream_watch import size_in_bytes
from elbowroom.context.conversation_changes import ContextFill
from elbowroom.context.step_usage import StepUsage
from elbowroom.context.tool_calls import as_json
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo


class TurnRecords:
    """Tells the running turn, the conversation and the observations of `settings`, as far as there are any."""

    def __init__(self, target: Target, settings: RunSettings) -> None:
        self._target = target
        self._running = settings.running
        self._live = settings.live
        self._observations = settings.shared.observations

    def is_in(self, phase: Phase) -> None:
        """Tell what is being done now."""
        if self._running is not None:
            self._running.phase = phase

    def is_asked(self, info: ModelInfo, filling: Callable[[], ContextFill | None] | None) -> None:
        """Tell which model answers now, and how to find out how full its window is."""
        if self._running is not None:
            self._running.answered_by(self._target.name, info.id, filling)

    def used(self, managed: ManagedStep) -> None:
        """Keep what the requests of a step have used together, and what the last of them has filled."""
        if not managed.used:
            return
        budget = managed.manager.budget
        fill = ContextFill(managed.used[-1].total, budget.window, budget.trigger, budget.stop_at)
        used = sum(managed.used, StepUsage())
        self._observations.step_used(managed.name, used, fill)
        if self._live is not None:
            self._live.step_used(managed.info.id, used, fill)

    def used_roughly(self, info: ModelInfo, step: Step, body: Mapping[str, Any]) -> None:
        """Keep what a request of a provider has used of which nobody asks to count; one it refused has used nothing."""
        if self._live is not None and (step.usage is not None or step.generated):
            size = rough_size(as_json(body))
            self._live.step_used(info.id, step_usage_of(step.usage, size, step.generated, rough_size), None)

    def failed(self, failure: ElbowroomError) -> None:
        """Count a request that the provider did not answer."""
        self._observations.upstream_failed(self._target.provider.id, type(failure).__name__)

    def restarted(self, restarts: int) -> None:
        """Count how often the turn's requests were cut and sent again."""
        self._observations.restarted(restarts)


def rough_size(text: str) -> int:
    """Return about how many tokens a text has, for a model of which nobody asks to count."""
    return -(-size_in_bytes(text) // 3)
