"""Says why an engine had to read again what it had read before, and what that has cost. Pure: it compares digests."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from elbowroom.context.chains import LEAST_LOST, Kept, SentPrompt

Reason = Literal[
    "model_changed",
    "tools_changed",
    "arguments_changed",
    "system_changed",
    "messages_changed",
    "compacted",
    "other_request",
    "engine_forgot",
]
WORDS: Final[Mapping[Reason, str]] = {
    "model_changed": "another model answers now",
    "tools_changed": "the tools have changed",
    "arguments_changed": "the arguments of the chat template have changed",
    "system_changed": "the system prompt has changed",
    "messages_changed": "message {at} has changed",
    "compacted": "the conversation was compacted",
    "other_request": "another request was in between",
    "engine_forgot": "the engine has forgotten it",
}


@dataclass(frozen=True, slots=True)
class Change:
    """Why two prompts cannot share what the engine has read, and with how many messages they begin alike.

    `reason` is None where the later one goes on where the first one ended.
    """

    reason: Reason | None
    shared: int


@dataclass(frozen=True, slots=True)
class CacheLoss:
    """What an engine had to read again for one prompt: tokens, and seconds where the time of reading is known.

    `at` is the number of the message, from 1, that was the first to change. `is_measured` tells that the engine has
    told how much it found in its cache; else that is what it should have found.
    """

    reason: Reason
    tokens: int
    seconds: float | None
    at: int | None
    is_measured: bool

    @property
    def told(self) -> str:
        """Return it as a sentence."""
        seconds = f" in {self.seconds:.1f} s" if self.seconds is not None else ""
        about = "" if self.is_measured else "about "
        return f"{about}{self.tokens:,} tokens read again{seconds}: {WORDS[self.reason].format(at=self.at)}"

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        seconds = round(self.seconds, 3) if self.seconds is not None else None
        return {**asdict(self), "seconds": seconds, "told": self.told}


def change_between(before: SentPrompt, now: SentPrompt) -> Change:
    """Return what keeps the engine from going on after an earlier prompt of the same conversation."""
    shared = now.shared_with(before)
    if now.continues(before):
        return Change("arguments_changed" if now.arguments != before.arguments else None, shared)
    if now.model != before.model:
        return Change("model_changed", 0)
    if not now.is_in_load_of(before):
        return Change("engine_forgot", 0)
    if now.tools != before.tools:
        return Change("tools_changed", 0)
    if now.compacted != before.compacted:
        return Change("compacted", shared)
    if shared == 0 and (now.has_system or before.has_system):
        return Change("system_changed", 0)
    return Change("messages_changed", shared)


def alike_in_cache(kept: Kept, change: Change) -> int:
    """Return with how many messages the prompt begins like the one that its engine should have."""
    if change.reason is not None or kept.before is None:
        return change.shared
    return kept.now.shared_with(kept.last) if kept.last is not None and kept.now.begins_as(kept.last) else 0


def loss_of(kept: Kept, change: Change, cached: int, *, is_measured: bool, seconds: float | None) -> CacheLoss | None:
    """Return what could not be reused of the prompt before; None where that is next to nothing.

    `cached` are the tokens of this prompt that the engine did not have to read, and `seconds` is how long it has read
    the others.
    """
    before, now = kept.before, kept.now
    tokens = min(before.tokens, now.tokens) - cached if before is not None else 0
    if tokens < LEAST_LOST:
        return None
    reason = change.reason or ("other_request" if kept.others else "engine_forgot")
    share = tokens / max(1, now.tokens - cached)
    at = change.shared + 1 if reason == "messages_changed" else None
    return CacheLoss(reason, tokens, None if seconds is None else seconds * share, at, is_measured)
