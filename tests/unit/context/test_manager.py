"""The manager's three checks, and how results that are too large share the room."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.budget import Budget, Compact, Measure, Refuse, Send, least_room
from elbowroom.context.divisible import NEAR
from elbowroom.context.manager import LEAST_SHARE, AgentContextManager, room_for_results, shares, shortened

W8K = Budget(8192)
"""Trigger at 6553, stop at 7372, force at 7782; a prompt of 4000 has a reserve of 1000."""


def test_before_a_request_it_decides_by_the_sizes() -> None:
    """Check 1: send, compact or refuse; with `auto` off nothing is compacted."""
    manager = AgentContextManager(W8K)
    assert manager.before_request(Measure(500, 300)) == Send()
    assert manager.before_request(Measure(6000, 300)) == Compact(4215)
    assert manager.before_request(Measure(30_000, 9000)) == Refuse(9000)
    assert AgentContextManager(W8K, auto=False).before_request(Measure(6000, 300)) == Send()


@pytest.mark.parametrize(
    ("sizes", "verdict"),
    [([1552], "fits"), ([1553], "restart"), ([4315], "restart"), ([4316], "too large"), ([2000, 2316], "too large")],
)
def test_tool_results_are_taken_below_the_trigger(sizes: list[int], verdict: str) -> None:
    """Check 2: from the trigger on it is a restart, as long as all of them fit beside what cannot be freed."""
    manager = AgentContextManager(W8K)
    assert manager.before_tool_results(4000 + sum(sizes), 500, sizes) == verdict


@pytest.mark.parametrize(
    ("generated", "verdict"),
    [(3371, "go on"), (3372, "stop at a good place"), (3781, "stop at a good place"), (3782, "stop now")],
)
def test_while_streaming_it_stops_in_time(generated: int, verdict: str) -> None:
    """Check 3: at 90 % at a good place, at 95 % at once."""
    manager = AgentContextManager(W8K)
    manager.sent(4000)
    assert manager.while_streaming(generated) == verdict


@pytest.mark.parametrize(("prompt", "verdict"), [(7781, "stop now"), (7782, "go on"), (8100, "go on")])
def test_an_answer_without_room_from_the_start_is_let_go_on(prompt: int, verdict: str) -> None:
    """It is not begun anew at its first word, where its prompt was sent although nothing of it could go."""
    manager = AgentContextManager(W8K)
    manager.sent(prompt)
    assert manager.while_streaming(5) == verdict


@pytest.mark.parametrize(
    ("answers", "prompt", "in_call", "verdict"),
    [
        ((), 6781, True, "stop now"),
        ((), 6782, True, "go on"),  # a usual answer has a thousand tokens until others are known
        ((), 6782, False, "stop now"),  # text can be stopped anywhere, and goes on
        ((400,) * 20, 7381, True, "stop now"),
        ((400,) * 20, 7382, True, "go on"),
    ],
)
def test_a_call_is_not_cut_where_nothing_can_go(
    answers: tuple[int, ...], prompt: int, verdict: str, *, in_call: bool
) -> None:
    """Half a call is of no use, and asked for again with the same prompt it would be cut again."""
    manager = AgentContextManager(replace(W8K, answers=answers))
    manager.sent(prompt)
    assert manager.while_streaming(7782 - prompt, in_call=in_call) == verdict


def test_restarts_of_a_request_are_limited() -> None:
    """Three restarts for a request, all its model calls together."""
    manager = AgentContextManager(W8K)
    assert [manager.may_restart() for _ in range(4)] == [True, True, True, False]
    assert not manager.can_restart
    assert manager.restarts == 3


def test_numbers_from_before_a_compaction_are_void() -> None:
    """C03: what was measured of the replaced conversation decides nothing any more."""
    manager = AgentContextManager(W8K)
    manager.sent(6000)
    assert manager.while_streaming(1800) == "stop now"
    manager.compacted(6000, 3000)
    assert manager.while_streaming(3000) == "go on"


def test_pruning_agent_that_brings_nothing_is_asked_twice_at_most() -> None:
    """C01, C05: two strikes, by hardly any gain or by a digest in place of its answer, and code alone cuts."""
    manager = AgentContextManager(W8K)
    manager.compacted(6000, 5950)
    assert manager.before_request(Measure(6000, 300)) == Compact(4215)
    manager.compacted(6000, 3000, "digest")
    assert manager.before_request(Measure(6000, 300)) == Compact(4215, asks_pruner=False)


def test_good_compactions_are_no_strikes_and_failed_ones_are() -> None:
    """A plan that frees a tenth or 1000 tokens costs nothing; a ladder that ends without a result is a strike."""
    manager = AgentContextManager(Budget(100_000))
    for _ in range(5):
        manager.compacted(80_000, 79_000)
        manager.compacted(800, 720, "retry")
    assert manager.strikes == 0
    manager.could_not_compact()
    manager.could_not_compact()
    assert manager.strikes == 2


def test_window_shrinks_but_never_grows() -> None:
    """C06: an engine's smaller window is believed at once, a larger one not within the request."""
    manager = AgentContextManager(Budget(8192, 0.7, 500))
    manager.learn_window(4096)
    assert manager.budget == Budget(4096, 0.7, 500)
    manager.learn_window(65_536)
    assert manager.budget.window == 4096


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


@pytest.mark.parametrize("window", [128, 4096, 8192, 131_072])
def test_room_for_results_is_never_negative_and_goes_beyond_a_trigger_that_is_passed(window: int) -> None:
    """Whatever cannot be freed, results have what is free of the window beside a reply and a summary.

    At least they have half of it.
    """
    budget = Budget(window)
    for rest in range(0, window + window // 4, max(1, window // 64)):
        for now in (None, rest, rest + window // 8):
            assert 0 <= room_for_results(budget, rest, now=now) <= max(0, window - budget.occupied(rest))
        if budget.trigger <= budget.occupied(rest) < window:
            free = window - budget.occupied(rest)
            for carried in (0, window // 32, window // 8):
                summary = least_room(budget) + carried
                assert room_for_results(budget, rest, carried=carried) == max(free - summary, free - free // 2)


@pytest.mark.parametrize("room", [100, 333, 1000, 4000])
@pytest.mark.parametrize("text", [numbered(3000), "x " * 20_000, "一つ。" * 9000], ids=["log", "words", "japanese"])
def test_beginning_and_end_stand_word_for_word(text: str, room: int) -> None:
    """What is shown fits the room, and is the text's beginning and end, about twice as much of the one."""
    shown = shortened(text, room, WINDOW, words_in)
    assert words_in(shown) <= room
    head, _, tail = parts_of(shown)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert abs(len(head) - 2 * len(tail)) <= 3 * NEAR


@given(st.text(st.characters(exclude_characters="[]"), min_size=1, max_size=4000), st.integers(64, 400))
def test_any_text_is_cut_at_its_middle_alone(text: str, room: int) -> None:
    """Whatever the text, the number of characters that are said to be missing is that of those that are."""
    shown = shortened(text, room, WINDOW, len)
    if len(text) <= room:
        assert shown == text
        return
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
