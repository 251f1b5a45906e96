"""The turns that are running, by conversation: how far each is, and how a person stops them."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Literal

from elbowroom.agents.answer import AnswerEvent, Notice
from elbowroom.context.conversation import ContextFill

ENDING_SECONDS: Final = 5.0
"""How long a turn that is stopped may take to end: what it has begun is closed in milliseconds, as a rule."""
GRACE_SECONDS: Final = 20.0
"""How long the model may take to say what was left undone."""

Phase = Literal["waiting", "loading", "prefill", "streaming", "tool", "compacting", "last words"]
"""`waiting` is for other requests of the model, or for what an agent needs to begin."""
PHASES_TOLD: Final[dict[str, Phase]] = {
    "loading": "loading",
    "loaded": "prefill",
    "compacting": "compacting",
    "compacted": "prefill",
    "not compacted": "prefill",
    "waiting": "waiting",
}


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """Whether a conversation is being answered: since when, in seconds of the epoch, and how far that is.

    Of several `turns`, branches that are answered at once, it is the one that has run longest.
    """

    status: Literal["running", "idle"]
    since: float | None = None
    phase: Phase | None = None
    turns: int = 0


@dataclass(slots=True, eq=False)
class RunningTurn:
    """One turn that a person may stop, in the task that entered it. `name` is what the client calls its conversation.

    `id` is the turn's own, empty where it has none. `agent` and `model` are who answers now, and `filling` tells how
    full the model's window is at the moment; it is None where that is not looked after. `spoke_at` is when its first
    word or thought came, by the monotonic clock. `is_stopped` tells that a person has stopped it: what was said until
    then is the answer. `wants_last_words` tells that the model is to say then what was left undone.
    """

    owner: str
    conversation: str
    name: str
    task: "asyncio.Task[object]"
    ended: "asyncio.Future[None]"
    id: str = ""
    since: float = field(default_factory=time.time)
    phase: Phase = "waiting"
    agent: str = ""
    model: str = ""
    filling: Callable[[], ContextFill | None] | None = None
    spoke_at: float | None = None
    is_stopped: bool = False
    wants_last_words: bool = False
    _is_ending: bool = False

    def stop(self, *, last_words: bool = False) -> None:
        """Stop it where it is; one that says its last words is stopped in these."""
        if self._is_ending:
            return
        self.wants_last_words = last_words and not self.is_stopped
        self.is_stopped = self._is_ending = True
        self.task.cancel()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Run what a person may stop: the block is left at once then, and what follows it goes on.

        A cancellation that comes from anywhere else passes, also one that comes at the same moment.
        """
        before = self.task.cancelling() - self._is_ending
        try:
            yield
        except asyncio.CancelledError:
            if not self._taken() or self.task.cancelling() > before:
                raise
        except BaseException:
            self._taken()
            raise
        else:
            self._taken()

    @contextmanager
    def saying_last_words(self) -> Iterator[None]:
        """Let the model say its last words, in which it may be stopped once more."""
        self.phase = "last words"
        with self.stoppable():
            yield

    def answered_by(self, agent: str, model: str, filling: Callable[[], ContextFill | None] | None) -> None:
        """Take note of who answers now, and of what tells how full the window is."""
        self.agent, self.model, self.filling = agent, model, filling

    @property
    def fill(self) -> ContextFill | None:
        """Return how full the window is now; None where nobody knows."""
        return self.filling() if self.filling is not None else None

    def saw(self, events: Sequence[AnswerEvent]) -> None:
        """Take note of what the client is shown."""
        last = events[-1]
        if not isinstance(last, Notice):
            if self.phase not in ("streaming", "last words"):
                self.phase = "streaming"
                self.spoke_at = self.spoke_at or time.monotonic()
        elif last.kind in PHASES_TOLD:
            self.phase = PHASES_TOLD[last.kind]

    def _taken(self) -> bool:
        """Take back what `stop` has asked of the task; tell whether it had."""
        was_ending, self._is_ending = self._is_ending, False
        if was_ending:
            self.task.uncancel()
        return was_ending


class RunningTurns:
    """The turns of one server, on its event loop."""

    def __init__(self) -> None:
        self._turns: list[RunningTurn] = []

    @contextmanager
    def entered(self, owner: str, conversation: str, name: str = "", turn_id: str = "") -> Iterator[RunningTurn]:
        """Run a turn in the current task; a person who stops it ends the block, and whatever follows it goes on."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # turns run in tasks
        ended = asyncio.get_running_loop().create_future()
        turn = RunningTurn(owner, conversation, name, task, ended, turn_id)
        self._turns.append(turn)
        try:
            with turn.stoppable():
                yield turn
        finally:
            self._turns.remove(turn)
            turn.ended.set_result(None)

    def phases(self) -> list[Phase]:
        """Return the phases of all turns, whoever has them."""
        return [turn.phase for turn in self._turns]

    def of(self, owner: str, conversation: str | None = None) -> list[RunningTurn]:
        """Return the owner's turns that run, or those of one conversation, the one that has run longest first."""
        own = (turn for turn in self._turns if turn.owner == owner)
        return [turn for turn in own if conversation in (None, turn.conversation)]

    def find(self, owner: str, conversation: str) -> str | None:
        """Return the id of the running conversation with this id, or else with this name."""
        own = self.of(owner)
        for turn in own:
            if turn.conversation == conversation:
                return conversation
        return next((turn.conversation for turn in own if turn.name == conversation), None)

    def status(self, owner: str, conversation: str) -> ConversationStatus:
        """Tell whether the conversation with this id is being answered, and how far that is."""
        turns = self.of(owner, conversation)
        if not turns:
            return ConversationStatus("idle")
        return ConversationStatus("running", turns[0].since, turns[0].phase, len(turns))

    async def cancel(self, owner: str, conversation: str, *, last_words: bool = False) -> int:
        """Stop all turns of the conversation with this id, and return how many there were, once they have ended.

        One that does not end within some seconds is no longer waited for. Whoever leaves while he waits here has
        stopped them all the same.
        """
        return await _stopped(self.of(owner, conversation), last_words=last_words)

    def is_running(self, owner: str, turn_id: str) -> bool:
        """Tell whether the turn with this id is one of the owner's that run."""
        return any((turn.owner, turn.id) == (owner, turn_id) for turn in self._turns)

    async def cancel_turn(self, owner: str, turn_id: str) -> None:
        """Stop the one turn with this id, if it runs, as `cancel` does."""
        await _stopped([turn for turn in self._turns if (turn.owner, turn.id) == (owner, turn_id)], last_words=False)


async def _stopped(turns: Sequence[RunningTurn], *, last_words: bool) -> int:
    for turn in turns:
        turn.stop(last_words=last_words)
    if turns:
        seconds = ENDING_SECONDS + (GRACE_SECONDS if last_words else 0)
        await asyncio.wait([turn.ended for turn in turns], timeout=seconds)
    return len(turns)


def stoppable(turn: RunningTurn | None) -> AbstractContextManager[None]:
    """Return the turn's `stoppable`, or what does nothing where there is none: tasks and agents that others ask."""
    return turn.stoppable() if turn is not None else nullcontext()
