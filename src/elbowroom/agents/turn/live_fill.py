"""How full a model's window is at any moment of an answer."""

from collections.abc import Callable, Sequence

from elbowroom.agents.turn.stream import StreamWatch
from elbowroom.context.conversation import ContextFill
from elbowroom.context.manager import AgentContextManager
from elbowroom.tokens.files import StreamCounter


class LiveFill:
    """Knows how full the window of `manager` is at any moment: by the prompt, and by the answer that grows."""

    def __init__(self, manager: AgentContextManager) -> None:
        self._manager = manager
        self._answer: StreamWatch | Unwatched | None = None

    def begin(self, answer: "StreamWatch | Unwatched") -> None:
        """Add this answer to the fill from now on; it follows the prompt that was sent."""
        self._answer = answer

    def end(self) -> None:
        """Note that the answer has ended."""
        self._answer = None

    def now(self) -> ContextFill | None:
        """Return how full the window is at this moment; None before the first prompt is measured."""
        if not self._manager.filled:
            return None
        generated = self._answer.generated if self._answer is not None else 0
        return ContextFill.of(self._manager.budget, self._manager.filled + generated)


class Unwatched:
    """Counts an answer that nothing may stop: `pieces` returns all its text so far, and each piece is counted once."""

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
