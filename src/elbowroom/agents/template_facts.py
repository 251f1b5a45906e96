"""What is to be known about a model's chat template: what it demands of a history, and how its thinking is ended."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from elbowroom.context.template_demands import TemplateDemands, demands_of
from elbowroom.context.template_probe import ANSWER, ASK, ASK_AGAIN, SYSTEM
from elbowroom.context.transcript import Message
from elbowroom.errors import ElbowroomError
from elbowroom.tokens.chat_template_errors import TemplateOverran
from elbowroom.tokens.count import PromptRenderer
from elbowroom.tokens.families import Family
from elbowroom.tokens.family_formats import Format

ThinkingSwitch = Literal["none", "at the end", "elsewhere"]
"""Where a prompt changes with `enable_thinking`: nowhere, only behind the last message, or before that."""

NO_THINKING: Final[Mapping[str, Any]] = {"enable_thinking": False}
ENGINES_OWN: Final = TemplateDemands(one_answer_at_end=True)
MISTRAL: Final = replace(
    ENGINES_OWN, roles_alternate=True, user_first=True, user_needed=True, system_first_only=True, portable_ids=True
)
GEMMA: Final = replace(MISTRAL, portable_ids=False)
BY_FORMAT: Final[Mapping[Format, TemplateDemands]] = {
    "llama2": GEMMA,
    "llama3": replace(ENGINES_OWN, user_first=True, user_needed=True, one_call_a_message=True),
    "mistral": MISTRAL,
    "tekken": replace(MISTRAL, text_content_only=True),
    "gemma": GEMMA,
    "gemma4": replace(ENGINES_OWN, user_needed=True, text_content_only=True),
    "harmony": replace(ENGINES_OWN, system_first_only=True, one_call_a_message=True),
    "deepseek": replace(ENGINES_OWN, system_first_only=True),
}
"""What the templates of a family demand as a rule, for models whose own template is not at hand."""
ALWAYS_THINKS: Final = "always_thinks"


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """What a template demands of a history, whether its model may think, and where that is switched."""

    demands: TemplateDemands
    may_think: bool
    thinking_switch: ThinkingSwitch


def facts_by_family(family: Family) -> TemplateFacts:
    """Return what holds for the family's models as a rule."""
    demands = BY_FORMAT.get(family.format, ENGINES_OWN)
    if ALWAYS_THINKS in family.options:
        demands = replace(demands, user_needed=True, system_first_only=True)
    may_think = family.reasoning == "until answered" or family.format == "deepseek"
    is_switchable = may_think and family.format == "chatml"
    return TemplateFacts(demands, may_think, "at the end" if is_switchable else "none")


async def facts_by_template(renderer: PromptRenderer, family: Family) -> TemplateFacts:
    """Ask the template itself; where it has to be stopped, its family answers."""
    try:
        demands = await found_demands(renderer)
        switch = await found_thinking_switch(renderer)
    except _Stopped:
        return facts_by_family(family)
    return TemplateFacts(demands, switch != "none" or facts_by_family(family).may_think, switch)


async def found_demands(renderer: PromptRenderer) -> TemplateDemands:
    """Find out what a template demands, without ever holding up the event loop for longer than one rendering.

    The questions are asked by code that does not await. So it is run again and again: with the answers known so
    far it comes to the next question, which is put to the template in between.
    """
    answers: dict[str, str | None] = {}

    def answer(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        key = repr((list(messages), list(tools)))
        if key not in answers:
            raise _NextQuestion(key, messages, tools)
        if (text := answers[key]) is None:
            raise ValueError("The template refuses these messages.")
        return text

    while True:
        try:
            return demands_of(answer)
        except _NextQuestion as question:
            answers[question.key] = await _rendered(renderer, question.messages, question.tools, {})


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


class _NextQuestion(BaseException):  # whoever asks takes every Exception for an answer
    def __init__(self, key: str, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(key)
        self.key = key
        self.messages = messages
        self.tools = tools


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
