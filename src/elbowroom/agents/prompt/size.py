"""The sizes of prompts and windows: as counted or told at first, and as engines show that they are."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.answer import Reply
from elbowroom.context.conversation import StepUsage
from elbowroom.context.transcript import size_in_bytes
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.tokens.anchoring import Usage
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter, Truncation, is_truncated

log = logging.getLogger(__name__)
LEAST_REPORTED: Final = 2
"""An engine that reports less than our count divided by this has counted only the part that was not in its cache."""
GUESSES_LAST: Final = 600.0
"""Seconds. A refusal without a number may come from a pool of context that other programs had filled just then."""
LEAST_GUESS: Final = 0.5
"""The share of a window below which a refusal without a number says nothing about the window."""
LEAST_LESSON: Final = 1 / 16
"""The share of a window below which no number is believed: the engine may have left out what was in its cache."""


@dataclass(frozen=True, slots=True)
class PromptSize:
    """The count of one request's prompt, which can be compared with the engine's own."""

    count: TokenCount
    counter: TokenCounter
    body: Mapping[str, Any]

    def truncation(self, usage: Mapping[str, Any] | None, window: int) -> Truncation | None:
        """Return by how much the engine has silently cut the prompt, None where it has not or nobody can tell.

        An estimate tells it only of a prompt that may have been too long for the window.
        """
        can_tell = self.count.method in ("exact", "engine") or self.count.at_most >= window
        if not can_tell or (reported := _as_usage(usage)) is None:
            return None
        cut = Truncation(self.count.at_least, reported.prompt_tokens)
        return cut if is_truncated(cut.counted, cut.read) else None

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
    """Return the arguments that a request gives to the chat template."""
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
        prompt, completion if isinstance(completion, int) else 0, reasoning if isinstance(reasoning, int) else None
    )


def step_usage_of(
    reported: Mapping[str, Any] | None, prompt: int, generated: str, count: Callable[[str], int]
) -> StepUsage:
    """Return what a request has used, in tokens; `prompt` is the size of its prompt by our count.

    `reported` is a usage object in OpenAI's form. Numbers that are missing in it, or cannot be true, are replaced by
    our count; `generated`, all that the model has written, is counted only then. Tokens read from a cache are a part
    of the prompt.
    """
    report = reported or {}
    read_anew, output = _tokens(report.get("prompt_tokens")), _tokens(report.get("completion_tokens"))
    is_counted = False
    if not read_anew or read_anew * LEAST_REPORTED < prompt:
        read_anew, is_counted = prompt, True
    if output is None or (not output and generated):
        output, is_counted = count(generated), True
    whole = read_anew
    details = _details(report)
    cached = _first(details.get("cached_tokens"), report.get("cache_read_input_tokens"))
    created = _first(
        report.get("cache_creation_input_tokens"),
        details.get("cache_creation_tokens"),
        details.get("cache_write_tokens"),
    )
    if cached is None or created is None or cached + created > whole:
        return StepUsage(whole, output, is_counted=True)
    return StepUsage(whole - cached - created, output, created, cached, is_counted)


def cached_of(reported: Mapping[str, Any] | None, engine: Mapping[str, Any]) -> int | None:
    """Return how many tokens of a prompt the engine says it had read before; None where it does not say.

    `engine` is what it says of itself: llama.cpp has there what it took from its cache.
    """
    timings = engine.get("timings")
    told = timings.get("cache_n") if isinstance(timings, Mapping) else None
    report = reported or {}
    for value in (told, _details(report).get("cached_tokens"), report.get("cache_read_input_tokens")):
        if (count := _tokens(value)) is not None:
            return count
    return None


def _details(report: Mapping[str, Any]) -> Mapping[str, Any]:
    details = report.get("prompt_tokens_details")
    return details if isinstance(details, Mapping) else {}


def _first(*values: object) -> int | None:
    """Return the first number that is given, 0 where none is, None where it is no number of tokens."""
    for value in values:
        if value is not None:
            return _tokens(value)
    return 0


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def rough_size(text: str) -> int:
    """Return about how many tokens a text has, for a model whose tokens are not counted."""
    return -(-size_in_bytes(text) // 3)


@dataclass(frozen=True, slots=True)
class _Load:
    """Tells apart two models that were loaded under the same name."""

    window: int
    key: str | None
    size_bytes: int | None
    format: str | None


@dataclass(frozen=True, slots=True)
class _Lesson:
    load: _Load
    window: int | None = None
    until: float | None = None
    is_told: bool = False
    counts_differ: bool = False


class LearnedWindows:
    """Lessons by provider and model, void as soon as another window or another file is loaded; one for each server.

    `window` in its methods is always the window that the provider tells, or that is assumed where it tells none.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lessons: dict[tuple[str, str], _Lesson] = {}

    def at_most(self, info: ModelInfo, window: int) -> int:
        """Return how much of a window can be used, in tokens."""
        if (info.provider, info.id) not in self._lessons:
            return window
        learned = self._lesson(info, window).window
        return window if learned is None else min(window, learned)

    def learn(self, info: ModelInfo, window: int, learned: int) -> None:
        """Take in a smaller window that the engine has named."""
        lesson = self._lesson(info, window)
        if window * LEAST_LESSON <= learned < (lesson.window or window):
            self._keep(info, replace(lesson, window=learned, until=None))

    def guess(self, info: ModelInfo, window: int, refused: int) -> None:
        """Take in the size of a request that the engine refused without naming a window; it holds for ten minutes."""
        lesson = self._lesson(info, window)
        if window * LEAST_GUESS <= refused < (lesson.window or window):
            self._keep(info, replace(lesson, window=refused, until=self._clock() + GUESSES_LAST))

    def learn_truncation(self, info: ModelInfo, window: int, truncation: Truncation) -> bool:
        """Take in that a prompt seems to have been cut silently; tell whether that is believed.

        It is not believed of a prompt that is shorter than one read before, or that was cut to next to nothing. Then
        counts and engine differ by so much: all lessons are dropped, and later differences mean nothing for this
        model.
        """
        lesson = self._lesson(info, window)
        was_read_whole = lesson.is_told and lesson.window is not None and truncation.counted <= lesson.window
        if was_read_whole or truncation.read < window * LEAST_LESSON:
            self._keep(info, _Lesson(lesson.load, counts_differ=True))
            return False
        smaller = min(truncation.read, lesson.window or window)
        self._keep(info, replace(lesson, window=smaller, until=None))
        return True

    def counts_differ(self, info: ModelInfo, window: int) -> bool:
        """Tell whether this model's counts and its engine's are known to differ by more than a cut would explain."""
        return self._lesson(info, window).counts_differ

    def is_to_be_told(self, info: ModelInfo, window: int) -> bool:
        """Tell whether a person has yet to be warned of this model's cuts; they are from now on."""
        lesson = self._lesson(info, window)
        self._keep(info, replace(lesson, is_told=True))
        return not lesson.is_told

    def _lesson(self, info: ModelInfo, window: int) -> _Lesson:
        load = _Load(info.loaded_context or window, info.key, info.size_bytes, info.format)
        lesson = self._lessons.get((info.provider, info.id))
        if lesson is None or lesson.load != load:
            return _Lesson(load)
        if lesson.until is not None and self._clock() >= lesson.until:
            return replace(lesson, window=None, until=None)
        return lesson

    def _keep(self, info: ModelInfo, lesson: _Lesson) -> None:
        self._lessons[info.provider, info.id] = lesson
