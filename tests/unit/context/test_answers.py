"""How long the answers of a conversation were, and the room that its next one gets for that."""

import pytest

from elbowroom.context.answers import NEWEST, Answers
from elbowroom.context.budget import Budget
from elbowroom.context.reuse import Talk

TALK, OTHER = Talk(("one", 1), (1, "one")), Talk((2,), (2,))


def test_answers_of_a_conversation() -> None:
    """Each conversation has its own answers of each model, found by any of its keys."""
    answers = Answers()
    for tokens in (90, 30, 60):
        answers.note(TALK, "desk/qwen", tokens)
    assert answers.of(Talk((), ("one",)), "desk/qwen") == (90, 30, 60)
    assert answers.of(Talk((), (1,)), "desk/qwen") == (90, 30, 60)
    assert answers.of(TALK, "desk/other") == ()
    assert answers.of(OTHER, "desk/qwen") == ()


def test_only_the_newest_answers_count() -> None:
    """What was written long ago is forgotten."""
    answers = Answers()
    for tokens in range(NEWEST + 10):
        answers.note(TALK, "desk/qwen", tokens)
    assert answers.of(TALK, "desk/qwen") == tuple(range(10, NEWEST + 10))


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
