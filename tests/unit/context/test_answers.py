"""How long the answers of a conversation were, and the room that its next one gets for that."""

import pytest

from elbowroom.context.answers import NEWEST, Answers, Given
from elbowroom.context.budget import Budget
from elbowroom.context.reuse import Talk

TALK, OTHER = Talk(("one", 1), (1, "one")), Talk((2,), (2,))


def test_answers_of_a_conversation() -> None:
    """Each conversation has its own answers of each model, found by any of its keys."""
    answers = Answers()
    for tokens in (90, 30, 60):
        answers.note(TALK, "desk/qwen", tokens)
    assert answers.of(Talk((), ("one",)), "desk/qwen").sizes == (90, 30, 60)
    assert answers.of(Talk((), (1,)), "desk/qwen").sizes == (90, 30, 60)
    assert answers.of(TALK, "desk/other") == Given()
    assert answers.of(OTHER, "desk/qwen") == Given()


def test_only_the_newest_answers_count() -> None:
    """What was written long ago is forgotten."""
    answers = Answers()
    for tokens in range(NEWEST + 10):
        answers.note(TALK, "desk/qwen", tokens)
    assert answers.of(TALK, "desk/qwen").sizes == tuple(range(10, NEWEST + 10))


@pytest.mark.parametrize(
    ("times", "pause"),
    [
        ([], None),
        ([(0, 5)], None),  # nobody has read it yet
        ([(0, 5), (45, 50)], 40),
        ([(0, 5), (45, 50), (70, 80), (380, 390)], 40),  # who went away once reads no longer for that
        ([(None, 5), (6, 7), (None, 9), (10, 12), (42, 43)], None),  # mostly a program asks, at once
        ([(0, 5), (35, 36), (None, 50), (None, 60), (90, 91)], 30),  # between the calls of an agent nobody reads
    ],
)
def test_how_long_an_answer_is_read(times: list[tuple[float | None, float]], pause: float | None) -> None:
    """The usual pause is from the end of an answer to the next message of the person, as long as half of them are."""
    answers = Answers()
    for asked, ended in times:
        answers.note(TALK, "desk/qwen", 100, asked, ended)
    assert answers.of(TALK, "desk/qwen").pause == pause


@pytest.mark.parametrize(
    ("answers", "max_tokens", "reserve"),
    [
        ((), 2048, 2048),
        ((100,), 2048, 2048),  # one answer tells little
        ((100,) * 8, 2048, 2048),
        ((100,) * 9, 2048, 100),
        ((*[100] * 8, 1500), 2048, 1500),
        ((*[100] * 18, 1500), 2048, 100),  # a rare long one goes on after a compaction
        ((*[100] * 17, 1500, 1500), 2048, 1500),
        ((3000,) * 9, 2048, 2048),  # never more than the client takes
        ((3000,) * 9, None, 3000),
        ((6000,) * 9, None, 4096),  # nor than a quarter of the window
        ((9000,) * 9, None, 1676),  # what no compaction leaves room for is not kept room for
        ((50,) * 9, 20, 20),
        ((0,) * 20, None, 1),
    ],
)
def test_reserve(answers: tuple[int, ...], max_tokens: int | None, reserve: int) -> None:
    """The reply has the room that nine of ten answers took, the unknown next one counted as one of them."""
    assert Budget(16_384, max_tokens=max_tokens, answers=answers).reserve(8000) == reserve
