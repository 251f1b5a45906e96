"""Compacts a conversation because a person asked for it, whatever the thresholds say."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elbowroom.agents.answer import AnswerEvent
from elbowroom.agents.catalog import Target
from elbowroom.agents.offered_tools import offered_unasked
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.turn import Turn
from elbowroom.context.compaction import Compaction
from elbowroom.errors import RequestError


@dataclass(frozen=True, slots=True)
class CompactedRequest:
    """A conversation after it was asked to be compacted; sizes in tokens.

    It may be what it was before: as the client sent it, or as it stands since an earlier compaction. `rung` says how
    it was done: by the plan of the pruning agent, at its second attempt, or by code alone.
    """

    messages: tuple[Mapping[str, Any], ...]
    before: int
    after: int
    rung: str | None
    seconds: float


async def compact_request(target: Target, request: ChatRequest, settings: RunSettings) -> CompactedRequest:
    """Return the request's history, compacted. Raises RequestError where nothing is ever compacted."""
    if not settings.compaction.enabled:
        raise RequestError("Compaction is switched off: set compaction.enabled = true to use it.")
    if not target.provider.manages_context:
        raise RequestError(
            f"The provider {target.provider.id!r} is passed through as it is: set manage_context = true to have its "
            "conversations compacted.",
            param="model",
        )
    began = time.monotonic()
    settings = replace(settings, live=await settings.shared.recording.found(target, request))
    offered = await offered_unasked(target, request, settings)
    turn = Turn(target, offered.request, _tell_nobody, settings, offered.keeper)
    instructions = target.agent.instructions if target.agent else None
    messages, before, outcome = await turn.compact(instructions, offered.specs)
    seconds = time.monotonic() - began
    if isinstance(outcome, Compaction):
        return CompactedRequest(outcome.messages, outcome.before, outcome.after, outcome.rung, seconds)
    return CompactedRequest(tuple(messages), before, before, None, seconds)


async def _tell_nobody(events: Sequence[AnswerEvent]) -> None:
    """The person who asked waits for the result itself."""
