"""How full the window of a running model step is, counted when somebody asks and not as words stream by."""

from collections.abc import Callable, Sequence
from typing import Protocol

from elbowroom.context.conversation_changes import ContextFill
from elbowroom.context.manager import AgentContextManager
from elbowroom.tokens.stream_count import StreamCounter


class Growing(Protocol):
    """An answer that is being read."""

    @property
    def generated(self) -> int:
        """Return how many tokens have come."""
        ...


class Unwatched:
    """An answer that nobody may stop: `pieces` returns all that has come of it. Each piece is counted once."""

    def __init__(self, pieces: Callable[[], Sequence[str]], counter: StreamCounter) -> None:
        self._pieces = pieces
        self._counter = counter
        self._counted = 0

    @property
    def generated(self) -> int:
        """Return how many tokens have come."""
        pieces = self._pieces()
        for text in pieces[self._counted :]:
            self._counter.feed(text)
        self._counted = len(pieces)
        return self._counter.value


class LiveFill:
    """Knows what the window of `manager` holds: what is known to be in it, and the answer that is being read."""

    def __init__(self, manager: AgentContextManager) -> None:
        self._manager = manager
        self._answer: Growing | None = None

    def begin(self, answer: Growing) -> None:
        """Let this answer grow behind the prompt that was sent."""
        self._answer = answer

    def end(self) -> None:
        """Let the answer be over."""
        self._answer = None

    def now(self) -> ContextFill | None:
        """Return how full the window is at this moment; None before the first prompt is measured."""
        if not self._manager.filled:
            return None
        budget = self._manager.budget
        generated = self._answer.generated if self._answer is not None else 0
        return ContextFill(self._manager.filled + generated, budget.window, budget.trigger, budget.stop_at)
