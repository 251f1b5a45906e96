"""How long a turn has room ahead of it before a conversation is compacted while the person reads."""

from collections.abc import Sequence

import pytest
from compacting import said, used

from elbowroom.agents.turn.background import long_turn
from elbowroom.context.budget import Budget
from elbowroom.context.transcript import Message, Summary, text_of

WINDOW = 8192
HALF_OF_ROOM = (6553 - 4096) // 2


def turn(length: int, *results: int) -> list[Message]:
    """Return a turn with a question and results of so many characters, and a long answer."""
    read = [used("read", {}, "r" * size, f"call{number}") for number, size in enumerate(results)]
    return [said("user", "q" * length), *(each for pair in read for each in pair), said("assistant", "a" * 5000)]


@pytest.mark.parametrize(
    ("turns", "least"),
    [
        ([], 0),
        ([turn(40)], 40),
        ([turn(40), turn(900), turn(50)], 900),
        ([turn(40, 300, 400), turn(100)], 740),
        ([*(turn(40) for _ in range(18)), turn(900)], 40),
        ([[Summary(role="user", content="s" * 900)], turn(40)], 40),
        ([turn(20_000)], HALF_OF_ROOM - 20),
    ],
)
def test_a_long_turn_is_one_that_nine_of_ten_do_not_exceed(turns: Sequence[Sequence[Message]], least: int) -> None:
    """It has the question, calls and results, no answer, and never more than half of what a compaction makes room."""
    messages = [message for each in turns for message in each]
    length = len(text_of(long_turn(messages, len, Budget(WINDOW))))
    assert least <= length <= min(HALF_OF_ROOM, least + 100)
