"""The verdict on a compaction: what of the facts stands in it, who has put it there, and when it must not be used."""

from collections.abc import Sequence

import pytest

from elbowroom.context.compaction.division import summary_message
from elbowroom.context.compaction.facts import facts_of
from elbowroom.context.compaction.outcome import Verdict
from elbowroom.context.compaction.verdict import MOST_SEARCHED, judge
from elbowroom.context.transcript import Group, Message

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
    facts = [fact for message in before for fact in facts_of(Group((message,))) if fact is not None]
    return judge(before, after, facts)


def summary(told: str, listed: Sequence[str] = ()) -> Message:
    """Return the message of a compaction with what a pruning agent tells and what code lists."""
    return user(summary_message("", told, listed, "in progress"))


def test_all_that_is_told_or_stays_passes() -> None:
    """A fact is kept by the pruning agent's words, or by the message that it stands in."""
    verdict = judged([summary(f"- {SAID[0]}\n- The hall costs €77,367."), user(SAID[2])])
    assert (verdict.outcome, verdict.in_words, verdict.warning) == ("pass", "", "")
    assert verdict.facts >= 4


def test_what_code_has_listed_is_put_back() -> None:
    """What the pruning agent has dropped and code has listed is counted, and is no loss."""
    verdict = judged([summary("They planned.", [SAID[0], "€77,367", "21:50", "pier64@example.org"])])
    assert (verdict.outcome, verdict.put_back, verdict.lost) == ("pass", 4, 0)
    assert verdict.in_words == "4 of 4 facts put back by code"


def test_a_lost_demand_is_a_soft_fail() -> None:
    """One demand of the user that stands nowhere is enough, and is told to people by its number."""
    verdict = judged([summary("The hall costs €77,367, the ferry 21:50, pier64@example.org.")])
    assert (verdict.outcome, verdict.demands_lost, verdict.fault) == ("soft fail", 1, "")
    assert verdict.in_words == "1 of 4 facts left out"
    assert verdict.warning == "1 of 4 facts left out"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([summary("They planned a feast.")], "has demanded"),
        ([summary(" ".join([*SAID, "10.9.8.7:66, a/b.py, GHO-1, c/d.md, XY-2, e/f.py, g/h.py"]))], "are not from"),
        ([summary(" ".join(SAID)), {"role": "tool", "tool_call_id": "a", "content": "ok"}], "lost their results"),
    ],
)
def test_hard_fails(after: list[Message], words: str) -> None:
    """Most of it lost, most of it made up, or a result without its call: the reason quotes nobody."""
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
