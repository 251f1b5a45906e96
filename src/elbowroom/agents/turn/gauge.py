"""Measures how full the window is with the next prompt, of which the person has not written a word yet."""

import asyncio
import logging
from dataclasses import replace
from typing import Final

from elbowroom.agents.prompt import is_short
from elbowroom.agents.turn.fit import PromptFit
from elbowroom.context.compaction import usual_turn
from elbowroom.context.conversation import ContextFill
from elbowroom.context.transcript import Message
from elbowroom.tokens.count import MOST_LETTERS, left_of

log = logging.getLogger(__name__)
NEXT: Final[Message] = {"role": "user", "content": "..."}
"""Stands for the message that the person will write: some templates leave thoughts out only before a new one."""


async def next_fill(fit: PromptFit) -> ContextFill:
    """Return how full the window is with the next prompt."""
    sent = await fit.counter.sent([*fit.manager.history.messages, NEXT])
    tokens = (await fit.counter.size(fit.shape.body(sent))).count.tokens
    asked, tools = (sent[:-1], tokens), fit.shape.tools
    is_quick = is_short(sent) and left_of(MOST_LETTERS, tools) > 0
    turn = usual_turn(*asked, tools) if is_quick else await asyncio.to_thread(usual_turn, *asked, tools)
    return ContextFill.of(tokens, fit.manager.budget, turn)


async def note_fill(fit: PromptFit, unseen: int = 0) -> None:
    """Record how full the window is, `unseen` tokens included that this request lacks; never fails."""
    settings = fit.compactor.settings
    if settings.live is None:
        return
    try:
        fill = await next_fill(fit)
    except Exception:
        log.exception("How full the window of a conversation with %s is, cannot be counted.", fit.info.id)
    else:
        settings.live.filled(replace(fill, tokens=fill.tokens + unseen))
        settings.shared.running.refilled += 1
