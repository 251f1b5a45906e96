"""Searching what has been remembered."""

import pytest

from elbowroom.context.memories import Memory, matching, one_line, same_words

TEXTS = (
    "The user's name is Zoë and she lives in Köln.",
    "Zoe drinks coffee without sugar.",
    "The sugar bowl is in the kitchen.",
    "我喜欢咖啡",
    "Она живёт в Москве",
)


def found(query: str) -> list[int]:
    """Return the places of the texts that are found, in their order; later ones are newer."""
    memories = [Memory(str(place), text, float(place)) for place, text in enumerate(TEXTS)]
    return [int(memory.id) for memory in matching(memories, query)]


@pytest.mark.parametrize(
    ("query", "places"),
    [
        ("zoe coffee", [1, 0]),
        ("ZOË", [1, 0]),
        ("koln", [0]),
        ("sugar", [2, 1]),
        ("sugar kitchen bowl", [2, 1]),
        ("coff", [1]),
        ("offee", []),
        ("in", [2, 0]),
        ("咖啡", [3]),
        ("ЖИВЕТ", [4]),
        ("kitchen?!", [2]),
        ("tea", []),
        ("tea sugar", [2, 1]),
        ("sugar sugar sugar name lives", [0, 2, 1]),
    ],
)
def test_words_are_found_whatever_their_case_and_accents(query: str, places: list[int]) -> None:
    """Most words first, then the newest; a word may be a beginning, a short one has to be whole."""
    assert found(query) == places


@pytest.mark.parametrize("query", ["", "   ", "?!", "..."])
def test_without_words_the_newest_come_first(query: str) -> None:
    """A query without words finds everything."""
    assert found(query) == [4, 3, 2, 1, 0]


def test_a_very_long_query_is_searched_by_its_first_words() -> None:
    """The fiftieth word counts, and what is far behind it does not."""
    assert found(" ".join(f"x{number}y" for number in range(49)) + " coffee") == [1]
    assert found(" ".join(f"x{number}y" for number in range(100_000)) + " coffee") == []


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("Likes tea.", "likes TEA", True),
        ("Zoë", "Zoe!", True),
        ("likes tea", "tea likes", False),
        ("likes tea", "likes teas", False),
        (":-)", ":-(", False),
        (":-)", ":-)", True),
        ("", "", True),
    ],
)
def test_same_words_are_the_same_fact(one: str, other: str, are_same: bool) -> None:
    """Case, accents and punctuation make no other fact; texts without words have to be equal."""
    assert same_words(one, other) is are_same


def test_one_line_keeps_all_but_white_space() -> None:
    """Line ends of every kind are spaces."""
    assert one_line("  a\r\n\n b\u2028c\u0085d\x1ce\tf ") == "a b c d e f"
