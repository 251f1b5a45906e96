"""What failed is seen: in the view of a large output, in the old result, and in what is told of the call at last."""

import json
from collections.abc import Sequence
from functools import cache

import pytest
from compacting import qwen
from exam_outputs import EXAMS
from unseen_outputs import UNSEEN

from elbowroom.context.compaction import summary_of_calls
from elbowroom.context.outputs import Limits, ref_to, stub, telling_parts, view_of
from elbowroom.context.transcript import Message, Transcript

LIMITS = Limits(2000, 51_200, 1500)
SIZE = 40_000
LEAST_PASSED = 40 / 43
SUMMARY_ROOM = 500
STEPS_AFTER = 20
PLACES = ("view", "old result", "digest")
QUICK_SIZE = SIZE // 4
SAMPLES = [(slice(3, None, 4), QUICK_SIZE), pytest.param((slice(None), SIZE), marks=pytest.mark.long)]
"""The outputs that were not looked at before the rule was found, and all of them four times as long."""


@cache
def places(name: str, text: str) -> dict[str, str]:
    """Return what a model gets of a command's output, by where it stands."""
    arguments, size = json.dumps({"command": f"run {name}"}), qwen().count_text
    telling = lambda: telling_parts("execute", arguments, text)  # noqa: E731  # as the keeper of results has it
    return {
        "view": view_of(text, ref_to("", text), LIMITS, size, telling).text,
        "old result": stub("execute", "bash", arguments, text, "k3v9k3v9k3v9"),
        "digest": digest([(name, text)], 2000),
    }


def unseen(sample: tuple[slice, int]) -> list[tuple[str, str, Sequence[str]]]:
    """Return the name, the text and the words of outputs that were written before the rule was known."""
    taken, size = sample
    return [(each.name, each.output(size), each.words) for each in UNSEEN[taken]]


def digest(outputs: Sequence[tuple[str, str]], room: int) -> str:
    """Return what a compaction tells of commands with these outputs."""
    messages: list[Message] = []
    for number, (name, text) in enumerate(outputs):
        function = {"name": "bash", "arguments": json.dumps({"command": f"run {name}"})}
        call = {"id": str(number), "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": str(number), "content": text})
    return summary_of_calls(Transcript.of(messages).groups, qwen().count_text, room)


def lost(outputs: Sequence[tuple[str, str, Sequence[str]]], place: str) -> dict[str, list[str]]:
    """Return the words that are missing in a place, by the outputs that say them."""
    told = {name: places(name, text)[place] for name, text, _ in outputs}
    gone = {name: [word for word in words if word not in told[name]] for name, _, words in outputs}
    return {name: words for name, words in gone.items() if words}


@pytest.mark.slow
@pytest.mark.parametrize("size", [QUICK_SIZE, pytest.param(SIZE, marks=pytest.mark.long)])
@pytest.mark.parametrize("place", PLACES)
def test_what_failed_is_seen_in_outputs_that_nobody_has_recorded(place: str, size: int) -> None:
    """Of 43 programs' outputs, written in the form of their documentation, at least 40 keep each of the words."""
    outputs = [(exam.name, exam.output(1 + size // 2 // (len(exam.usual) + 1)), exam.words) for exam in EXAMS]
    assert len({name.split()[0] for name, _, _ in outputs}) >= 30
    gone = lost(outputs, place)
    assert len(outputs) - len(gone) >= LEAST_PASSED * len(outputs) >= 40, gone


def test_they_are_outputs_of_other_programs() -> None:
    """At least 60 programs of those outputs that were written before the rule was known have nothing recorded."""
    names = {each.name.split()[0] for each in UNSEEN}
    assert len(names - {exam.name.split()[0] for exam in EXAMS}) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=["one in four", "all"])
@pytest.mark.parametrize("place", PLACES)
def test_what_failed_is_seen_in_outputs_that_were_written_before_the_rule_was_known(
    place: str, sample: tuple[slice, int]
) -> None:
    """The same holds for 78 more outputs of other kinds, most of them without an exit code or a word such as "error".

    One in four of them was not looked at before the rule for the others was found, and these hold it by themselves.
    """
    outputs = unseen(sample)
    gone = lost(outputs, place)
    assert len(outputs) - len(gone) >= LEAST_PASSED * len(outputs), gone


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=["one in four", "all"])
def test_a_command_that_failed_long_ago_is_still_told(sample: tuple[slice, int]) -> None:
    """Twenty successful commands later a digest of 500 tokens names each of three failed ones and says what failed."""
    after = [(f"step {number}", "fine\nexit code: 0") for number in range(STEPS_AFTER)]
    said = 0
    outputs = unseen(sample)
    for first in range(0, len(outputs) - 2, 3):
        failed = outputs[first : first + 3]
        told = digest([*((name, f"{text}\nexit code: 1") for name, text, _ in failed), *after], SUMMARY_ROOM)
        assert [name for name, _, _ in failed if f"run {name}: " not in told] == []
        said += sum(any(word in told for word in words) for _, _, words in failed)
    assert said >= LEAST_PASSED * (len(outputs) - len(outputs) % 3)


def test_what_stands_out_is_told_where_nothing_says_that_it_failed() -> None:
    """One pod of 400 that crashes is told by its stub in one line that claims no failure; usual lines are not."""
    usual = [f"shop      part-{number}      1/1     Running       0       {number % 9}d" for number in range(400)]
    crashed = "shop      till-7      0/1     CrashLoopBackOff   14 (2m ago)   51m"
    written = stub("execute", "bash", "{}", "\n".join([*usual, crashed, *usual]), "k3v9k3v9k3v9")
    assert f"it says: {' '.join(crashed.split())}]" in written
    assert "failed" not in written
    assert "it says" not in stub("execute", "bash", "{}", "\n".join(usual), "k3v9k3v9k3v9")
