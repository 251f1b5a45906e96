"""Results that are too large: how the room is divided among them, and what is shown of each."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.budget import Budget
from elbowroom.context.manager import LEAST_SHARE, room_for_results, shares, shortened

WINDOW = 8192
SIZES = st.lists(st.integers(0, 20_000), max_size=12)
ROOMS = st.integers(-500, 40_000)
WORD = re.compile(r"\w+|[^\w\s]")


def words_in(text: str) -> int:
    """Count words and signs, about as a tokenizer does."""
    return len(WORD.findall(text))


def numbered(lines: int) -> str:
    """Return a text of which every line is another."""
    return "\n".join(f"line {number} of the log" for number in range(lines))


@given(SIZES, ROOMS)
def test_shares_fit_the_room_together(sizes: list[int], room: int) -> None:
    """The shares add up to the room at most, unless the least ones alone are more."""
    granted = shares(sizes, room)
    assert len(granted) == len(sizes)
    assert sum(granted) <= max(room, sum(min(size, LEAST_SHARE) for size in sizes))


@given(SIZES, ROOMS)
def test_no_share_is_larger_than_its_result_or_too_small_to_use(sizes: list[int], room: int) -> None:
    """A result gets what it needs at most, and the least share or all that it needs at least."""
    for size, share in zip(sizes, shares(sizes, room), strict=True):
        assert min(size, LEAST_SHARE) <= share <= size


@given(SIZES, st.integers(0, 2000))
def test_all_are_whole_where_there_is_room(sizes: list[int], spare: int) -> None:
    """Results that fit together are not cut."""
    assert shares(sizes, sum(sizes) + spare) == sizes


@given(SIZES, ROOMS)
def test_cut_ones_get_alike_and_smaller_ones_stay_whole(sizes: list[int], room: int) -> None:
    """What is cut gets the same share but for a token, and whatever is smaller than that is whole."""
    granted = shares(sizes, room)
    cut = [share for size, share in zip(sizes, granted, strict=True) if share < size]
    if cut:
        assert max(cut) - min(cut) <= 1
        assert max(granted) <= max(cut)


@given(SIZES, ROOMS)
def test_no_room_is_left_while_something_is_cut(sizes: list[int], room: int) -> None:
    """Where a result is cut, the room is used up to the last token."""
    granted = shares(sizes, room)
    if granted != sizes:
        assert sum(granted) >= room


def test_many_small_results_leave_the_room_to_the_large_one() -> None:
    """A small result takes no more than its size, however many there are."""
    assert shares([2] * 50 + [5000], 1000) == [2] * 50 + [900]


@pytest.mark.parametrize("window", [128, 2048, 8192, 131_072])
def test_room_for_results_leaves_a_summary_below_the_trigger(window: int) -> None:
    """Results of that size, what cannot be freed and a small summary stay below the next compaction."""
    budget = Budget(window)
    rest = window // 4
    room = room_for_results(budget, rest)
    assert 0 < room < budget.trigger - budget.occupied(rest)
    assert budget.occupied(rest + room) < budget.trigger


@pytest.mark.parametrize("room", [100, 333, 1000, 4000])
@pytest.mark.parametrize("text", [numbered(3000), "x " * 20_000, "一つ。" * 9000], ids=["log", "words", "japanese"])
def test_beginning_and_end_stand_word_for_word(text: str, room: int) -> None:
    """What is shown fits the room, and is the text's beginning and end, about equally long."""
    shown = shortened(text, room, WINDOW, words_in)
    assert words_in(shown) <= room
    head, _, tail = parts_of(shown)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 0 <= len(head) - len(tail) <= 1


@given(st.text(st.characters(exclude_characters="[]"), min_size=1, max_size=4000), st.integers(64, 400))
def test_any_text_is_cut_at_its_middle_alone(text: str, room: int) -> None:
    """Whatever the text, the number of characters that are said to be missing is that of those that are."""
    shown = shortened(text, room, WINDOW, len)
    head, note, tail = parts_of(shown)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert number_in(r"([\d,]+) characters are left out", note) == len(text) - len(head) - len(tail)
    assert len(shown) <= room or not head + tail


def test_explanation_names_sizes_and_what_to_do() -> None:
    """The model reads how large the result is, how much fits, which window it has, and how to read the rest."""
    text = numbered(3000)
    head, note, tail = parts_of(shortened(text, 500, WINDOW, words_in))
    assert number_in(r"whole result has ([\d,]+) tokens", note) == words_in(text)
    assert number_in(r"the ([\d,]+) that fit", note) == 500
    assert number_in(r"window of ([\d,]+)", note) == WINDOW
    assert number_in(r"([\d,]+) characters", note) == len(text) - len(head) - len(tail)
    assert "ask for a part of it" in note


def test_most_of_the_room_is_used() -> None:
    """In a room that is much larger than the explanation, at least two thirds are taken by the text itself."""
    head, _, tail = parts_of(shortened(numbered(20_000), 2000, WINDOW, words_in))
    assert words_in(head) + words_in(tail) > 2000 * 2 // 3


@pytest.mark.parametrize("room", [0, 1, 20, LEAST_SHARE])
def test_tiny_rooms_hold_the_explanation_alone(room: int) -> None:
    """Where not even the explanation fits, it stands alone: the model learns that something is missing."""
    text = numbered(3000)
    shown = shortened(text, room, WINDOW, words_in)
    head, note, tail = parts_of(shown)
    assert not head + tail
    assert shown == note
    assert number_in(r"([\d,]+) characters", note) == len(text)


def parts_of(shown: str) -> tuple[str, str, str]:
    """Return what stands before the explanation, the explanation, and what stands behind it."""
    found = re.fullmatch(r"(?s)(?:(.*)\n)?(\[[\d,]+ characters are left out here[^\]]*\])(?:\n(.*))?", shown)
    assert found
    return found[1] or "", found[2], found[3] or ""


def number_in(pattern: str, text: str) -> int:
    """Return the number that a pattern finds."""
    found = re.search(pattern, text)
    assert found
    return int(found[1].replace(",", ""))
