"""What the simulated engine reads of a prompt that does not fit."""

from typing import Any

import pytest
from cases import cases

from elbowroom.demo import Overflow, SimulatedTokenizer, wording
from elbowroom.demo.overflow import Policy, PromptTooLongError, Reading, Wording, message_sizes, read

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "rule " * 20},
    {"role": "user", "content": "first " * 20},
    {"role": "assistant", "content": "second " * 100},
    {"role": "user", "content": "third " * 100},
    {"role": "assistant", "content": "fourth " * 100},
    {"role": "user", "content": "last " * 20},
]


def reading(window: int, overflow: Overflow, messages: list[dict[str, Any]] = MESSAGES) -> Reading:
    """Return what is read of the messages in a window of that size."""
    tokenizer = SimulatedTokenizer()
    total = tokenizer.count_tokens(messages)
    sizes = message_sizes(messages, None, total, tokenizer)
    return read(messages, total, sizes, window, overflow, "qwen2")


def contents(result: Reading) -> list[str]:
    """Return the first word of each message that was read."""
    return [message["content"].split()[0] for message in result.messages]


def test_prompt_below_the_window_is_read_whole() -> None:
    """Nothing is dropped and the count is the prompt's own."""
    result = reading(2000, Overflow())
    assert list(result.messages) == MESSAGES
    assert result.prompt_tokens == SimulatedTokenizer().count_tokens(MESSAGES)
    assert result.dropped_messages == 0


def test_truncate_middle_keeps_system_first_user_and_the_end() -> None:
    """The oldest messages after the first user message go, without a word, until the rest is smaller."""
    result = reading(250, Overflow())
    assert contents(result) == ["rule", "first", "fourth", "last"]
    assert result.dropped_messages == 2
    assert result.prompt_tokens < 250
    assert not result.cut_message


def test_rolling_window_gives_up_the_system_prompt_first() -> None:
    """It drops from the very beginning."""
    assert contents(reading(250, Overflow("rollingWindow"))) == ["third", "fourth", "last"]


def test_truncate_middle_cuts_into_a_last_message_that_alone_is_too_long() -> None:
    """With nothing left to drop, the prompt is cut to just below the window."""
    messages = [*MESSAGES[:2], {"role": "user", "content": "endless " * 1000}]
    result = reading(300, Overflow(), messages)
    assert result.cut_message
    assert result.prompt_tokens == 299


@pytest.mark.parametrize("policy", ["truncateMiddle", "stopAtLimit"])
def test_what_must_be_kept_and_does_not_fit_is_refused_with_wording_a(policy: Policy) -> None:
    """truncateMiddle refuses when system and first user message are too long, stopAtLimit always."""
    with pytest.raises(PromptTooLongError, match=r"n_keep: \d+>= n_ctx: 40\)"):
        reading(40, Overflow(policy))


@cases("name", ["A", "B", "C", "D", "E", "F", "G"])
def test_chosen_wording_replaces_the_policy(name: Wording) -> None:
    """Every wording can be had for a prompt that truncateMiddle would have cut."""
    total = SimulatedTokenizer().count_tokens(MESSAGES)
    with pytest.raises(PromptTooLongError) as refusal:
        reading(250, Overflow(prompt=name))
    assert str(refusal.value) == wording(name, total, 250, "qwen2")


def test_tools_are_part_of_what_must_be_kept() -> None:
    """Large tools leave the messages their own small sizes, so that the head alone may be too long."""
    tokenizer = SimulatedTokenizer()
    tools = [{"type": "function", "function": {"name": "tool", "description": "word " * 500}}]
    total = tokenizer.count_tokens(MESSAGES, tools)
    sizes = message_sizes(MESSAGES, tools, total, tokenizer)
    with pytest.raises(PromptTooLongError):
        read(MESSAGES, total, sizes, 500, Overflow(), "qwen2")
