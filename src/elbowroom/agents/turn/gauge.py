"""Measures how full the window is with the next prompt, of which the person has not written a word yet."""

import asyncio
import logging
from typing import Final

from elbowroom.agents.prompt import StepPrompt, is_short
from elbowroom.agents.turn.state import RunSettings
from elbowroom.context.compaction import usual_turn
from elbowroom.context.conversation import ContextFill
from elbowroom.context.transcript import Message
from elbowroom.tokens.count import MOST_LETTERS, left_of

log = logging.getLogger(__name__)
NEXT: Final[Message] = {"role": "user", "content": "..."}
"""Stands for the message that the person will write: some templates leave thoughts out only before a new one."""


async def note_fill(prompt: StepPrompt, settings: RunSettings, unseen: int = 0) -> None:
    """Record how full the window is with the next prompt, `unseen` tokens included that this one lacks; never fails."""
    if settings.live is None:
        return
    try:
        body = await prompt.body([*prompt.manager.history.messages, NEXT])
        sent, tokens = body["messages"], (await prompt.size(body)).count.tokens
        asked = sent[:-1], tokens, prompt.shape.tools
        is_quick = is_short(sent) and left_of(MOST_LETTERS, prompt.shape.tools) > 0
        turn = usual_turn(*asked) if is_quick else await asyncio.to_thread(usual_turn, *asked)
        fill = ContextFill.of(tokens + unseen, prompt.manager.budget, turn)
    except Exception:
        log.exception("How full the window of a conversation with %s is, cannot be counted.", prompt.info.id)
    else:
        settings.live.filled(fill)
        settings.shared.running.refilled += 1
