"""Applies the edits that a client wants of its history, and keeps whole what they clear."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from elbowroom.agents.request import ChatRequest
from elbowroom.agents.tools.memory import ByConversation
from elbowroom.context.ledger import Chain
from elbowroom.context.outputs import EditedHistory, Editor, PromptSize, ToolOutputs
from elbowroom.context.transcript import Message
from elbowroom.settings.model import ToolOutputSettings


@dataclass(frozen=True, slots=True)
class ClientEdits:
    """The edits that a request wants; what earlier requests of the conversation have cleared stays cleared.

    `cleared` has noted how far that goes in each conversation, and `outputs` keep what was cleared.
    """

    request: ChatRequest
    settings: ToolOutputSettings
    cleared: ByConversation[str]
    outputs: ToolOutputs

    async def applied_to(self, messages: Sequence[Message], chain: Chain, size_of: PromptSize) -> EditedHistory:
        """Return a history after the edits; `chain` is that of the client's messages, `size_of` counts prompts."""
        owner, chosen = self.request.caller.owner, self.settings
        errors = chosen.preserve_errors_verbatim
        editor = Editor(
            owner, size_of, chosen.kinds, lambda: asyncio.sleep(0), names_refs=chosen.enabled, keeps_errors=errors
        )
        return await editor.edited(messages, self.request.edits, self.cleared.find(chain) or "")

    async def keep(self, done: EditedHistory, chain: Chain) -> None:
        """Keep whole what was cleared, and note how far that goes for the next requests of the conversation."""
        if done.last and chain.keys:
            self.cleared.keep(chain.keys[-1], done.last)
        if self.settings.enabled:
            owner = self.request.caller.owner
            kept = [await self.outputs.keep(owner, name, text) for name, text in done.outputs]
            await self.outputs.in_use(owner, {ref.id for ref in kept})
