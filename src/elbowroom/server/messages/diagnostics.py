"""Anthropic's `diagnostics`: what a request has changed since an earlier one, and what that costs of the cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.agents.answer import Answer
from elbowroom.agents.request import ChatRequest
from elbowroom.caches import Recent
from elbowroom.context.reuse import SentPrompt, change_between
from elbowroom.context.transcript import as_json

ANSWERS_KEPT: Final = 512
TOLD: Final = frozenset({"model_changed", "system_changed", "tools_changed", "messages_changed"})
"""The reasons that have the same name in Anthropic's API; for all others it is unavailable."""
Diagnosis = dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of an `owner` as digests, with the letters of its tools and messages, and what was found of it."""

    owner: str
    prompt: SentPrompt
    letters: int
    diagnosis: Diagnosis


class Diagnoses:
    """Compares requests that ask for it with earlier ones of their owners; only digests and sizes are remembered."""

    def __init__(self) -> None:
        self._asked = Recent[tuple[str, str], tuple[Asked, int]]("message_prompts", ANSWERS_KEPT)

    def of(self, wanted: Mapping[str, Any], chat: ChatRequest) -> Asked:
        """Compare a request with its owner's that was answered by the message that the `wanted` diagnostics name."""
        body = {"messages": chat.messages, "tools": chat.tools}
        arguments = {name: as_json(value) for name, value in chat.fields.items() if name not in body}
        prompt = SentPrompt.of(chat.model, None, body, arguments)
        named = wanted.get("previous_message_id")
        diagnosis = self._diagnosis(named, prompt, chat) if isinstance(named, str) else None
        return Asked(chat.caller.owner, prompt, _letters(chat, len(chat.messages)), diagnosis)

    def answered(self, message: str, asked: Asked, answer: Answer) -> None:
        """Remember a request that was answered by this message."""
        tokens = (answer.usage or {}).get("prompt_tokens")
        self._asked.put((asked.owner, message), (asked, tokens if isinstance(tokens, int) else 0))

    def _diagnosis(self, named: str, prompt: SentPrompt, chat: ChatRequest) -> Diagnosis:
        known = self._asked.get((chat.caller.owner, named))
        if known is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        before, tokens = known
        change = change_between(before.prompt, prompt)
        if change.reason is None:
            return None
        if change.reason not in TOLD:
            return {"cache_miss_reason": {"type": "unavailable"}}
        kept = tokens * _letters(chat, change.shared) // max(1, before.letters) if change.shared else 0
        missed = max(0, tokens - kept)
        return {"cache_miss_reason": {"type": change.reason, "cache_missed_input_tokens": missed}}


def _letters(chat: ChatRequest, length: int) -> int:
    """Return how many letters the tools and so many messages have as JSON."""
    return sum(len(as_json(each)) for each in (*chat.tools, *chat.messages[:length]))
