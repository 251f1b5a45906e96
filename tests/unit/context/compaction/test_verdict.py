"""The verdict on a compaction: what of the facts stands in it, who has put it there, and when it must not be used."""

from collections.abc import Sequence

import pytest

from elbowroom.context.compaction.answer import Plan
from elbowroom.context.compaction.coverage import Coverage
from elbowroom.context.compaction.division import divide, summary_message
from elbowroom.context.compaction.outcome import Verdict
from elbowroom.context.compaction.verdict import MOST_SEARCHED, judge, without_made_up
from elbowroom.context.transcript import Message, Summary, Transcript

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
    return judge(division, Coverage(transcript.groups, len), Plan("", ""), after)


def cleaned(summary: str, *said: Message) -> Plan:
    """Return a plan with this summary without what stands in no message."""
    return without_made_up(Plan("", summary), said)


def summary(told: str, listed: Sequence[str] = ()) -> Message:
    """Return the message of a compaction with what a pruning agent tells and what code lists."""
    return Summary(user(summary_message("", told, listed, "in progress")))


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
    assert verdict.in_words == "1 of 3 sentences of the user left out"
    assert verdict.warning == f'{verdict.in_words}; lost is "{SAID[0]}"'
    assert SAID[0] not in str(verdict)


def test_the_weightiest_two_are_told_of_what_is_lost() -> None:
    """A notice names no more than two, each in a few words."""
    long = f"{SAID[1]} {'and so it was with every boat in the harbour ' * 4}"
    examples = judged(
        [summary("They planned.")], ["It is so.", long, "The code of the door is KX-4417-QZ9 now."]
    ).examples
    assert len(examples) == 2
    warning = Verdict(3, lost=3, examples=examples).warning
    assert "KX-4417-QZ9" in warning
    assert len(warning) < 200


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict(told=7, made_up=4), "are not from"),
        (Verdict(unpaired=1), "lost their results"),
        (Verdict(told=9, made_up=4), ""),
        (Verdict(told=3, made_up=3), ""),
    ],
)
def test_hard_fails(verdict: Verdict, words: str) -> None:
    """More than three identifiers and most of them made up, or a result without its call."""
    assert verdict.outcome == ("hard fail" if words else "soft fail")
    assert words in verdict.fault


def test_a_result_without_its_call_is_unpaired() -> None:
    """What had its counterpart before and has none after is counted."""
    assert judged([summary(" ".join(SAID)), {"role": "tool", "tool_call_id": "a", "content": "ok"}]).unpaired == 1


@pytest.mark.parametrize(
    ("told", "left", "made_up"),
    [
        ("The ferry leaves at 21:50. It is GHO-1313 now.\n- a/b.py", "The ferry leaves at 21:50.", 2),
        ("- The hall: €77,367\n- The boat: €99,111", "- The hall: €77,367", 1),
        ("They planned.", "They planned.", 0),
        ("See x/y.md, and 10.9.8.7:66!", "", 2),
    ],
)
def test_what_nobody_has_said_is_left_out(told: str, left: str, made_up: int) -> None:
    """A sentence that names what stands nowhere in the conversation goes, and is counted; the others stay."""
    plan = cleaned(told, *map(user, SAID))
    assert (plan.summary, plan.made_up) == (left, made_up)


def test_a_range_is_of_two_figures() -> None:
    """Who says where something begins and ends has said the range, and nobody a range with another end."""
    said = user("It takes from 100 to 200 units.")
    assert cleaned("It takes 100-200 units.", said).made_up == 0
    assert cleaned("It takes 100-300 units.", said).summary == ""


def test_numbers_that_only_calls_hold_are_not_made_up() -> None:
    """What stands in the arguments of a call was said, their names too; a call without a function is no error."""
    calls = [{"id": "a", "function": {"name": "read", "arguments": '{"start_line": "a/b.py"}'}}, {"id": 3}]
    plan = cleaned("a/b.py was read from start_line.", {"role": "assistant", "tool_calls": calls})
    assert (plan.made_up, plan.named) == (0, 2)


def test_a_history_too_long_to_be_searched_makes_nothing_up() -> None:
    """The event loop does not wait for a search of megabytes: then nobody is said to have made anything up."""
    long = "so it was. " * (MOST_SEARCHED // 10)
    assert cleaned("a/b.py, c/d.py, e/f.py, g/h.py", user(long)).made_up == 0
