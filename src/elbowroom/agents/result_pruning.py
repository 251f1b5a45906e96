"""Mechanical pruning in one step's history: results are viewed as they come in, and shortened as they grow old."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.agents.history import History
from elbowroom.agents.output_keeper import OutputKeeper
from elbowroom.agents.step_counter import StepCounter
from elbowroom.agents.turn_memory import TurnMemory, Written
from elbowroom.context.ledger import is_system
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.readable import written
from elbowroom.context.transcript import Message

log = logging.getLogger(__name__)
NOTHING_ASKED: Final[Message] = {"role": "user", "content": "-"}
PRUNED: Final = "pruned"


@dataclass(frozen=True, slots=True)
class ResultPruning:
    """Changes `history` without a model; what it becomes of the client's part is kept in `memory` for later turns."""

    keeper: OutputKeeper
    counter: StepCounter
    history: History
    manager: AgentContextManager
    memory: TurnMemory

    async def begin_step(self) -> None:
        """Keep what has come in, let the model have views of what is too large, and shorten what is due."""
        whole = self.history.messages
        budget = self.manager.budget
        empty = [*filter(is_system, whole), NOTHING_ASKED]
        fixed = budget.occupied(await self.counter.prompt(empty))
        self.keeper.begin_step(self.counter.text, budget.window, fixed)
        seen = await self.keeper.take_in(whole, self.memory.of_client) or whole
        await self._take_over(whole, self.keeper.pruned(seen, must_shrink=False) or seen)

    async def free(self, *, at_any_gain: bool = False) -> bool:
        """Shorten all that may be shortened: the prompt has to shrink. Tell whether that brought enough."""
        whole = self.history.messages
        shorter = self.keeper.pruned(whole, must_shrink=True, at_any_gain=at_any_gain)
        if shorter is None:
            return False
        await self._take_over(whole, shorter)
        return True

    async def _take_over(self, whole: Sequence[Message], shorter: Sequence[Message]) -> None:
        if shorter is whole:
            return
        before = self.history.of_client
        self.history.shorten(shorter)
        after = await self.counter.prompt(shorter)
        freed = sum(
            self._size_of(old) - self._size_of(new) for old, new in zip(whole, shorter, strict=True) if old is not new
        )
        log.info("Results of tools are shortened: %d tokens instead of about %d.", after, after + freed)
        if self.history.of_client != before:
            self.memory.keep(self.history, Written(self.manager.budget.window, after + freed, after, PRUNED))

    def _size_of(self, message: Message) -> int:
        """Return about how many tokens a message has: the whole prompt may hold what takes too long to count."""
        return self.counter.text(written(message))
