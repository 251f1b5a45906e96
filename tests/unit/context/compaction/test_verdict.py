"""The verdict on a compaction: what of the facts stands in it, who has put it there, and when it must not be used."""

from collections.abc import Sequence

import pytest

from elbowroom.context.compaction.coverage import Coverage
from elbowroom.context.compaction.division import divide, summary_message
from elbowroom.context.compaction.outcome import Verdict
from elbowroom.context.compaction.verdict import MOST_SEARCHED, judge
from elbowroom.context.transcript import Message, Transcript

SAID = [
    "Never book anything without asking me.",
    "The hall costs €77,367.",
    "The ferry leaves at 21:50 from pier64@example.org.",
]


def user(text: str) -> Message:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def judged(after: Sequence[Message], said: Sequence[str] = SAID, more: Sequence[Message] = ()) -> Verdict:
    """Return the verdict on messages that stand for what the user has said."""
    before = [*map(user, said), *more]
    transcript = Transcript.of([*before, user("And what is next in the plan?")])
    division = divide(transcript, tails_from=len(before))
    return judge(division, Coverage(transcript.groups, len), after)


def summary(told: str, listed: Sequence[str] = ()) -> Message:
    """Return the message of a compaction with what a pruning agent tells and what code lists."""
    return user(summary_message("", told, listed, "in progress"))


def test_all_that_is_told_or_stays_passes() -> None:
    """What the user said is kept by the pruning agent's words, or by the message that it stands in."""
    verdict = judged([summary(f"- {SAID[0]}\n- The hall costs €77,367."), user(SAID[2])])
    assert (verdict.outcome, verdict.in_words, verdict.warning) == ("pass", "", "")
    assert verdict.facts == 3


def test_what_code_has_quoted_is_told() -> None:
    """What the pruning agent has dropped and code has quoted is counted, and is no loss."""
    verdict = judged([summary("They planned.", [f"- {line}" for line in SAID])])
    assert (verdict.outcome, verdict.put_back, verdict.lost) == ("pass", 3, 0)
    assert verdict.in_words == "3 lines quoted by code"


def test_lost_words_of_the_user_are_a_soft_fail() -> None:
    """What the user said and what stands nowhere is told to people by its number."""
    verdict = judged([summary("The hall costs €77,367, the ferry leaves 21:50, pier64@example.org.")])
    assert (verdict.outcome, verdict.lost, verdict.fault) == ("soft fail", 1, "")
    assert verdict.in_words == verdict.warning == "1 of 3 sentences of the user left out"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([summary(" ".join([*SAID, "10.9.8.7:66, a/b.py, GHO-1, c/d.md, XY-2, e/f.py, g/h.py"]))], "are not from"),
        ([summary(" ".join(SAID)), {"role": "tool", "tool_call_id": "a", "content": "ok"}], "lost their results"),
    ],
)
def test_hard_fails(after: list[Message], words: str) -> None:
    """Most of it made up, or a result without its call: the reason quotes nobody."""
    verdict = judged(after, [*SAID, "Always write prices with tax."])
    assert verdict.outcome == "hard fail"
    assert words in verdict.fault
    assert "ferry" not in verdict.fault


def test_numbers_that_only_calls_hold_are_not_made_up() -> None:
    """What stands in the arguments of a call was said; a call without a function is no error."""
    calls = [{"id": "a", "function": {"name": "read", "arguments": '{"path": "a/b.py"}'}}, {"id": 3}]
    verdict = judged([summary("a/b.py was read.")], [], [{"role": "assistant", "tool_calls": calls}])
    assert (verdict.made_up, verdict.outcome) == (0, "pass")


def test_a_history_too_long_to_be_searched_makes_nothing_up() -> None:
    """The event loop does not wait for a search of megabytes: then nobody is said to have made anything up."""
    long = "so it was. " * (MOST_SEARCHED // 10)
    verdict = judged([summary("a/b.py, c/d.py, e/f.py, g/h.py")], [long])
    assert verdict.made_up == 0
