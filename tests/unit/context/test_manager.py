"""What the manager of one request counts and decides at its three checks."""

import pytest

from elbowroom.context.budget import Budget, Compact, Measure, Refuse, Send
from elbowroom.context.manager import AgentContextManager

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


def test_restarts_of_a_step_are_limited() -> None:
    """Three restarts for each step; all of them are counted for the request."""
    manager = AgentContextManager(W8K)
    assert [manager.may_restart() for _ in range(4)] == [True, True, True, False]
    manager.begin_step()
    assert manager.may_restart()
    assert manager.restarts == 4


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
