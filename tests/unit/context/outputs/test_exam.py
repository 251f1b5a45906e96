"""What failed is seen: in the view of a large output, in the old result, and in what is told of the call at last."""

import json

import pytest
from compacting import qwen
from exam_outputs import EXAMS, Exam

from elbowroom.context.compaction import summary_of_calls
from elbowroom.context.outputs import Limits, ref_to, stub, telling_parts, view_of
from elbowroom.context.transcript import Transcript

LIMITS = Limits(2000, 51_200, 1500)
LEAST_PASSED = 40


def places(exam: Exam) -> dict[str, str]:
    """Return what a model gets of an output of 40 KB with its failure in the middle, by where it stands."""
    text = exam.output(1 + 20_000 // (len(exam.usual) + 1))
    arguments, size = json.dumps({"command": f"run {exam.name}"}), qwen().count_text
    function = {"name": "bash", "arguments": arguments}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function", "function": function}]}
    groups = Transcript.of([call, {"role": "tool", "tool_call_id": "a", "content": text}]).groups
    telling = lambda: telling_parts("execute", arguments, text)  # noqa: E731  # as the keeper of results has it
    return {
        "view": view_of(text, ref_to("", text), LIMITS, size, telling).text,
        "old result": stub("execute", "bash", arguments, text, "k3v9k3v9k3v9"),
        "digest": summary_of_calls(groups, size, 2000),
    }


@pytest.mark.parametrize("place", ["view", "old result", "digest"])
def test_what_failed_is_seen_in_outputs_that_nobody_has_recorded(place: str) -> None:
    """Of 43 programs' outputs, written in the form of their documentation, at least 40 keep each of the words."""
    assert len(EXAMS) >= 43
    assert len({exam.name.split()[0] for exam in EXAMS}) >= 30
    lost = {exam.name: gone for exam in EXAMS if (gone := [w for w in exam.words if w not in places(exam)[place]])}
    assert len(EXAMS) - len(lost) >= LEAST_PASSED, lost
