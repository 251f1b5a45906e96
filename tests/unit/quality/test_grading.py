"""What of a conversation a prompt still tells: a value counts where a sentence or a line names what it is."""

import pytest

from elbowroom.quality.conversations import Fact, Known
from elbowroom.quality.grading import grade

BUDGET = "The budget is 1,400 now."


def known(*values: str, also: tuple[str, ...] = ()) -> Known:
    """Return the truth of a conversation about a budget."""
    return Known({"budget": Fact("budget", "money", "user", list(values), also)})


def graded(prompt: str, truth: Known) -> tuple[int, int, int]:
    """Return how many identifiers and newest values a prompt tells, and how many old values alone."""
    history = [{"role": "user", "content": f"{BUDGET} It was 900. Spend 900 at most. Budget: 900 of money."}]
    found = grade([{"role": "user", "content": prompt}], history, truth, (), ())
    return found.tallies["identifiers"].inside, found.tallies["newest"].inside, found.stale


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        (BUDGET, (1, 1, 0)),
        ("- BUDGET: 1,400", (1, 1, 0)),
        ("1,400", (0, 0, 0)),
        ("The budget grew. It is 1,400.", (0, 0, 0)),
        ("The budget\n- 1,400", (0, 0, 0)),
        ("The budget is 11,400.", (0, 0, 0)),
        ("The budget is 900.", (0, 0, 1)),
        ("Our budget was 900 once. Then 1,400 came.", (0, 0, 1)),
        ("The budget is not 900 but 1,400.", (1, 1, 0)),
        ("予算は何。budgetは1,400です。", (1, 1, 0)),
    ],
)
def test_a_value_counts_beside_its_name(prompt: str, found: tuple[int, int, int]) -> None:
    """A bare value says nothing, nor one in the sentence after the name; an old one alone is counted for itself."""
    assert graded(prompt, known("900", "1,400")) == found


def test_other_words_name_it_as_well() -> None:
    """A fact has the words by which its conversation names it."""
    assert graded("We may spend 1,400.", known("900", "1,400")) == (0, 0, 0)
    assert graded("We may spend 1,400.", known("900", "1,400", also=("spend",))) == (1, 1, 0)
