"""How a study of pruning agents looks in a terminal."""

from typing import Any

import pytest

from elbowroom.quality.grading import Grade, Tally
from elbowroom.quality.table import lines_of
from elbowroom.quality.trial import Result
from elbowroom.status.gauge import Terminal
from elbowroom.status.table import progress_of, table_of, time_left

RUNNING: dict[str, Any] = {
    "state": "running",
    "done": 9,
    "of": 36,
    "seconds_left": 250,
    "now": "plan, English, 1, same",
}


def test_how_far_it_is() -> None:
    """A bar, steps, the time that is left, and what is done now, in one line that fits."""
    line = progress_of(RUNNING, Terminal(100, is_unicode=True))
    assert line == "[#####...............] 9 of about 36 steps, about 5 min left plan, English, 1, same"
    assert len(progress_of(RUNNING, Terminal(40))) < 40


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "the time is known after the first compaction"),
        (0, "less than 1 min left"),
        (59, "less than 1 min left"),
        (61, "about 2 min left"),
    ],
)
def test_the_time_that_is_left(seconds: int | None, words: str) -> None:
    """In minutes, as soon as anybody can know."""
    assert time_left(seconds) == words


def test_the_table() -> None:
    """Columns are aligned, also beside names of wide letters; what is not known is a dash."""
    tallies = {name: Tally(9, total=10) for name in ("identifiers", "constraints", "newest", "own")}
    result = Result(Grade(tallies, prompts=1), Tally(8, total=10), Tally(), 2, 1, 40.0, 5000)
    lines = lines_of({"same": result, "要約係": Result(compactions=1, seconds=3.0, tokens=900)}, {"control": Grade()})
    state = {
        "state": "stopped",
        "model": "lmstudio/m",
        "window": 8192,
        "conversations": 3,
        "compactions": 2,
        "lines": [line.as_json() for line in lines],
        "troubles": {"critic": "It is not there."},
        "advice": "Choose same.",
    }
    assert table_of(state, Terminal(120, is_unicode=True)).splitlines() == [
        "Stopped: this is what was measured until then.",
        "lmstudio/m with a window of 8,192 tokens; 3 conversations, compacted twice each. Shares are per cent.",
        "",
        "pruning agent  identifiers  constraints  newest  told  answered  tool call  made up  by code  seconds  tokens",
        "same                    90           90      90    90        80          -        0   1 of 2     20.0   2,500",
        "要約係                   -            -       -     -         -          -        0   0 of 1      3.0     900",
        "(control)                -            -       -     -         -          -        -        -        -       -",
        "critic could not be measured: It is not there.",
        "",
        "Choose same.",
    ]


def test_nothing_yet() -> None:
    """It says so, and why."""
    assert table_of({"state": "none", "lines": []}, Terminal()) == "No study of pruning agents was begun."
    failed = {"state": "failed", "problem": "LM Studio does not answer.", "lines": [], "advice": ""}
    assert table_of(failed, Terminal()).splitlines() == [
        "The study has ended early: LM Studio does not answer.",
        "Nothing was measured far enough for an advice.",
    ]
