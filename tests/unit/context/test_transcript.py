"""A transcript keeps together what belongs together, and loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from random_histories import Json, always_the_same, histories

from elbowroom.context.templates.repair import repair
from elbowroom.context.transcript import Group, Message, Transcript, text_of, uses_in

CALLS: Json = {"role": "assistant", "content": "Both.", "tool_calls": [{"id": "a"}, {"id": "b"}]}
RESULTS: list[Json] = [{"role": "tool", "tool_call_id": call_id, "content": f"Result {call_id}"} for call_id in "ab"]


@always_the_same
@given(histories())
def test_transcript_holds_every_message_in_order(history: list[Json]) -> None:
    """Grouping loses no message, moves none, and copies none."""
    messages = Transcript.of(history).messages
    assert len(messages) == len(history)
    assert all(kept is given for kept, given in zip(messages, history, strict=True))


@always_the_same
@given(histories())
def test_group_is_call_with_all_its_results(history: list[Json]) -> None:
    """In a repaired history a group with calls holds as many results, and no other group holds one."""
    for group in Transcript.of(repair(history)).groups:
        first, *results = group.messages
        assert [message["role"] for message in results] == ["tool"] * len(first.get("tool_calls", ()))
        assert (group.kind == "tools") is bool(results)


def test_group_says_what_all_its_messages_say() -> None:
    """The text of a group is the text of the call's message and of the results, a line each."""
    (group,) = Transcript.of([CALLS, *RESULTS]).groups
    assert group.text == "Both.\nResult a\nResult b"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"role": "system", "content": ""}, "system"),
        ({"role": "developer", "content": ""}, "system"),
        ({"role": "user", "content": ""}, "user"),
        ({"role": "assistant", "content": ""}, "assistant"),
        (CALLS, "tools"),
    ],
)
def test_group_knows_its_kind(message: Message, kind: str) -> None:
    """A group is named after who speaks, and after its calls where it has any."""
    assert Group((message,)).kind == kind


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("as it is", "as it is"),
        (None, ""),
        ([{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {}}, "two"], "one\ntwo"),
        (7, ""),
    ],
)
def test_text_of_message_is_its_text_alone(content: object, text: str) -> None:
    """Text comes from a string and from text parts; anything else has none."""
    assert text_of({"role": "user", "content": content}) == text


@pytest.mark.parametrize("ids", ["ab", ["", ""], [None, None], ["call_0", "call_0"]])
def test_calls_with_the_same_id_have_their_results_in_order(ids: list[str | None]) -> None:
    """No result of another call, as an error, is taken for one's own; a call without one has none."""
    calls = [{"id": each, "function": {"name": f"tool_{at}"}} for at, each in enumerate([*ids, ids[0]])]
    results: list[Json] = [
        {"role": "tool", "tool_call_id": each, "content": text} for each, text in zip(ids, ("ok", "Error"), strict=True)
    ]
    told = [(use.name, use.text) for use in uses_in([{"role": "assistant", "tool_calls": calls}, *results])]
    assert told == [("tool_0", "ok"), ("tool_1", "Error"), ("tool_2", "")]
