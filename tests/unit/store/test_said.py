"""The index of what was said in one conversation: which passages have a word, and what it weighs there."""

import pytest

from elbowroom.store.said import SaidIndex

SAID = ("the spare key", "the key and the keys", "the harbour", 'the "quoted" word')


@pytest.fixture
def index() -> SaidIndex:
    """An index of four passages, added in two parts."""
    made = SaidIndex()
    made.add(SAID[:2])
    made.add(SAID[2:])
    return made


@pytest.mark.parametrize(
    ("word", "most", "places"),
    [
        ("key", 4, [0, 1]),
        ("keys", 2, [0, 1]),
        ("key", 1, []),
        ("the", 4, [0, 1, 2, 3]),
        ("the", 3, []),
        ("zeppelin", 4, []),
        ('quoted"', 4, [3]),
    ],
)
def test_which_passages_have_a_word(index: SaidIndex, word: str, most: int, places: list[int]) -> None:
    """They are found by their stems; a word that more have than asked for counts as one that none has."""
    assert sorted(index.weights(word, most)) == places


def test_a_word_weighs_by_its_rarity_and_the_passage(index: SaidIndex) -> None:
    """A word that few have weighs more, and so does one that is said twice; weights add up to the order of a search."""
    rare, common = index.weights("harbour", 4), index.weights("key", 4)
    assert rare[2] > max(common.values()) > 0
    assert index.best(["harbour", "key"], 4)[0] == 2
    assert len(index.best(["harbour", "key"], 2)) == 2
