"""The rate at which a model reads is never taken for higher than what it was measured at most of the time."""

import pytest

from elbowroom.agents.admission.pool import (
    DEFAULT_RATE,
    DEFAULT_WRITING,
    FASTEST,
    LEAST_ANSWER,
    LEAST_PROMPT,
    LONGEST,
    PrefillRate,
    WritingRate,
)

PROMPT = 4000


def learned(*rates: float) -> PrefillRate:
    """Return what is known after prompts that were read at these rates."""
    rate = PrefillRate()
    for each in rates:
        rate.learn(PROMPT, PROMPT / each)
    return rate


def test_one_measurement_counts() -> None:
    """The first prompt replaces what was assumed, be it slower or faster."""
    assert PrefillRate().tokens_per_second == DEFAULT_RATE
    for measured in (30, 1500):
        assert learned(measured).tokens_per_second == pytest.approx(measured)


def test_a_cached_beginning_does_not_make_a_model_fast() -> None:
    """One prompt in ten that was read from its beginning is enough to know the rate."""
    assert learned(400, *[20_000] * 9, 400, *[20_000] * 9).tokens_per_second == pytest.approx(400)


def test_a_conversation_that_only_ever_goes_on_does_not_make_a_model_endlessly_fast() -> None:
    """Each of its prompts is cached but for the last message."""
    assert learned(*[50_000] * 32).tokens_per_second == FASTEST


def test_a_slow_moment_is_forgotten() -> None:
    """A first prompt that waited for the model to be loaded does not count for ever."""
    assert learned(5, *[1000] * 31).tokens_per_second == pytest.approx(1000)
    assert learned(5, *[1000] * 8).tokens_per_second == pytest.approx(5)


def test_a_change_is_learned() -> None:
    """After some dozens of prompts only the new rate counts."""
    assert learned(*[100] * 50, *[900] * 32).tokens_per_second == pytest.approx(900)


def test_short_prompts_and_no_time_teach_nothing() -> None:
    """They tell how long a request takes to begin."""
    rate = PrefillRate()
    rate.learn(LEAST_PROMPT - 1, 3.0)
    rate.learn(PROMPT, 0.0)
    assert rate.tokens_per_second == DEFAULT_RATE


def test_what_is_left_is_less_the_time_that_has_passed() -> None:
    """Ten seconds at this rate, of which four are over."""
    assert learned(400).give_up(PROMPT, 4.0) == pytest.approx(6.0)


def test_a_prompt_that_should_have_been_read_is_expected_to_take_a_little_longer() -> None:
    """That it is not shows that the model is slower, which is learned."""
    rate = learned(400)
    assert rate.give_up(PROMPT, 20.0) == pytest.approx(5.0)
    assert rate.tokens_per_second == pytest.approx(200)


def test_nothing_is_expected_to_be_read_for_ever() -> None:
    """Neither at a low rate nor where the time is over already."""
    assert learned(1).give_up(PROMPT, 0.0) == LONGEST
    assert learned(1).give_up(PROMPT, LONGEST - 1) == pytest.approx(1)
    assert learned(1).give_up(PROMPT, LONGEST + 60) == 0


def test_how_fast_a_model_writes() -> None:
    """The usual rate counts; answers of a few tokens and those that took no time tell nothing."""
    rate = WritingRate()
    assert (rate.is_known, rate.tokens_per_second) == (False, DEFAULT_WRITING)
    for tokens, seconds in ((LEAST_ANSWER - 1, 1.0), (100, 0.0)):
        rate.learn(tokens, seconds)
    assert not rate.is_known
    for tokens, seconds in ((100, 5.0), (300, 10.0), (4000, 100.0)):
        rate.learn(tokens, seconds)
    assert (rate.is_known, rate.tokens_per_second) == (True, 30.0)
    for _ in range(10):
        rate.learn(10**9, 1.0)
    assert rate.tokens_per_second == FASTEST
