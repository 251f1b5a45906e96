"""How the window is divided, and the decision before a request."""

from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.budget import (
    Budget,
    Compact,
    Decision,
    Measure,
    Refuse,
    Send,
    least_gain,
    least_room,
    plan_step,
)

WINDOWS = st.integers(1024, 1_048_576)
THRESHOLDS = st.integers(60, 88).map(lambda percent: percent / 100)
LIMITS = st.none() | st.integers(-1, 2_000_000)
BUDGETS = st.builds(Budget, WINDOWS, THRESHOLDS, LIMITS)
PROMPTS = st.integers(0, 2_000_000)


@pytest.mark.parametrize(
    ("window", "max_tokens", "prompt", "reserve"),
    [
        (8192, None, 192, 1600),  # a fifth of what is left
        (8192, None, 6000, 1000),  # at least 1000
        (8192, None, 20_000, 1000),  # also beside a prompt above the window
        (8192, 1500, 192, 1500),  # what the client asks for
        (8192, 1, 192, 1000),
        (8192, 1_000_000, 192, 2048),  # at most a quarter
        (1024, None, 0, 204),
        (1024, None, 1000, 128),  # at least an eighth where 1000 would be more
        (1024, 500, 0, 256),
        (1_000_000, None, 0, 200_000),
        (1_000_000, None, 999_000, 1000),
        (1_000_000, 1_000_000, 0, 250_000),
        (8192, -1, 192, 1600),  # no limit, in llama.cpp's words
        (8192, 0, 192, 1600),
    ],
)
def test_reserve(window: int, max_tokens: int | None, prompt: int, reserve: int) -> None:
    """The reserve is what the client asks for or a fifth of what is left, within its bounds."""
    assert Budget(window, max_tokens=max_tokens).reserve(prompt) == reserve


@given(BUDGETS, PROMPTS)
def test_reserve_stays_within_its_bounds(budget: Budget, prompt: int) -> None:
    """Whatever the client asks and however long the prompt: min(1000, window / 8) to window / 4."""
    assert min(1000, budget.window // 8) <= budget.reserve(prompt) <= budget.window // 4


@given(BUDGETS, PROMPTS, st.integers(0, 5000))
def test_longer_prompt_never_occupies_less(budget: Budget, prompt: int, more: int) -> None:
    """The reserve shrinks more slowly than the prompt grows."""
    assert budget.occupied(prompt) <= budget.occupied(prompt + more)


@pytest.mark.parametrize(
    ("window", "trigger", "stop", "force"),
    [(1024, 819, 921, 972), (8192, 6553, 7372, 7782), (1_000_000, 800_000, 900_000, 950_000)],
)
def test_marks_of_the_window(window: int, trigger: int, stop: int, force: int) -> None:
    """Trigger at 80 %, stop at 90 %, force at 95 %."""
    budget = Budget(window)
    assert (budget.trigger, budget.stop_at, budget.force_at) == (trigger, stop, force)


@given(WINDOWS, st.integers(60, 88))
def test_trigger_is_the_exact_share(window: int, percent: int) -> None:
    """Floating point costs no token: 70 % of 90 is 63."""
    assert Budget(window, percent / 100).trigger == window * percent // 100


def test_target_is_half_the_window_or_midway_from_the_fixed_cost() -> None:
    """Half of the window while the fixed cost allows it, then midway from it to the trigger."""
    budget = Budget(10_000)
    assert budget.target(0) == 5000
    assert budget.target(2000) == 5000
    assert budget.target(4000) == 6000
    assert budget.target(7000) == 7500


@given(BUDGETS, st.data())
def test_target_lies_between_fixed_cost_and_trigger(budget: Budget, data: st.DataObject) -> None:
    """Where the fixed cost is below the trigger, the target is reachable and the next turn quiet."""
    fixed = data.draw(st.integers(0, budget.trigger - 1))
    assert fixed <= budget.target(fixed) < budget.trigger < budget.stop_at < budget.force_at < budget.window


@given(BUDGETS, PROMPTS, st.integers(0, 5000))
def test_higher_fixed_cost_never_lowers_the_target(budget: Budget, fixed: int, more: int) -> None:
    """The target rises with what cannot be freed."""
    assert budget.target(fixed) <= budget.target(fixed + more)


@given(BUDGETS, PROMPTS)
def test_stopped_answer_goes_on_with_most_of_the_room(budget: Budget, fixed: int) -> None:
    """At least two thirds of what is free below the stop are left for it; what cannot be freed always fits."""
    target = budget.target_in_answer(fixed)
    assert target >= budget.occupied(fixed)
    free = max(0, budget.stop_at - fixed)
    assert target <= budget.occupied(fixed + free // 3)


@given(BUDGETS, PROMPTS)
def test_reply_limit_never_leaves_the_window(budget: Budget, prompt: int) -> None:
    """The upstream's max_tokens is positive, within the window, and not more than the client asked for."""
    limit = budget.reply_limit(prompt)
    assert 1 <= limit <= max(1, budget.window - prompt)
    if budget.max_tokens is not None and budget.max_tokens > 0:
        assert limit <= budget.max_tokens


def test_reply_limit_is_what_is_left() -> None:
    """Without a wish of the client the reply may fill the window; its wish is cut to that."""
    assert Budget(8192).reply_limit(8000) == 192
    assert Budget(8192, max_tokens=1000).reply_limit(8000) == 192
    assert Budget(8192, max_tokens=100).reply_limit(8000) == 100
    assert Budget(8192, max_tokens=-1).reply_limit(8000) == 192


@pytest.mark.parametrize(("window", "threshold"), [(0, 0.8), (-1, 0.8), (8192, 0.29), (8192, 0.95), (8192, 1.5)])
def test_senseless_budget_is_refused(window: int, threshold: float) -> None:
    """An unknown window given as 0, or a trigger too early or too late for an answer, is an error at once."""
    with pytest.raises(ValueError, match="has to"):
        Budget(window, threshold)


@pytest.mark.parametrize(
    ("threshold", "target", "stop_at"),
    [
        (0.3, 2500, 9000),
        (0.48, 4000, 9000),
        (0.6, 5000, 9000),
        (0.8, 5000, 9000),
        (0.88, 5000, 9000),
        (0.9, 5000, 9250),
        (0.93, 5000, 9400),
    ],
)
def test_target_and_stop_leave_room_around_the_trigger(threshold: float, target: int, stop_at: int) -> None:
    """An early trigger frees a sixth of itself at least, and an answer may go on for a while after a late one."""
    budget = Budget(10_000, threshold)
    assert (budget.target(0), budget.stop_at, budget.force_at) == (target, stop_at, 9500)
    assert budget.target(0) < budget.trigger < budget.stop_at < budget.force_at


def test_fixed_cost_past_an_early_trigger_waits_for_the_usual_one() -> None:
    """Tools that fill a third of the window neither compact each prompt nor leave the summary to code alone."""
    early = Budget(10_000, 0.3)
    assert plan_step(Measure(5000, 3500), early) == plan_step(Measure(5000, 3500), Budget(10_000))
    assert plan_step(Measure(7500, 3500), early) == plan_step(Measure(7500, 3500), Budget(10_000))
    assert plan_step(Measure(7500, 3500), early) == Compact(6400, asks_pruner=True)
    assert plan_step(Measure(4000, 500), early) == Compact(2700)


W8K = Budget(8192)
RANKS: dict[type[Decision], int] = {Send: 0, Compact: 1, Refuse: 2}


@st.composite
def situations(draw: st.DrawFn) -> tuple[Budget, Measure]:
    """Any budget with any prompt up to twice the window, counted or estimated."""
    budget = draw(BUDGETS)
    prompt = draw(st.integers(0, 2 * budget.window))
    fixed = draw(st.integers(0, prompt))
    return budget, Measure(prompt, fixed, draw(st.none() | st.integers(0, fixed)))


@pytest.mark.parametrize(
    ("measure", "decision"),
    [
        (Measure(500, 300), Send()),
        (Measure(5500, 300), Send()),
        (Measure(5552, 300), Send()),  # with its reserve one token below the trigger of 6553
        (Measure(5553, 300), Compact(4215)),  # at the trigger: midway to it from 1878
        (Measure(20_000, 300), Compact(4215)),
        (Measure(20_000, 4000), Compact(5776, is_tight=True)),  # midway from 5000 to 6553
        (
            Measure(6000, 5400),
            Compact(6553, asks_pruner=False, is_tight=True),
        ),  # no room for a summary, only for what code carries
        (Measure(6000, 5553), Send(is_tight=True)),  # fixed cost at the trigger: the window is the limit
        (Measure(7192, 5600), Send(is_tight=True)),  # the reply's reserve just fits
        (Measure(7193, 5600), Compact(8192, asks_pruner=False, is_tight=True)),  # it does not: code cuts
        (Measure(9000, 5600), Compact(8192, asks_pruner=False, is_tight=True)),
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


@pytest.mark.parametrize(
    ("measure", "auto", "decision"),
    [
        (Measure(8192, 8192, 8191), True, Send(is_tight=True, is_doubtful=True)),  # nothing can go, and it may fit
        (Measure(8192, 8192, 8192), True, Refuse(8192)),
        (Measure(9900, 9900, 7000), True, Send(is_tight=True, is_doubtful=True)),
        (
            Measure(20_000, 9900, 7000),
            True,
            Compact(10_900, asks_pruner=False, is_tight=True),
        ),  # what can go goes first
        (Measure(20_000, 9900, 8192), True, Refuse(9900)),
        (Measure(20_000, 300, 8192), True, Compact(4215)),  # no matter what the rest has at least
        (Measure(8191, 8191, 7000), True, Send(is_tight=True)),  # it surely fits
        (Measure(9000, 300, 8000), False, Send(is_doubtful=True)),
        (Measure(9000, 300, 8192), False, Refuse(9000)),
        (Measure(8191, 300, 7000), False, Send()),
    ],
)
def test_what_may_fit_is_not_refused(measure: Measure, decision: Decision, *, auto: bool) -> None:
    """An estimate refuses only what by its fewest tokens does not fit; all that can be freed is freed before."""
    assert plan_step(measure, W8K, auto=auto) == decision


def test_tool_schemas_above_the_trigger_never_call_a_pruning_agent() -> None:
    """C02: 29,000 tokens of tools in a window of 32,768."""
    assert plan_step(Measure(29_500, 29_100), Budget(32_768)) == Send(is_tight=True)
    assert plan_step(Measure(33_000, 29_100), Budget(32_768)) == Compact(32_768, asks_pruner=False, is_tight=True)
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
    least = measure.least if measure.least is not None else measure.fixed if auto else measure.prompt
    match plan_step(measure, budget, auto=auto):
        case Send(is_doubtful=False):
            assert measure.prompt < budget.window
        case Send():
            assert least < budget.window <= measure.prompt
            assert measure.fixed == measure.prompt or not auto
        case Compact(target):
            assert auto
            assert min(least, measure.fixed) < budget.window
            assert budget.occupied(measure.fixed) <= target <= budget.occupied(measure.prompt)
        case Refuse(needed):
            assert needed >= budget.window
            assert least >= budget.window
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
        assert isinstance(plan_step(replace(measure, prompt=after), budget), Send)


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
    longer = replace(measure, prompt=measure.prompt + more)
    first, second = (plan_step(each, budget, auto=auto) for each in (measure, longer))
    assert RANKS[type(first)] <= RANKS[type(second)]


@given(situations())
def test_larger_client_limit_never_makes_it_easier(situation: tuple[Budget, Measure]) -> None:
    """A client that asks for a longer reply gets its history compacted no later."""
    budget, measure = situation
    asked = [Budget(budget.window, budget.threshold, limit) for limit in (1, 500, 1500, 10_000, 10_000_000)]
    occupied = [each.occupied(measure.prompt) for each in asked]
    assert occupied == sorted(occupied)


@given(window=st.integers(1000, 200_000), data=st.data())
def test_client_can_have_its_compactions_early_but_not_in_vain(window: int, data: st.DataObject) -> None:
    """A compaction that a client wants frees something worth it, has room for a summary, and is not wanted again."""
    budget = Budget(window)
    prompt = data.draw(st.integers(1, window - 1))
    fixed = data.draw(st.integers(1, prompt))
    at = data.draw(st.integers(1, prompt))
    target = budget.target_below(at, prompt, fixed)
    if target is None:
        return
    assert budget.occupied(fixed) + least_room(budget) <= target <= budget.occupied(prompt) - least_gain(prompt)
    assert target <= budget.target(budget.occupied(fixed))
    compacted = bisect_right(range(target + 1), target, key=budget.occupied) - 1
    again = budget.target_below(at, max(compacted, fixed), fixed) if compacted >= at else None
    assert again is None


def test_no_compaction_is_wanted_where_a_summary_has_no_room() -> None:
    """A prompt whose fixed part nearly reaches the trigger stays as it is."""
    assert Budget(1000).target_below(1, 748, 674) is None
