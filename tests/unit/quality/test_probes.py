"""Questions about facts, and how their answers are graded."""

import json

import pytest

from elbowroom.agents.answer import ToolCall
from elbowroom.quality.conversations import Fact, Known
from elbowroom.quality.probes import Probe, probes_of

BUDGET = Fact("total budget", "money", "user", ["€31,200", "€42,500"])
NOTES = Fact("file with the notes", "path", "tool", ["docs/pier/main_12.md"])


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("€42,500", True),
        ("The total budget is €42,500.", True),
        ("€31,200", False),
        ("It was €31,200, now it is €42,500.", False),
        ("€42,5001", False),
        ("I do not know.", False),
        ("", False),
    ],
)
def test_answers(answer: str, is_right: bool) -> None:
    """The newest value has to stand there as a whole, and no old one."""
    assert Probe(BUDGET, "English").is_right(answer, []) is is_right


def test_an_old_value_within_the_new_one_is_no_old_one() -> None:
    """A value that has become longer is not taken for the old one."""
    fact = Fact("place", "word", "user", ["the boathouse", "the boathouse at the pier"])
    assert Probe(fact, "English").is_right("The boathouse at the pier", [])
    assert not Probe(fact, "English").is_right("The boathouse", [])


@pytest.mark.parametrize(
    ("arguments", "is_right"),
    [
        ({"value": "docs/pier/main_12.md"}, True),
        ({"value": "docs/pier/main_13.md"}, False),
        ({"path": "docs/pier/main_12.md"}, False),
        ([], False),
    ],
)
def test_calls(arguments: object, is_right: bool) -> None:
    """The one call has the value as the argument that was asked for."""
    probe = Probe(NOTES, "English", calls=True)
    call = ToolCall("a", "look_up", json.dumps(arguments))
    assert probe.is_right("docs/pier/main_12.md", [call]) is is_right
    assert not probe.is_right("docs/pier/main_12.md", [])
    assert not probe.is_right("", [call, call])


def test_one_question_for_each_fact_and_one_call() -> None:
    """The tool is called for what a tool would take, if there is such a thing."""
    asked = list(probes_of(Known({fact.label: fact for fact in (BUDGET, NOTES)}), "German"))
    assert [(probe.fact, probe.calls, bool(probe.tools)) for probe in asked] == [
        (BUDGET, False, False),
        (NOTES, False, False),
        (NOTES, True, True),
    ]
    assert asked[0].message == {
        "role": "user",
        "content": "Was gilt jetzt: total budget? Antworte nur mit dem Wert.",
    }
    assert [probe.calls for probe in probes_of(Known({"b": BUDGET}), "English")] == [False]
