"""How far a pruning agent has come, in words that fit a status line."""

import pytest

from elbowroom.context.compaction.order import Progress

LONGEST_LINE = 95
"""Characters of a status that Open WebUI shows before it cuts it."""


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(), ""),
        (Progress(part=2, parts=5), "part 2 of 5"),
        (Progress(attempt=2), "attempt 2"),
        (Progress(written=1200, limit=4048), "1,200 of at most 4,048 tokens"),
        (Progress(2, 1, 3, 20, 500), "part 1 of 3, attempt 2, 20 of at most 500 tokens"),
    ],
)
def test_words(progress: Progress, words: str) -> None:
    """Only what is worth telling is told."""
    assert progress.in_words == words


def test_words_fit_the_line() -> None:
    """The longest that can come in practice is not cut."""
    longest = Progress(2, 99, 100, 3999, 4048).in_words
    assert len(f"Compacting conversation history... ({longest})") <= LONGEST_LINE
