"""What engines teach about windows: how long it holds, and what takes it back."""

from dataclasses import replace

import pytest

from elbowroom.agents.prompt.size import GUESSES_LAST, LearnedWindows
from elbowroom.providers.base import ModelInfo
from elbowroom.tokens.counter import Truncation

TINY = ModelInfo("tiny", "lmstudio", "Tiny", loaded_context=4096, key="tiny", size_bytes=5, format="gguf")


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_named_window_holds_for_all_requests() -> None:
    """It can shrink further, never grow, and other models and providers have their own."""
    windows = LearnedWindows()
    windows.learn(TINY, 4096, 3000)
    windows.learn(TINY, 4096, 3500)
    assert windows.at_most(TINY, 4096) == 3000
    assert windows.at_most(TINY, 2000) == 2000
    for other in (replace(TINY, id="other"), replace(TINY, provider="second")):
        assert windows.at_most(other, 4096) == 4096


@pytest.mark.parametrize(
    "anew",
    [
        replace(TINY, loaded_context=8192),
        replace(TINY, size_bytes=6),
        replace(TINY, format="safetensors"),
        replace(TINY, key="another"),
    ],
)
def test_another_load_makes_it_void(anew: ModelInfo) -> None:
    """Another window or another file under the same name begins without a lesson."""
    windows = LearnedWindows()
    windows.learn(TINY, 4096, 3000)
    window = anew.loaded_context or 0
    assert windows.at_most(anew, window) == window
    windows.learn(anew, window, 3500)
    assert windows.at_most(anew, window) == 3500


def test_a_window_that_was_named_larger_teaches_nothing() -> None:
    """What the engine names may be what everybody knew."""
    windows = LearnedWindows()
    windows.learn(TINY, 4096, 4096)
    windows.learn(TINY, 4096, 8192)
    assert windows.at_most(TINY, 4096) == 4096


def test_a_guess_lapses() -> None:
    """A refusal without a number holds for ten minutes: what filled the pool may be gone by then."""
    clock = Clock()
    windows = LearnedWindows(clock)
    windows.guess(TINY, 4096, 3600)
    assert windows.at_most(TINY, 4096) == 3600
    clock.now += GUESSES_LAST
    assert windows.at_most(TINY, 4096) == 4096


def test_a_guess_far_from_the_edge_is_none() -> None:
    """A small prompt that was refused says nothing about the window."""
    windows = LearnedWindows()
    windows.guess(TINY, 4096, 20)
    assert windows.at_most(TINY, 4096) == 4096


def test_a_truncation_is_learned_and_told_once() -> None:
    """The person is told once for a model and its window."""
    windows = LearnedWindows()
    assert windows.learn_truncation(TINY, 4096, Truncation(3500, 2000))
    assert windows.at_most(TINY, 4096) == 2000
    assert windows.is_to_be_told(TINY, 4096)
    assert windows.learn_truncation(TINY, 4096, Truncation(3500, 1900))
    assert not windows.is_to_be_told(TINY, 4096)
    anew = replace(TINY, loaded_context=8192)
    assert windows.is_to_be_told(anew, 8192)


def test_counts_that_always_differ_do_not_shrink_the_window_further_and_further() -> None:
    """What was within the read length and is still reported as shorter was not cut: the lesson is taken back."""
    windows = LearnedWindows()
    assert windows.learn_truncation(TINY, 4096, Truncation(3500, 3000))
    assert windows.is_to_be_told(TINY, 4096)
    assert not windows.counts_differ(TINY, 4096)
    assert not windows.learn_truncation(TINY, 4096, Truncation(2900, 2400))
    assert windows.counts_differ(TINY, 4096)
    assert windows.at_most(TINY, 4096) == 4096


def test_next_to_nothing_is_no_window() -> None:
    """An engine that names no size, or reports only what its cache did not have, must not shut a model off."""
    windows = LearnedWindows()
    for named in (0, 1, 255):
        windows.learn(TINY, 4096, named)
    assert not windows.learn_truncation(TINY, 4096, Truncation(counted=3000, read=7))
    assert windows.counts_differ(TINY, 4096)
    assert windows.at_most(TINY, 4096) == 4096
