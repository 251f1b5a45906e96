"""What a step has used adds up, whatever an upstream reports."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.agents.prompt.size import step_usage_of
from elbowroom.context.conversation import StepUsage

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 10_000), st.floats(allow_nan=True), st.text(max_size=3), st.just([])
)
DETAILS = st.one_of(
    ODD,
    st.dictionaries(st.sampled_from(["cached_tokens", "cache_creation_tokens", "cache_write_tokens"]), ODD),
)
REPORTS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": ODD,
            "completion_tokens": ODD,
            "total_tokens": ODD,
            "prompt_tokens_details": DETAILS,
            "cache_creation_input_tokens": ODD,
            "cache_read_input_tokens": ODD,
        },
    ),
)


def words(text: str) -> int:
    """Count a text by its words."""
    return len(text.split())


@given(REPORTS, st.integers(0, 5000), st.text(max_size=20))
def test_parts_add_up(report: dict[str, Any] | None, prompt: int, generated: str) -> None:
    """Every number is none or more, and input, output and both of the cache are the whole, prompt and reply."""
    used = step_usage_of(report, prompt, generated, words)
    parts = (used.input, used.output, used.cache_creation, used.cache_read)
    assert all(type(part) is int and part >= 0 for part in parts)
    assert used.total == sum(parts)
    read = used.total - used.output
    told = [value for value in (report or {}).values() if type(value) is int]
    assert read in [prompt, *told]
    assert read * 2 >= prompt
    assert used.output in [words(generated), *told]


@given(st.lists(st.builds(StepUsage, *[st.integers(0, 1000)] * 4, st.booleans()), max_size=8))
def test_sums_add_up(steps: list[StepUsage]) -> None:
    """The whole of a conversation is the whole of its steps; it is counted where one of them is."""
    together = sum(steps, StepUsage())
    assert together.total == sum(step.total for step in steps)
    assert together.is_counted == any(step.is_counted for step in steps)


@pytest.mark.parametrize(
    ("report", "used"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 7}, StepUsage(100, 7)),
        (
            {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 80}},
            StepUsage(20, 7, 0, 80),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": None},
            StepUsage(100, 7),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 7,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 30,
            },
            StepUsage(10, 7, 30, 60),
        ),
        ({"prompt_tokens": 100, "completion_tokens": 0}, StepUsage(100, 2, is_counted=True)),
        ({"prompt_tokens": 3, "completion_tokens": 7}, StepUsage(90, 7, is_counted=True)),
        ({"prompt_tokens": True, "completion_tokens": 7}, StepUsage(90, 7, is_counted=True)),
        ({"prompt_tokens": 100, "completion_tokens": -1}, StepUsage(100, 2, is_counted=True)),
        (
            {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 101}},
            StepUsage(100, 7, is_counted=True),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": -1}},
            StepUsage(100, 7, is_counted=True),
        ),
        (None, StepUsage(90, 2, is_counted=True)),
    ],
    ids=[
        "plain",
        "cached",
        "no details",
        "a cache of its own",
        "no reply",
        "next to nothing",
        "no number",
        "less than nothing",
        "more cached than there is",
        "less cached than nothing",
        "no report",
    ],
)
def test_reports(report: dict[str, Any] | None, used: StepUsage) -> None:
    """What is true is taken as it is, and what cannot be true is our own count."""
    assert step_usage_of(report, 90, "two words", words) == used
