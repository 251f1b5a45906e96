"""Takes note of how answers end, and when they began to be seen."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.run_settings import RunSettings
from elbowroom.errors import ElbowroomError
from elbowroom.server.client_left import ClientLeft


@contextmanager
def observed(target: Target, request: ChatRequest, settings: RunSettings) -> Iterator[None]:
    """Take note of the answer that the block gives, and let its turn know who gives it."""
    turn, began = settings.running, time.monotonic()
    failure: BaseException | None = None
    if turn is not None:
        turn.answered_by(target.name, target.model, None)
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        agent = target.agent.id if target.agent is not None else ""
        kind = "task" if request.caller.is_task else "agent" if agent else "model"
        outcome = outcome_of(failure, is_stopped=turn is not None and turn.is_stopped)
        spoke_at = turn.spoke_at if turn is not None else None
        first_token = spoke_at - began if spoke_at is not None else None
        settings.shared.observations.answered(agent, kind, outcome, time.monotonic() - began, first_token)


def outcome_of(failure: BaseException | None, *, is_stopped: bool) -> str:
    """Return how an answer has ended; one that a person has stopped may end by being cancelled."""
    if isinstance(failure, asyncio.CancelledError | None):
        return "stopped" if is_stopped else "whole" if failure is None else "left"
    if isinstance(failure, ClientLeft):
        return "left"
    return str(failure.status) if isinstance(failure, ElbowroomError) else "500"
