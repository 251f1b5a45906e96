"""Applies the edits that a client wants of its history, and keeps whole what they clear."""

from collections.abc import Sequence

from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.turn.state import RunSettings
from elbowroom.context.ledger import Chain
from elbowroom.context.outputs import EditedHistory, Editor, PromptSize
from elbowroom.context.transcript import Message
from elbowroom.settings.model import ToolOutputSettings


async def edited_history(
    target: Target,
    request: ChatRequest,
    settings: RunSettings,
    messages: Sequence[Message],
    chain: Chain,
    size_of: PromptSize,
) -> EditedHistory:
    """Return a history after the edits that the client wants; `chain` is that of the client's messages.

    What earlier requests of the conversation have cleared stays cleared.
    """
    chosen = _chosen(target, settings)
    editor = Editor(
        request.caller.owner,
        size_of,
        chosen.kinds,
        names_refs=chosen.enabled,
        keeps_errors=chosen.preserve_errors_verbatim,
    )
    return await editor.edited(messages, request.edits, settings.shared.notes.cleared.find(chain) or "")


async def keep_cleared(
    target: Target, request: ChatRequest, settings: RunSettings, chain: Chain, done: EditedHistory
) -> None:
    """Keep whole what was cleared, and note how far that goes for the next requests of the conversation."""
    shared, owner = settings.shared, request.caller.owner
    if done.last and chain.keys:
        shared.notes.cleared.keep(chain.keys[-1], done.last)
    if _chosen(target, settings).enabled:
        outputs = shared.store.tool_outputs
        kept = [await outputs.keep(owner, name, text) for name, text in done.outputs]
        await outputs.in_use(owner, {ref.id for ref in kept})


def _chosen(target: Target, settings: RunSettings) -> ToolOutputSettings:
    agent, common = target.agent, settings.tool_output
    return agent.tool_output.over(common) if agent is not None else common
