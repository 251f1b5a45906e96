"""Histories as one model takes them: normalised for its chat template, and counted as its engine will."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elbowroom.agents.prompt_size import template_arguments
from elbowroom.agents.template_facts import TemplateFacts, facts_by_family, facts_by_template
from elbowroom.context.normalise import normalise
from elbowroom.context.transcript import Message
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.providers.lmstudio import LMStudio
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter

LONGEST_COUNTED: Final = 100_000
"""Characters that are counted in some ten milliseconds; of a longer text the beginning stands for the whole."""


@dataclass(frozen=True, slots=True)
class HistoryCounter:
    """Counts histories for one request body, with its tools and template arguments; the messages are the caller's.

    `normalised` has to be the last step before whatever is sent: then the count is that of what was sent.
    """

    counter: TokenCounter
    body: Mapping[str, Any]
    facts: TemplateFacts
    count_text: Callable[[str], int]
    _texts: dict[str, int] = field(default_factory=dict)

    def with_body(self, body: Mapping[str, Any]) -> "HistoryCounter":
        """Return the counter of another body for the same model."""
        return replace(self, body=body)

    def normalised(self, messages: Iterable[Message]) -> list[Message]:
        """Return the history as the model's template takes it; sound messages that need no change are the same.

        Of what is nothing but broken, such as a result alone, nothing would be left: that is the engine's to judge.
        """
        history = list(messages)
        return normalise(history, self.facts.demands) or history

    async def count(self, messages: Iterable[Message]) -> TokenCount:
        """Return the size of the whole request with these messages, normalised, and how it was got.

        Raises what the engine would refuse the request with, such as ConversationNotContinuable.
        """
        return await self.count_sent(self.normalised(messages))

    async def count_sent(self, messages: Sequence[Message]) -> TokenCount:
        """Return the size of the whole request with messages that are normalised already. Raises as `count` does."""
        tools = self.body.get("tools") or ()
        return await self.counter.count_chat(messages, tools, template_arguments(self.body))

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the most tokens that it may have: what has to fit the window."""
        count = await self.count(messages)
        return count.tokens + count.error_bound

    def text(self, text: str) -> int:
        """Return the size of a bare text; one beyond 100,000 characters is measured by its beginning."""
        if (known := self._texts.get(text)) is None:
            counted = self.count_text(text[:LONGEST_COUNTED])
            known = -(-counted * len(text) // LONGEST_COUNTED) if len(text) > LONGEST_COUNTED else counted
            self._texts[text] = known
        return known


class HistoryCounters:
    """Makes the counters of requests; a template is asked what it demands once. One for each event loop."""

    def __init__(self) -> None:
        self._facts: dict[str, TemplateFacts] = {}

    async def of(self, provider: Provider, info: ModelInfo, body: Mapping[str, Any]) -> HistoryCounter:
        """Return the counter for a body that is sent to this model; its `messages` are not looked at."""
        counter = await provider.counter(info)
        facts = await self._facts_of(counter)
        if isinstance(provider, LMStudio):
            # For models whose template knows no tools it writes calls and results in a form of its own.
            facts = replace(facts, demands=replace(facts.demands, results_as_text=False))
        if "reasoning" in info.capabilities:
            facts = replace(facts, may_think=True)
        return HistoryCounter(counter, body, facts, await counter.text_counter())

    async def _facts_of(self, counter: TokenCounter) -> TemplateFacts:
        renderer = await counter.prompt_renderer()
        if renderer is None:
            return facts_by_family(counter.family)
        if renderer.key not in self._facts:
            self._facts[renderer.key] = await facts_by_template(renderer, counter.family)
        return self._facts[renderer.key]
