"""The table of a study: its order and its advice."""

from elbowroom.quality.grading import Grade, Tally
from elbowroom.quality.table import advice_on, lines_of
from elbowroom.quality.trial import Result


def result(right: int, *, kept: int = 9, seconds: float = 20.0, made_up: int = 0, by_code: int = 0) -> Result:
    """Return the result of one conversation with ten facts, of which so many were answered right."""
    tallies = {name: Tally(kept, total=10) for name in ("identifiers", "constraints", "newest", "own")}
    grade = Grade(tallies, made_up=made_up, prompts=1)
    return Result(grade, Tally(right, total=10), Tally(1, total=1), 2, by_code, seconds * 2, 6000)


def test_the_best_comes_first() -> None:
    """By what was answered and kept; what is made up counts against it, and the quicker one wins between equals."""
    results = {
        "poor": result(3, kept=4),
        "inventing": result(9, made_up=8),
        "slow": result(9, seconds=30),
        "quick": result(9, seconds=10),
    }
    lines = lines_of(results, {"control": Grade()})
    assert [line.pruner for line in lines] == ["quick", "slow", "inventing", "poor", "control"]
    assert (lines[0].seconds, lines[0].tokens, lines[-1].is_control, lines[-1].identifiers) == (10, 3000, True, None)


def test_advice() -> None:
    """It names the best one, a quicker one that is as good, and a larger model where none is good."""
    good, quick, poor = result(10, seconds=40), result(10, kept=8, seconds=10), result(3, kept=3)
    assert advice_on(lines_of({"good": good, "poor": poor}, {}), {"good": "x = 1"}) == (
        "Choose good: after it the model answers 100 % of the questions right, and a compaction takes 40 s. "
        "It is set by x = 1."
    )
    assert advice_on(lines_of({"good": good, "quick": quick}, {}), {}).startswith("Choose good: ")
    close = lines_of({"good": good, "quick": result(10, seconds=10)}, {})
    assert advice_on(close, {}).startswith("Choose quick: ")
    assert advice_on(lines_of({"poor": poor}, {}), {}).startswith("None of them keeps enough: with poor, the best, ")
    assert advice_on(lines_of({}, {}), {}) == ""


def test_a_quicker_one_is_named_beside_the_best() -> None:
    """Where it is as good within three points, in two thirds of the time."""
    lines = lines_of({"best": result(10, seconds=30), "nearly": result(10, kept=9, made_up=2, seconds=10)}, {})
    assert advice_on(lines, {}).endswith(" nearly is as good within 3 points, and takes 10 s.")


def test_nothing_is_said_before_a_question_was_asked() -> None:
    """A compaction alone tells how long it takes."""
    begun = Result(compactions=1, seconds=12.0, tokens=2500)
    [line] = lines_of({"same": begun}, {})
    assert (line.seconds, line.identifiers, line.answered) == (12.0, None, None)
    assert advice_on([line], {}) == ""
