"""How large a request's prompt is, and what its engine says to that."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elbowroom.agents.reply import Reply
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.tokens.anchoring import Usage, is_truncated
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter, Truncation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PromptSize:
    """The count of one request's prompt, with all that is needed to compare it with the engine's own."""

    count: TokenCount
    counter: TokenCounter
    body: Mapping[str, Any]

    @property
    def at_most(self) -> int:
        """Return the most tokens that the prompt may have: what has to fit the window."""
        return self.count.tokens + self.count.error_bound

    def truncation(self, usage: Mapping[str, Any] | None) -> Truncation | None:
        """Return by how much the engine has silently cut the prompt, None where it has not or nobody can tell."""
        reported = _as_usage(usage)
        if reported is None or self.count.method not in ("exact", "engine"):
            return None
        is_cut = is_truncated(self.count.tokens, reported.prompt_tokens)
        return Truncation(self.count.tokens, reported.prompt_tokens) if is_cut else None

    async def learn(self, usage: Mapping[str, Any] | None, reply: Reply) -> None:
        """Learn from the engine's usage how to count."""
        reported = _as_usage(usage)
        if reported is None:
            return
        try:
            await self.counter.observe(
                self.body["messages"],
                self.body.get("tools") or (),
                template_arguments(self.body),
                self.count,
                reported,
                answer="" if reply.tool_calls else "".join(reply.text),
                has_reasoning=bool(reply.reasoning),
            )
        except Exception:  # the answer is there already, and must not be lost for its count
            log.exception("What the engine counted for %s could not be compared.", self.counter.model)


async def prompt_size(provider: Provider, info: ModelInfo, body: Mapping[str, Any]) -> PromptSize:
    """Count the prompt of a chat request, tools and template included.

    Raises what the engine would refuse the request with, such as ConversationNotContinuable.
    """
    counter = await provider.counter(info)
    count = await counter.count_chat(body["messages"], body.get("tools") or (), template_arguments(body))
    return PromptSize(count, counter, body)


def template_arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request says to the chat template itself."""
    sent = body.get("chat_template_kwargs")
    arguments = dict(sent) if isinstance(sent, Mapping) else {}
    if isinstance(effort := body.get("reasoning_effort"), str):
        arguments.setdefault("reasoning_effort", effort)
    return arguments


def _as_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    if usage is None or not isinstance(prompt := usage.get("prompt_tokens"), int) or prompt <= 0:
        return None
    completion = usage.get("completion_tokens")
    details = usage.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
    return Usage(
        prompt,
        completion if isinstance(completion, int) else 0,
        reasoning if isinstance(reasoning, int) else None,
    )
