"""What is learned from the numbers that engines report."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.tokens.anchoring import (
    Anchored,
    Usage,
    UsageAnchors,
    conversation_keys,
    next_key,
)
from elbowroom.tokens.counter import ExactOffsets, is_truncated

Message = dict[str, Any]
SYSTEM: Message = {"role": "system", "content": "Answer briefly."}
USER: Message = {"role": "user", "content": "What time is it?"}
ANSWER: Message = {"role": "assistant", "content": "Late."}
NEXT: Message = {"role": "user", "content": "Thank you."}


def call(identifier: str, arguments: object) -> Message:
    """Return an assistant message with one call."""
    function = {"name": "clock", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": identifier, "function": function}]}


def test_without_usage_an_estimate_stays_as_it_is() -> None:
    """Nothing is corrected before an engine has counted, and all of it is estimated."""
    assert UsageAnchors().corrected(conversation_keys("m", [USER]), 100) == Anchored(100, 100)


def test_known_beginning_leaves_only_the_new_messages_to_estimate() -> None:
    """After an answer, its prompt and text count as the engine counted them; the rest is added as estimated."""
    anchors = UsageAnchors()
    keys = conversation_keys("m", [SYSTEM, USER])
    anchors.observe(keys, 100, Usage(130))
    anchors.observe_answer(keys, ANSWER, 100, 20, Usage(130, 25))
    longer = conversation_keys("m", [SYSTEM, USER, ANSWER, NEXT])
    assert anchors.corrected(longer, 160) == Anchored(130 + 25 + 40, 40)


def test_answer_that_came_back_changed_is_estimated() -> None:
    """An answer that the person edited is not the one that was counted; its prompt still is."""
    anchors = UsageAnchors()
    keys = conversation_keys("m", [SYSTEM, USER])
    anchors.observe(keys, 100, Usage(130))
    anchors.observe_answer(keys, ANSWER, 100, 20, Usage(130, 25))
    edited = {"role": "assistant", "content": "Very late."}
    assert anchors.corrected(conversation_keys("m", [SYSTEM, USER, edited, NEXT]), 160) == Anchored(190, 60)


def test_same_request_again_is_known_exactly() -> None:
    """A retry counts as the engine counted it the first time."""
    anchors = UsageAnchors()
    keys = conversation_keys("m", [USER])
    anchors.observe(keys, 100, Usage(93))
    assert anchors.corrected(keys, 100) == Anchored(93, 0)


@pytest.mark.parametrize(
    ("reasoning", "strips", "expected"), [(40, True, 130 + 25 + 40), (40, False, 130 + 65 + 40), (None, True, 190)]
)
def test_thinking_is_taken_off_where_templates_strip_it(reasoning: int | None, strips: bool, expected: int) -> None:
    """Thinking that is gone in the next prompt does not count; unknown thinking leaves the answer estimated."""
    anchors = UsageAnchors()
    keys = conversation_keys("m", [SYSTEM, USER])
    usage = Usage(130, 65, reasoning)
    anchors.observe(keys, 100, usage)
    anchors.observe_answer(keys, ANSWER, 100, 20, usage, template_strips_reasoning=strips)
    assert anchors.corrected(conversation_keys("m", [SYSTEM, USER, ANSWER, NEXT]), 160).tokens == expected


def test_other_conversations_models_tools_and_arguments_learn_nothing() -> None:
    """An anchor holds for its own model, tools, template arguments and beginning alone."""
    anchors = UsageAnchors()
    tools = [{"type": "function", "function": {"name": "clock"}}]
    anchors.observe(conversation_keys("m", [SYSTEM, USER]), 100, Usage(200))
    others = [
        conversation_keys("other", [SYSTEM, USER]),
        conversation_keys("m", [SYSTEM, USER], tools),
        conversation_keys("m", [SYSTEM, USER], None, {"enable_thinking": False}),
        conversation_keys("m", [SYSTEM, NEXT]),
        conversation_keys("m", [USER]),
    ]
    assert [anchors.corrected(keys, 100).tokens for keys in others] == [100] * 5


def test_messages_are_alike_by_meaning() -> None:
    """Ids of calls, thinking, spaces around text and the spelling of arguments make no other conversation."""
    one = [USER, call("call_0", '{"zone": "UTC", "n": 1}'), {**ANSWER, "reasoning_content": "Hm."}]
    same = [USER, call("x9", {"n": 1, "zone": "UTC"}), {**ANSWER, "content": " Late.\n"}]
    other = [USER, call("call_0", '{"zone": "CET", "n": 1}'), ANSWER]
    assert conversation_keys("m", one) == conversation_keys("m", same)
    assert conversation_keys("m", one)[1:] != conversation_keys("m", other)[1:]
    assert conversation_keys("m", one)[:2] == conversation_keys("m", other)[:2]


def test_images_make_another_message() -> None:
    """Two messages with different pictures are different messages."""
    pictures = [[{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}] for data in ("AA", "BB")]
    first, second = (conversation_keys("m", [{"role": "user", "content": parts}]) for parts in pictures)
    assert first != second


def test_broken_messages_have_keys() -> None:
    """Whatever a client sends gets a key."""
    odd: list[Message] = [{}, {"content": None, "tool_calls": [{}]}, call("", "{broken"), {"content": "\ud800"}]
    assert len(set(conversation_keys("m", odd))) == len(odd) + 1


def test_keys_form_a_chain() -> None:
    """The keys of a longer conversation begin with those of the shorter one."""
    keys = conversation_keys("m", [SYSTEM, USER])
    assert conversation_keys("m", [SYSTEM, USER, ANSWER]) == [*keys, next_key(keys[-1], ANSWER)]


def test_memory_is_bounded() -> None:
    """Of more conversations than are kept, the one that was not used longest is forgotten."""
    anchors = UsageAnchors(capacity=2)
    first, second, third = (conversation_keys(name, [USER]) for name in "abc")
    for keys in (first, second):
        anchors.observe(keys, 100, Usage(150))
    assert anchors.corrected(first, 100).tokens == 150
    anchors.observe(third, 100, Usage(150))
    assert len(anchors) == 2
    assert [anchors.corrected(keys, 100).tokens for keys in (first, second, third)] == [150, 100, 150]


@given(st.integers(1, 10**6), st.integers(-5000, 5000), st.integers(0, 10**5), st.integers(0, 10**5))
def test_constant_errors_vanish(size: int, wrong_by: int, answer: int, new: int) -> None:
    """However wrong a count is about the beginning, what follows is exactly right where the new text is."""
    anchors = UsageAnchors()
    keys = conversation_keys("m", [USER])
    usage = Usage(size + abs(wrong_by), answer)
    estimate = size + abs(wrong_by) + wrong_by
    anchors.observe(keys, estimate, usage)
    anchors.observe_answer(keys, ANSWER, estimate, answer, usage)
    found = anchors.corrected(conversation_keys("m", [USER, ANSWER, NEXT]), estimate + answer + new)
    assert found == Anchored(size + abs(wrong_by) + answer + new, new)


def test_constant_difference_becomes_an_offset() -> None:
    """Two prompts of different length with the same difference make it an offset, for their arguments only."""
    offsets = ExactOffsets()
    offsets.observe({}, 100, 137)
    assert offsets.offset({}) == 0
    offsets.observe({}, 100, 137)
    assert offsets.offset({}) == 0
    offsets.observe({}, 250, 287)
    assert offsets.offset({}) == 37
    assert offsets.offset({"enable_thinking": False}) == 0


def test_offset_follows_a_new_constant() -> None:
    """Where the difference has changed for good, so does the offset; a single stray number leaves it."""
    offsets = ExactOffsets()
    for exact in (100, 200):
        offsets.observe({}, exact, exact + 10)
    offsets.observe({}, 300, 323)
    assert offsets.offset({}) == 10
    offsets.observe({}, 400, 410)
    assert offsets.offset({}) == 10
    for exact in (500, 600):
        offsets.observe({}, exact, exact)
    assert offsets.offset({}) == 0


def test_truncation_is_never_learned() -> None:
    """An engine that cuts every prompt to the same size, or by the same number of tokens, teaches no offset."""
    offsets = ExactOffsets()
    for exact in (5000, 6000, 7000):
        offsets.observe({}, exact, exact - 1000)
    assert offsets.offset({}) == 0


@pytest.mark.parametrize(
    ("exact", "reported", "truncated"),
    [
        (1000, 1000, False),
        (1000, 1500, False),
        (1000, 936, False),
        (1000, 935, True),
        (10_000, 9500, False),
        (10_000, 9499, True),
        (100, 36, False),
        (100, 35, True),
    ],
)
def test_truncation_is_told_from_small_differences(exact: int, reported: int, truncated: bool) -> None:
    """Only what is missing beyond five per cent and 64 tokens is truncation; more than expected never is."""
    assert is_truncated(exact, reported) is truncated


@pytest.mark.parametrize("calls", [[{"function": "f"}], ["f"], [None], [{}]])
def test_odd_tool_calls_are_messages_like_others(calls: list[Any]) -> None:
    """A client's odd calls get keys; what to make of them is the engine's business."""
    assert len(conversation_keys("m", [{"role": "assistant", "content": "", "tool_calls": calls}])) == 2


def test_messages_are_the_same_only_where_role_and_text_are() -> None:
    """Space around a text does not count; a text is never taken for a part of a role, nor for a call."""
    key = conversation_keys("m", [SYSTEM])[-1]
    assert next_key(key, USER) == next_key(key, {**USER, "content": "  What time is it?\n", "tool_calls": []})
    others: list[Message] = [
        {"role": "user", "content": "b"},
        {"role": "userb", "content": ""},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": None, "content": "b"},
        call("1", "{}"),
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "\ud800"},
    ]
    assert len({next_key(key, other) for other in others}) == len(others)
