"""The search for how much fits."""

from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.outputs.output import largest_fit


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 100))
def test_almost_all_that_fits_is_found_in_few_tries(most: int, room: int, weight: int) -> None:
    """What is found fits, no more than a sixteenth is missed, and trying is not done often."""
    tried: list[int] = []

    def share_at(number: int) -> float:
        assert 0 < number <= most
        tried.append(number)
        return number * weight / room if room else 2.0

    found = largest_fit(most, share_at)
    largest = min(most, room // weight)
    assert largest * 15 // 16 - 1 <= found <= largest
    assert len(tried) <= 20


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.integers(1, 2000))
def test_uneven_pieces_are_found_too(sizes: list[int], room: int) -> None:
    """Sizes may jump: as long as the first piece fits, something is found, and it fits."""
    found = largest_fit(len(sizes), lambda count: sum(sizes[:count]) / room)
    assert sum(sizes[:found]) <= room
    assert found or sizes[0] > room
