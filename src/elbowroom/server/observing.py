"""Takes note of how answers end, and when they began to be seen."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from elbowroom.agents.catalog import Target
from elbowroom.agents.running_turns import RunningTurn
from elbowroom.context.observations import Observations
from elbowroom.errors import ElbowroomError
from elbowroom.server.event_stream import ClientLeft


@dataclass(slots=True)
class Observed:
    """One answer while it is given; `turn` is set as soon as there is one."""

    turn: RunningTurn | None = None
    began: float = field(default_factory=time.monotonic)

    def outcome(self, error: BaseException | None) -> str:
        """Return how the answer has ended."""
        if isinstance(error, ElbowroomError):
            return str(error.status)
        if isinstance(error, asyncio.CancelledError | ClientLeft):
            return "left"
        if error is not None:
            return "500"
        return "stopped" if self.turn is not None and self.turn.is_stopped else "whole"

    @property
    def first_token(self) -> float | None:
        """Return after how many seconds the first word or thought came."""
        spoke_at = self.turn.spoke_at if self.turn is not None else None
        return spoke_at - self.began if spoke_at is not None else None


@contextmanager
def observed(observations: Observations, target: Target, *, is_task: bool) -> Iterator[Observed]:
    """Take note of the answer that the block gives."""
    answer, failure = Observed(), None
    try:
        yield answer
    except BaseException as error:
        failure = error
        raise
    finally:
        agent = target.agent.id if target.agent is not None else ""
        kind = "task" if is_task else "agent" if agent else "model"
        seconds = time.monotonic() - answer.began
        observations.answered(agent, kind, answer.outcome(failure), seconds, answer.first_token)
