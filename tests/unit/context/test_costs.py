"""Which way to make room costs a session least: a table of engines, and of what each way does to a prompt."""

import pytest

from elbowroom.context.costs import ORDER, Action, Engine, Way, cheapest, compaction, seconds_left
from elbowroom.context.effects import Progress

SLOW, FAST = Engine(300, 20, plan=272), Engine(1500, 80, plan=272)
STEP = 2400


@pytest.mark.parametrize(
    ("way", "engine", "read", "room"),
    [
        ("mask", SLOW, 300, 5000),  # next to nothing is read
        ("mask", SLOW, 300, 0),  # there is room for one request more, at no cost
        ("mask", FAST, 300, 100),
        ("plan", SLOW, 9000, 2000),  # much stays behind the first mask, for one request
        ("mask", SLOW, 9000, 30_000),  # the same for twelve requests
        ("plan", FAST, 30_000, 1000),
    ],
)
def test_masks_and_a_plan(way: Way, engine: Engine, read: int, room: int) -> None:
    """Masks are chosen where they take less time for each request until the next time, else a compaction by plan."""
    mask = Action("mask", read, 0, room)
    plan = compaction(engine, for_summary=1500, room=4000, is_planned=True)
    assert cheapest((mask, plan), engine, STEP).way == way


def test_seconds() -> None:
    """What the engine reads and what the pruning agent writes take their time one after the other."""
    plan = compaction(Engine(300, 20, plan=200), for_summary=900, room=4000, is_planned=True)
    assert plan == Action("plan", 900 + ORDER, 200, 4000)
    assert plan.seconds(Engine(300, 20)) == pytest.approx(15)
    assert compaction(SLOW, for_summary=900, room=4000, is_planned=False) == Action("code", 900, 0, 4000)


@pytest.mark.parametrize(("seconds", "read", "most"), [(60, 0, 1200), (60, 600, 1160), (30, 6000, 200), (10, 6000, 0)])
def test_what_an_engine_writes_in_a_time(seconds: float, read: int, most: int) -> None:
    """What it reads in the same time is taken off."""
    assert SLOW.can_write(seconds, read) == most


def test_equal_costs() -> None:
    """Of ways that cost the same the first is taken."""
    ways = (Action("mask", 100, 0, 1000), Action("code", 100, 0, 1000))
    assert cheapest(ways, SLOW, STEP).way == "mask"
    assert cheapest(ways[::-1], SLOW, STEP).way == "code"


def test_a_conversation_without_steps() -> None:
    """A step of no tokens divides by nothing."""
    assert cheapest([Action("mask", 1, 0, 0)], SLOW, 0).way == "mask"


@pytest.mark.parametrize(
    ("written", "limit", "left"),
    [
        (0, 1000, 16),  # two seconds for the order, 272 tokens at 20 a second
        (72, 1000, 10),
        (240, 1000, 0),  # a moment
        (500, 1000, 0),  # it is longer than plans are
        (100, 200, 5),
    ],
)
def test_time_that_is_left(written: int, limit: int, left: int) -> None:
    """A plan takes as long as those before, by what is written of it."""
    assert seconds_left(SLOW, written, limit) == left
    assert seconds_left(Engine(300, 20), written, limit) == 0
    assert Progress(written=written, limit=limit, seconds_left=left).in_words.endswith("s left") == bool(left)
