"""What one request is answered with, over all steps of its run."""

from typing import Any

import pytest

from elbowroom.agents.answer import COUNTED, Answer, AnswerEvent, ToolCall
from elbowroom.providers.base import ReasoningDelta, TextDelta

CALL = ToolCall("a1b2c3d4e", "get", "{}")


def answer_of(*steps: list[AnswerEvent], **fields: Any) -> Answer:
    """Return the answer after these steps."""
    answer = Answer(**fields)
    for events in steps:
        answer.begin_step()
        for event in events:
            answer.take(event)
    return answer


def test_one_step_is_taken_as_it_is() -> None:
    """The events of the first step are what the client sees."""
    answer = Answer()
    answer.begin_step()
    for event in (ReasoningDelta("Hm."), TextDelta("\n\nYes"), TextDelta("."), CALL):
        assert answer.take(event) == event
    assert (answer.reasoning, answer.text, answer.tool_calls) == (["Hm."], ["\n\nYes", "."], [CALL])
    assert answer.steps == 1


def test_later_steps_begin_after_a_blank_line() -> None:
    """The first words and thoughts of a later step are set off, the others are not."""
    steps: list[list[AnswerEvent]] = [
        [TextDelta("a"), ReasoningDelta("x")],
        [CALL],
        [TextDelta("b"), TextDelta("c"), ReasoningDelta("y"), ReasoningDelta("z")],
        [TextDelta("d")],
    ]
    answer = answer_of(*steps)
    assert "".join(answer.text) == "a\n\nbc\n\nd"
    assert "".join(answer.reasoning) == "x\n\nyz"
    assert answer.steps == 4


def test_first_words_are_not_set_off() -> None:
    """Text that begins in a later step has nothing before it to be set off from."""
    assert answer_of([ReasoningDelta("x")], [TextDelta("a")]).text == ["a"]


def test_set_off_words_keep_their_logprobs_and_field() -> None:
    """The blank line changes nothing else of an event."""
    answer = answer_of([TextDelta("a"), ReasoningDelta("x")])
    answer.begin_step()
    assert answer.take(TextDelta("b", {"content": []})) == TextDelta("\n\nb", {"content": []})
    assert answer.take(ReasoningDelta("y")) == ReasoningDelta("\n\ny")
    assert answer.logprobs == [{"content": []}]


@pytest.mark.parametrize(
    ("upstream", "has_calls", "expected"),
    [
        ("stop", False, "stop"),
        ("length", False, "length"),
        ("content_filter", False, "content_filter"),
        ("tool_calls", False, "stop"),
        ("eosFound", False, "stop"),
        ("stop", True, "tool_calls"),
        ("tool_calls", True, "tool_calls"),
    ],
)
def test_finish_reason(upstream: str, has_calls: bool, expected: str) -> None:
    """Calls that wait for the client are `tool_calls`; otherwise OpenAI's reasons are carried, others are `stop`."""
    answer = answer_of([CALL] if has_calls else [], upstream_finish=upstream)
    assert answer.finish_reason == expected


def test_no_usage() -> None:
    """Without a report there is no usage."""
    assert answer_of([]).usage is None


def test_usage_of_one_step_is_the_upstreams_own() -> None:
    """One step's usage is passed on as it came."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "timings": {"ms": 1}}
    assert answer_of([], usages=[usage]).usage == usage


def test_usage_of_several_steps() -> None:
    """The last step's usage tells how full the window is; the sums stand beside it."""
    usages = [
        {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        {"prompt_tokens": 9, "completion_tokens": None, "total_tokens": 9, "x": 1},
    ]
    assert answer_of([], [], usages=usages).usage == {
        "prompt_tokens": 9,
        "completion_tokens": None,
        "total_tokens": 9,
        "x": 1,
        "elbowroom": {"steps": 2, "prompt_tokens": 14, "completion_tokens": 2},
    }


def test_sums_tell_that_something_of_them_was_counted_here() -> None:
    """One step of several without a report is enough for the sums to be none of the upstream's."""
    usages = [
        {"prompt_tokens": 5, "completion_tokens": 2, "elbowroom": COUNTED},
        {"prompt_tokens": 9, "completion_tokens": 3},
    ]
    usage = answer_of([], [], usages=usages).usage
    assert usage is not None
    assert usage["elbowroom"] == {"steps": 2, "prompt_tokens": 14, "completion_tokens": 5, "counted": True}


@pytest.mark.parametrize("said", [[], [TextDelta("b")]], ids=["nothing", "words"])
def test_a_stopped_answer_says_why_at_its_end(said: list[AnswerEvent]) -> None:
    """The paragraph begins after a blank line, whatever the last step has said; the finish is `length`."""
    answer = answer_of([TextDelta("a")], said)
    answer.stop("[Stopped.]")
    before = "a\n\nb" if said else "a"
    assert "".join(answer.text) == f"{before}\n\n[Stopped.]"
    assert answer.finish_reason == "length"
    assert answer.conclusion == f"{before}\n\n[Stopped.]"
    assert answer.steps == 2


def test_a_stopped_answer_may_be_its_reason_alone() -> None:
    """Where nothing was said before, the paragraph is the answer."""
    assert answer_of([CALL]).stop("[Stopped.]") == TextDelta("[Stopped.]")


@pytest.mark.parametrize(
    ("steps", "conclusion"),
    [
        ([[TextDelta("Looking.")], [TextDelta("\nIt is "), TextDelta("blue.\n")]], "It is blue."),
        ([[TextDelta("It is blue.")], []], "It is blue."),
        ([[]], ""),
    ],
)
def test_conclusion(steps: list[list[AnswerEvent]], conclusion: str) -> None:
    """What the last step says counts; where that is nothing, what was said before."""
    assert answer_of(*steps).conclusion == conclusion
