"""The real windows of models, where engines have shown that they are smaller than they were said to be."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.counter import Truncation

GUESSES_LAST: Final = 600.0
"""Seconds. A refusal without a number may come from a pool of context that other programs had filled just then."""
LEAST_GUESS: Final = 0.5
"""The share of a window below which a refusal without a number says nothing about the window."""
LEAST_LESSON: Final = 1 / 16
"""The share of a window below which no number is believed: the engine may have left out what was in its cache."""


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
