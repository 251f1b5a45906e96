"""Remembers which prompts cannot fit, so that a client that asks the same again and again is answered at once.

What makes a refusal final is what no compaction can free: system message, tools, and the last message. A client that
drops older messages asks the same, so the digest of just that is the key. A refusal that a shorter history would avoid
has the whole history in its key. A window, a model or a setting that has changed makes another key as well.
"""

import asyncio
import copy
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import StepRequest, is_short, template_arguments
from elbowroom.caches import Recent
from elbowroom.context.compaction import smallest
from elbowroom.context.transcript import Message, Transcript, as_json
from elbowroom.errors import ContextOverflow
from elbowroom.providers.base import ModelInfo

SECONDS: Final = 60.0
"""How long a refusal is remembered after it was worked out."""
MOST_WORKED_OUT: Final = 2
"""How often the same refusal is worked out within that time."""
MOST_KEPT: Final = 500
REMEMBERED: Final = (
    " The same was asked {times} times within a minute, so nothing was worked out anew. elbowroom remembers this for "
    "{seconds} s, or until the request, the model or the settings change."
)


@dataclass(frozen=True, slots=True)
class AskedPrompt:
    """What a request asks for: the model in its window, what was `chosen` for it, and the whole prompt.

    `chosen` are the settings that count, and what the client wants of its context.
    """

    owner: str
    target: Target
    info: ModelInfo
    window: int
    chosen: tuple[object, ...]
    shape: StepRequest
    messages: Sequence[Message]

    @property
    def place(self) -> tuple[str, ...]:
        """Return whose request it is, and for which model."""
        return (self.owner, self.target.provider.id, self.info.id)

    async def key(self, *, is_final: bool) -> str:
        """Return the digest of the request, of a final refusal without the messages that a compaction could free."""
        if is_short(self.messages):
            return self._digest(is_final=is_final)
        return await asyncio.to_thread(self._digest, is_final=is_final)

    def _digest(self, *, is_final: bool) -> str:
        messages = smallest(Transcript.of(self.messages)) if is_final else self.messages
        body = self.shape.body(self.shape.with_instructions(messages))
        prompt = [body["messages"], body.get("tools"), self.shape.max_tokens, dict(template_arguments(body))]
        asked = (*self.place, self.window, self.chosen, self.target.agent, is_final)
        text = f"{asked!r}\0{as_json(prompt)}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that a request has got, how often by now, and when it was worked out last."""

    error: ContextOverflow
    times: int
    worked_out: float


class Refusals:
    """The refusals of the last minute, of all callers; `places` has who was refused, for which model, and when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused: Recent[str, Refusal] = Recent("refused prompts", MOST_KEPT)
        self.places: Recent[tuple[str, ...], float] = Recent("callers with refused prompts", MOST_KEPT)

    async def known(self, asked: AskedPrompt) -> ContextOverflow | None:
        """Return the error for a request that was refused often enough of late; None where it has to be worked out."""
        if not self._is_recent(self.places.get(asked.place)):
            return None
        for is_final in (True, False):
            key = await asked.key(is_final=is_final)
            refusal = self._refused.get(key)
            if refusal is None or refusal.times < MOST_WORKED_OUT or not self._is_recent(refusal.worked_out):
                continue
            self._refused.put(key, Refusal(refusal.error, refusal.times + 1, refusal.worked_out))
            return _again(refusal, max(1, round(refusal.worked_out + SECONDS - self._clock())))
        return None

    async def note(self, asked: AskedPrompt, error: ContextOverflow) -> None:
        """Note that a request was refused, once that was worked out."""
        now, key = self._clock(), await asked.key(is_final=error.is_final)
        before = self._refused.get(key)
        times = before.times if before is not None and self._is_recent(before.worked_out) else 0
        known = copy.copy(error)  # which has no traceback: that would keep the whole request
        self._refused.put(key, Refusal(known, times + 1, now))
        self.places.put(asked.place, now)

    def _is_recent(self, moment: float | None) -> bool:
        return moment is not None and self._clock() - moment < SECONDS


def _again(refusal: Refusal, seconds: int) -> ContextOverflow:
    error = refusal.error
    told = f"{error.message}{REMEMBERED.format(times=refusal.times + 1, seconds=seconds)}"
    again = type(error)(told, window=error.window, prompt_tokens=error.prompt_tokens)
    again.param, again.retry_after = error.param, seconds
    return again
