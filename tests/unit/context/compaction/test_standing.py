"""The beginning of an earlier summary stands in the next one, and takes nothing from what is newer or must be told."""

import pytest
from compacting import chat, chosen, qwen, said

from elbowroom.context.compaction.answer import Plan
from elbowroom.context.compaction.calls import RemovedCalls
from elbowroom.context.compaction.coverage import Coverage, sentences_of
from elbowroom.context.compaction.division import divide, summary_message
from elbowroom.context.compaction.drafts import Draft, Drafts
from elbowroom.context.transcript import Group, Message, Summary, Transcript

ROOM = 300
LINES = [f"- The {hex(7**at)[2:]} of {hex(11**at)[2:]} is kept at berth {7 * at}" for at in range(9, 24)]


def drafts(*summaries: str, room: int = ROOM) -> Drafts:
    """Return the drafts of a conversation with these summaries."""
    before: list[Message] = [Summary(role="user", content=text) for text in summaries]
    system, *others = chat(6)
    groups = Transcript.of([system, *before, *others]).groups
    division = divide(Transcript(groups), tails_from=len(groups) - 1)
    return Drafts(division, "in progress", qwen().count_text, 8192, room, 2000, RemovedCalls())


def planned(summary: str, plan: Plan, room: int = ROOM) -> Draft:
    """Return the draft of a plan after one summary."""
    draft = drafts(summary, room=room).planned(plan, room)
    assert isinstance(draft, Draft)
    return draft


@pytest.mark.parametrize(
    ("stood", "told"),
    [
        ("The key of Ada is no longer valid", "The key of Ada is valid"),
        ("Run migrate before restart", "Run restart before migrate"),
        ("depth > 9 is safe", "depth < 9 is safe"),
        ("係の人が犬を追う犬が人を追う", "犬が人を追う"),
    ],
)
def test_a_plan_that_says_something_else_in_the_same_words_is_told(stood: str, told: str) -> None:
    """Only a line that stands there as it is need not be told again."""
    summary = summary_message(f"{stood}.", "", ["- Fog lifts at noon"], "done")
    assert f"\n{told}\n" in planned(summary, Plan(told, "They talked.")).summary
    assert planned(summary, Plan(f"{stood}.", "They talked.")).summary.count(stood) == 1


def test_a_plan_that_takes_back_what_was_changed_is_told() -> None:
    """The first line holds again: nothing below it says what changed it."""
    summary = summary_message("The berth is pier 9.\nThe berth is pier 4.", "", LINES[:2], "done")
    text = planned(summary, Plan("The berth is pier 9.", "They talked.")).summary
    assert text.rindex("pier 9") > text.rfind("pier 4")


@pytest.mark.parametrize("words", range(90, 181, 30))
def test_a_beginning_takes_no_room_from_a_plan_and_what_is_to_do(words: int) -> None:
    """What fits beside nothing else is not refused for what stood before, nor is anything to do left out."""
    to_do = "- open: Mend the hull of Ada\n- open: Mend the mast of Bea"
    plan = Plan("", " ".join(["They talked of the sea."] * (words // 6)))
    summary = summary_message("", "", LINES, "done", to_do=to_do)
    draft = planned(summary, plan)
    assert qwen().count_text(draft.summary) <= ROOM
    assert to_do in draft.summary
    assert isinstance(drafts(summary).whole(plan), Draft)


def test_what_two_summaries_tell_stands_once() -> None:
    """A line is not carried twice because it stood twice."""
    summaries = [summary_message("", "", [*LINES[:3], LINES[at]], "done") for at in (0, 1)]
    text = drafts(*summaries).digested(ROOM).summary
    assert [text.count(line) for line in LINES[:3]] == [1, 1, 1]


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
@pytest.mark.parametrize("room", range(20, 200, 8))
def test_what_stands_never_stands_without_what_is_newer(role: str, room: int) -> None:
    """A line of the beginning goes where there is no room for a newer one about the same."""
    old, new = "price of a meter: 38.244", "Price of a meter, mended: 53.679"
    others = [f"{word} {word}son {word}ham {word}ley went on" for word in ("alpha", "beta", "gamma", "delta")] * 2
    groups = (
        Group((Summary(role="user", content=summary_message(old, "", (), "done")),)),
        *Transcript.of([said(role, text) for text in (new, *others)]).groups,
    )
    lines = [unit.line for unit in chosen(groups, room=room, stands=True)]
    assert old not in lines or any("53.679" in line for line in lines)


def test_a_standing_line_stays_above_what_is_newer_where_both_have_room() -> None:
    """What engines have read is not changed for a value that is corrected further below."""
    lines = ["- price of a meter: 38.244", *LINES[:4]]
    groups = (
        Group((Summary(role="user", content=summary_message("", "", lines, "done")),)),
        *Transcript.of([said("user", "Price of a meter, mended: 53.679")]).groups,
    )
    units = chosen(groups, room=40, stands=True)
    assert [unit.line for unit in units] == [*lines, "- Price of a meter, mended: 53.679"]


def test_what_is_newer_shares_the_room_of_what_stands() -> None:
    """The last lines of a beginning give way to what is newer about the first, so that the first stay as they were."""
    lines = ["- price of a meter: 38.244", *LINES[:4]]
    groups = (
        Group((Summary(role="user", content=summary_message("", "", lines, "done")),)),
        *Transcript.of([said("user", "Price of a meter, mended: 53.679")]).groups,
    )
    assert [unit.line for unit in chosen(groups, room=0, stands=True)] == [
        *lines[:-1],
        "- Price of a meter, mended: 53.679",
    ]


def test_an_old_value_beside_the_newest_is_worth_nothing() -> None:
    """What stands is compared with a free choice by what still holds."""
    texts = ("price of a meter: 38.244", "Price of a meter: 53.679", *LINES)
    groups = Transcript.of([said("user", text) for text in texts]).groups
    coverage = Coverage(groups, len)
    candidates = coverage.candidates(groups)
    old, new, *_ = candidates.units
    assert coverage.worth(candidates, "", (old, new)) == coverage.worth(candidates, "", (new,)) > 0


@pytest.mark.parametrize(
    ("text", "stands_for", "units"),
    [
        (summary_message("Told", "", (), "done"), ["One"], ["One", "Told"]),
        (summary_message("Told", "", ["- Two"], "done"), ["One", "Two"], ["One", "Two", "Told"]),
        (
            summary_message("Later", "", (), "done", carried="## What must hold\nTold\n\n## Word for word\n- Two"),
            ["One", "Two", "Three"],
            ["One", "Two", "Told", "Three", "Later"],
        ),
    ],
)
def test_what_was_told_is_newer_than_what_it_was_told_of(text: str, stands_for: list[str], units: list[str]) -> None:
    """A pruning agent's line gives no place to words that it has read, but to those that were said after it."""
    whole = tuple(said("user", each) for each in stands_for)
    group = Group((Summary(role="user", content=text),), unshortened=whole)
    assert [unit.text for unit in Coverage((group,), len).units((group,))] == units


def test_the_first_number_of_a_list_is_no_sentence() -> None:
    """Nor are those of the lines after it; a figure with a stop within it ends one."""
    assert sentences_of("1. Sail\n2. Rest. Go to 4.10. Stop") == ["1. Sail", "2. Rest.", "Go to 4.10.", "Stop"]
