"""Normalises histories for a model's chat template, and counts them as its engine will."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from elbowroom.agents.prompt.body import NO_THINKING
from elbowroom.agents.prompt.size import template_arguments
from elbowroom.caches import Recent
from elbowroom.context.templates import (
    ANSWER,
    ASK,
    ASK_AGAIN,
    SYSTEM,
    Asking,
    TemplateDemands,
    asked_demands,
    asked_without_tools,
    normalise,
    orphans_in,
)
from elbowroom.context.transcript import Message
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.tokens.count import PromptRenderer, TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.errors import TemplateOverran
from elbowroom.tokens.families import Family, Format

ThinkingSwitch = Literal["none", "at the end", "elsewhere"]
"""Where a prompt changes with `enable_thinking`: nowhere, only after the last message, or before that."""

log = logging.getLogger(__name__)
ENGINES_OWN: Final = TemplateDemands(one_answer_at_end=True)
MISTRAL: Final = replace(
    ENGINES_OWN, roles_alternate=True, user_first=True, user_needed=True, system_first_only=True, portable_ids=True
)
GEMMA: Final = replace(MISTRAL, portable_ids=False)
BY_FORMAT: Final[Mapping[Format, TemplateDemands]] = {
    "llama2": GEMMA,
    "llama3": replace(ENGINES_OWN, user_first=True, user_before_calls=True, user_needed=True, one_call_a_message=True),
    "mistral": MISTRAL,
    "tekken": replace(MISTRAL, text_content_only=True),
    "gemma": GEMMA,
    "gemma4": replace(ENGINES_OWN, user_needed=True, text_content_only=True),
    "harmony": replace(ENGINES_OWN, system_first_only=True, one_call_a_message=True),
    "deepseek": replace(ENGINES_OWN, system_first_only=True),
}
"""What the templates of a family demand as a rule, for models whose own template is not at hand."""
WITHOUT_TOOLS: Final[Mapping[Format, TemplateDemands]] = {"llama3": replace(ENGINES_OWN, one_call_a_message=True)}
"""The same where no tools are on offer, for families in which that makes a difference."""
ALWAYS_THINKS: Final = "always_thinks"


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """What a template demands of a history, with tools on offer and without, and whether its model may think.

    `thinking_switch` tells where that is switched.
    """

    demands: TemplateDemands
    without_tools: TemplateDemands
    may_think: bool
    thinking_switch: ThinkingSwitch


def facts_by_family(family: Family) -> TemplateFacts:
    """Return what holds for the family's models as a rule."""
    demands = BY_FORMAT.get(family.format, ENGINES_OWN)
    if ALWAYS_THINKS in family.options:
        demands = replace(demands, user_needed=True, system_first_only=True)
    without_tools = WITHOUT_TOOLS.get(family.format, demands)
    may_think = family.reasoning == "until answered" or family.format == "deepseek"
    is_switchable = may_think and family.format == "chatml"
    return TemplateFacts(demands, without_tools, may_think, "at the end" if is_switchable else "none")


async def facts_by_template(renderer: PromptRenderer, family: Family) -> TemplateFacts:
    """Ask the template itself; where it has to be stopped, its family answers."""
    try:
        answers: dict[str, str | None] = {}
        demands = await found_demands(renderer, asked_demands(), answers)
        without_tools = await found_demands(renderer, asked_without_tools(), answers)
        switch = await found_thinking_switch(renderer)
    except _Stopped:
        return facts_by_family(family)
    return TemplateFacts(demands, without_tools, switch != "none" or facts_by_family(family).may_think, switch)


async def found_demands(
    renderer: PromptRenderer, asking: Asking[TemplateDemands], answers: dict[str, str | None]
) -> TemplateDemands:
    """Find out what a template demands; `answers` are known ones, to which new ones are added.

    Between two renderings the event loop goes on.
    """
    question = next(asking)
    while True:
        if question.key not in answers:
            answers[question.key] = await _rendered(renderer, question.messages, question.tools, {})
        try:
            question = asking.send(answers[question.key])
        except StopIteration as end:
            return cast("TemplateDemands", end.value)


async def found_thinking_switch(renderer: PromptRenderer) -> ThinkingSwitch:
    """Find out where the prompt changes when the template is told not to let the model think."""
    chat = (SYSTEM, ASK, ANSWER, ASK_AGAIN)
    with_it = await _rendered(renderer, chat, (), {})
    without = await _rendered(renderer, chat, (), NO_THINKING)
    if with_it is None or without is None or with_it == without:
        return "none"
    pairs = zip(with_it, without, strict=False)
    same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(with_it), len(without)))
    last_word = ASK_AGAIN["content"]
    return "at the end" if with_it.find(last_word) + len(last_word) <= same else "elsewhere"


class _Stopped(Exception):
    """The template took too long and was stopped: that is no answer to any question."""


async def _rendered(
    renderer: PromptRenderer,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    arguments: Mapping[str, Any],
) -> str | None:
    await asyncio.sleep(0)  # a template that is known renders without waiting for anything
    try:
        return await renderer.render(messages, tools, arguments)
    except ElbowroomError as error:
        if isinstance(error.__cause__, TemplateOverran):
            raise _Stopped from error
        return None


LONGEST_COUNTED: Final = 100_000
"""Characters that are counted in some ten milliseconds; of a longer text the beginning stands for the whole."""


@dataclass(frozen=True, slots=True)
class HistoryCounter:
    """Counts histories that are sent with the tools and template arguments of one request body.

    `normalised` has to be the last step before the messages are sent: then the count is that of what was sent.
    """

    counter: TokenCounter
    body: Mapping[str, Any]
    facts: TemplateFacts
    count_text: Callable[[str], int]
    _texts: dict[str, int] = field(default_factory=dict)

    def with_body(self, body: Mapping[str, Any]) -> "HistoryCounter":
        """Return the counter of another body for the same model."""
        return replace(self, body=body)

    async def normalised(self, messages: Iterable[Message]) -> list[Message]:
        """Return the history as the model's template takes it; sound messages that need no change are the same.

        A history of which nothing would be left, such as a tool result alone, is returned as it is for the engine to
        judge. A long one is worked on in a thread.
        """
        history = list(messages)
        return self.formed(history) if is_short(history) else await asyncio.to_thread(self.formed, history)

    def formed(self, history: list[Message]) -> list[Message]:
        """Return the same at once."""
        demands = self.facts.demands if self.body.get("tools") else self.facts.without_tools
        return normalise(history, demands) or history

    async def count_sent(self, messages: Sequence[Message]) -> TokenCount:
        """Return the size of the whole request with these messages, which are normalised, and how it was counted.

        Raises what the engine would refuse the request with, such as ConversationNotContinuable.
        """
        tools = self.body.get("tools") or ()
        return await self.counter.count_chat(messages, tools, template_arguments(self.body))

    async def prompt(self, messages: Sequence[Message]) -> int:
        """Return the most tokens that it may have with messages as they come: what has to fit the window."""
        return (await self.count_sent(await self.normalised(messages))).at_most

    def text(self, text: str) -> int:
        """Return the size of a bare text; one beyond 100,000 characters is measured by its beginning."""
        if (known := self._texts.get(text)) is None:
            counted = self.count_text(text[:LONGEST_COUNTED])
            known = -(-counted * len(text) // LONGEST_COUNTED) if len(text) > LONGEST_COUNTED else counted
            self._texts[text] = known
        return known


ORPHANS: Final = (
    "{count} of the results of tools that the client sent answer no call, or one that has its result already; the "
    "model reads them as messages of the user."
)
TEMPLATES_KEPT: Final = 64
MANY: Final = 500
"""Calls, or pairs of messages, from which on a history is brought into its form in a thread."""
LETTERS_A_PART: Final = 2_000
"""Letters of a text that take as long as a part: a million of them are worked on in a thread."""


class HistoryCounters:
    """Makes the counters of requests; a template is asked what it demands once. One for each event loop."""

    def __init__(self) -> None:
        self._facts = Recent[str, TemplateFacts]("template_facts", TEMPLATES_KEPT)

    async def of(self, provider: Provider, info: ModelInfo, body: Mapping[str, Any]) -> HistoryCounter:
        """Return the counter for a body that is sent to this model; its `messages` are not looked at."""
        counter = await provider.counter(info)
        facts = await self._facts_of(counter)
        if provider.has_own_tool_format:
            without_tools = replace(facts.without_tools, results_as_text=False)
            facts = replace(facts, demands=replace(facts.demands, results_as_text=False), without_tools=without_tools)
        if "reasoning" in info.capabilities:
            facts = replace(facts, may_think=True)
        return HistoryCounter(counter, body, facts, await counter.text_counter())

    async def _facts_of(self, counter: TokenCounter) -> TemplateFacts:
        renderer = await counter.prompt_renderer()
        if renderer is None:
            return facts_by_family(counter.family)
        if (facts := self._facts.get(renderer.key)) is None:
            facts = await facts_by_template(renderer, counter.family)
            self._facts.put(renderer.key, facts)
        return facts


def is_short(messages: Sequence[Message]) -> bool:
    """Tell whether a history can be worked on in the event loop: it has few messages, calls and parts, none long."""
    left = MANY - len(messages) // 2
    for message in messages:
        if left <= 0:
            break
        content = message.get("content")
        if isinstance(content, str):
            if len(content) >= LETTERS_A_PART:
                left -= len(content) // LETTERS_A_PART
        elif isinstance(content, list):
            texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
            left -= len(texts) + sum(len(text) // LETTERS_A_PART for text in texts if isinstance(text, str))
        if "tool_calls" in message:
            left -= len(message["tool_calls"] or ())
    return left > 0


async def warn_of_orphans(name: str, sent: Sequence[Message]) -> None:
    """Tell the log of results of tools in a client's history that answer no call."""
    if orphans := orphans_in(sent) if is_short(sent) else await asyncio.to_thread(orphans_in, sent):
        log.warning("%s: %s", name, ORPHANS.format(count=orphans))
