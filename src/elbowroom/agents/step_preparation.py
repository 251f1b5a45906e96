"""Prepares the managed steps of a turn: what counts, decides and fits, for the window that is loaded now."""

import logging
from collections.abc import Awaitable, Callable

from elbowroom.agents.answer import Sink
from elbowroom.agents.background import Job
from elbowroom.agents.catalog import Target
from elbowroom.agents.compactor import Compactor
from elbowroom.agents.fitting import Fitting
from elbowroom.agents.gate import Gate
from elbowroom.agents.history import History
from elbowroom.agents.managed_step import ManagedStep
from elbowroom.agents.output_keeper import OutputKeeper
from elbowroom.agents.request_body import StepRequest
from elbowroom.agents.result_pruning import ResultPruning
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.step import Step
from elbowroom.agents.step_counter import StepCounter
from elbowroom.agents.turn_memory import TurnMemory
from elbowroom.context.budget import Budget
from elbowroom.context.manager import AgentContextManager
from elbowroom.errors import WindowUnknown
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)


class StepPreparation:
    """Makes the managed steps of one turn, which share its history and what decides about its window.

    `keeper` keeps what tools return where the model can read it again. `remember` has the agent told what it has saved,
    given what tells the size of a text in tokens.
    """

    def __init__(
        self,
        target: Target,
        settings: RunSettings,
        sink: Sink,
        history: History,
        memory: TurnMemory,
        *,
        keeper: OutputKeeper | None,
        remember: Callable[[Callable[[str], int]], Awaitable[None]],
    ) -> None:
        self._target = target
        self._settings = settings
        self._sink = sink
        self._history = history
        self._memory = memory
        self._keeper = keeper
        self._remember = remember
        self._manager: AgentContextManager | None = None

    async def step(self, shape: StepRequest, info: ModelInfo, step: Step, *, is_first: bool) -> ManagedStep:
        """Return the next step. Before the first of a turn, what was compacted of the conversation is taken over."""
        provider = self._target.provider
        history = await self._settings.shared.histories.of(provider, info, shape.body(()))
        running = await history.counter.stream()
        await self._remember(history.text)
        counter = StepCounter(history, running, lambda sent: shape.with_instructions(self._history.sent(sent)))
        manager = self._manager_for(info, shape.max_tokens)
        compactor = Compactor(self._target, self._settings, self._sink, Gate(self._settings.shared.admission))
        pruning = None
        if self._keeper is not None:
            pruning = ResultPruning(self._keeper, counter, self._history, manager, self._memory)
        fitting = Fitting(shape, counter, self._history, manager, compactor, self._memory, pruning)
        return ManagedStep(provider, info, fitting, step, await self._recalled(fitting) if is_first else None)

    async def _recalled(self, fitting: Fitting) -> Job | None:
        """Take over what was compacted before; return a compaction of the same conversation that is under way."""
        try:
            job = self._settings.shared.background.taken_up(self._memory.chain.keys)
            await fitting.recall()
        except Exception:  # a chat that nobody remembers goes on as a new one
            log.exception("What was compacted of a conversation with %s cannot be recalled.", self._target.name)
            return None
        return job

    def _manager_for(self, info: ModelInfo, max_tokens: int | None) -> AgentContextManager:
        """Return the turn's manager, with what can be used of the window that is loaded now. Raises WindowUnknown."""
        if info.loaded_context is None:
            raise WindowUnknown(info.id, self._target.provider.id)
        chosen = self._settings.compaction
        window = self._settings.shared.windows.at_most(info, info.loaded_context)
        budget = Budget(window, chosen.threshold_ratio, max_tokens)
        if self._manager is None:
            self._manager = AgentContextManager(
                budget, max_restarts=chosen.max_restarts, auto=chosen.enabled and chosen.auto
            )
        self._manager.use(budget)
        return self._manager
