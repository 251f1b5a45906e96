"""What happens before a request: send, compact or refuse, by the sizes of the prompt alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.budget import Budget, Compact, Decision, Measure, Refuse, Send, plan_step

W8K = Budget(8192)
BUDGETS = st.builds(
    Budget,
    st.integers(1024, 1_048_576),
    st.integers(60, 88).map(lambda percent: percent / 100),
    st.none() | st.integers(-1, 2_000_000),
)
RANKS: dict[type[Decision], int] = {Send: 0, Compact: 1, Refuse: 2}


@st.composite
def situations(draw: st.DrawFn) -> tuple[Budget, Measure]:
    """Any budget with any prompt up to twice the window."""
    budget = draw(BUDGETS)
    prompt = draw(st.integers(0, 2 * budget.window))
    return budget, Measure(prompt, draw(st.integers(0, prompt)))


@pytest.mark.parametrize(
    ("measure", "decision"),
    [
        (Measure(500, 300), Send()),
        (Measure(5500, 300), Send()),
        (Measure(5552, 300), Send()),  # with its reserve one token below the trigger of 6553
        (Measure(5553, 300), Compact(4215)),  # at the trigger: midway to it from 1878
        (Measure(20_000, 300), Compact(4215)),
        (Measure(20_000, 4000), Compact(5776, is_tight=True)),  # midway from 5000 to 6553
        (Measure(6000, 5400), Compact(6476, asks_pruner=False, is_tight=True)),  # no room for a summary
        (Measure(6000, 5553), Send(is_tight=True)),  # fixed cost at the trigger: the window is the limit
        (Measure(7192, 5600), Send(is_tight=True)),  # the reply's reserve just fits
        (Measure(7193, 5600), Compact(7396, asks_pruner=False, is_tight=True)),  # it does not: code cuts
        (Measure(9000, 5600), Compact(7396, asks_pruner=False, is_tight=True)),
        (Measure(8100, 8100), Send(is_tight=True)),  # nothing to free, and it fits
        (Measure(8101, 8100), Compact(9100, asks_pruner=False, is_tight=True)),
        (Measure(8191, 8191), Send(is_tight=True)),
        (Measure(8192, 8192), Refuse(8192)),  # no room for a single token
        (Measure(30_000, 9000), Refuse(9000)),
    ],
)
def test_decisions_in_a_window_of_8192(measure: Measure, decision: Decision) -> None:
    """Every border between sending, compacting with and without a pruning agent, and refusing."""
    assert plan_step(measure, W8K) == decision


@pytest.mark.parametrize(
    ("measure", "decision"),
    [
        (Measure(500, 300), Send()),
        (Measure(8191, 300), Send()),
        (Measure(8192, 300), Refuse(8192)),
        (Measure(8191, 8191), Send(is_tight=True)),
    ],
)
def test_without_auto_nothing_is_compacted(measure: Measure, decision: Decision) -> None:
    """What fits is sent however full the window is; what does not is refused with the size of the whole."""
    assert plan_step(measure, W8K, auto=False) == decision


def test_tool_schemas_above_the_trigger_never_call_a_pruning_agent() -> None:
    """C02: 29,000 tokens of tools in a window of 32,768."""
    assert plan_step(Measure(29_500, 29_100), Budget(32_768)) == Send(is_tight=True)
    assert plan_step(Measure(33_000, 29_100), Budget(32_768)) == Compact(31_434, asks_pruner=False, is_tight=True)
    assert plan_step(Measure(34_000, 33_000), Budget(32_768)) == Refuse(33_000)


def test_fixed_cost_past_half_the_window_is_told() -> None:
    """Exactly half is not past it; the reserve counts."""
    assert plan_step(Measure(3073, 3073), W8K) == Send()
    assert plan_step(Measure(3074, 3074), W8K) == Send(is_tight=True)


def test_fixed_cost_measured_above_the_prompt_is_the_prompt() -> None:
    """A measure that contradicts itself refuses nothing that fits."""
    assert plan_step(Measure(8000, 9000), W8K) == Send(is_tight=True)


@given(situations(), st.booleans())
def test_nothing_that_overflows_is_sent_and_nothing_that_could_fit_is_refused(
    situation: tuple[Budget, Measure], auto: bool
) -> None:
    """C19: for all inputs there is a decision, and it keeps the window."""
    budget, measure = situation
    match plan_step(measure, budget, auto=auto):
        case Send():
            assert measure.prompt < budget.window
        case Compact(target):
            assert auto
            assert measure.fixed < budget.window
            assert budget.occupied(measure.fixed) <= target <= budget.occupied(measure.prompt)
        case Refuse(needed):
            assert needed >= budget.window
            assert needed == (measure.fixed if auto else measure.prompt)


@given(situations(), st.data())
def test_compacted_to_the_target_is_sent_at_once(situation: tuple[Budget, Measure], data: st.DataObject) -> None:
    """C05: a prompt at or below the target needs no second compaction, whichever regime asked for the first."""
    budget, measure = situation
    decision = plan_step(measure, budget)
    if not isinstance(decision, Compact):
        return
    after = data.draw(st.integers(measure.fixed, measure.prompt))
    if budget.occupied(after) <= min(decision.target, budget.window):
        assert isinstance(plan_step(Measure(after, measure.fixed), budget), Send)


@given(situations())
def test_pruning_agent_is_asked_only_where_a_summary_has_room(situation: tuple[Budget, Measure]) -> None:
    """No model call where the fixed cost leaves no room below the target."""
    budget, measure = situation
    decision = plan_step(measure, budget)
    if isinstance(decision, Compact) and decision.asks_pruner:
        room = decision.target - budget.occupied(measure.fixed)
        assert room >= min(200, budget.window // 16)
        assert decision.target < budget.trigger


@given(situations(), st.integers(0, 5000), st.booleans())
def test_longer_history_never_makes_it_easier(situation: tuple[Budget, Measure], more: int, auto: bool) -> None:
    """With the same fixed cost, a longer prompt is sent, compacted, refused in this order."""
    budget, measure = situation
    longer = Measure(measure.prompt + more, measure.fixed)
    first, second = (plan_step(each, budget, auto=auto) for each in (measure, longer))
    assert RANKS[type(first)] <= RANKS[type(second)]


@given(situations())
def test_larger_client_limit_never_makes_it_easier(situation: tuple[Budget, Measure]) -> None:
    """A client that asks for a longer reply gets its history compacted no later."""
    budget, measure = situation
    asked = [Budget(budget.window, budget.threshold, limit) for limit in (1, 500, 1500, 10_000, 10_000_000)]
    occupied = [each.occupied(measure.prompt) for each in asked]
    assert occupied == sorted(occupied)
