"""How the window is divided: reserve, trigger, target, stops and the upstream's limit, in tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.budget import Budget

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


@pytest.mark.parametrize(("window", "threshold"), [(0, 0.8), (-1, 0.8), (8192, 0.5), (8192, 0.9), (8192, 1.5)])
def test_senseless_budget_is_refused(window: int, threshold: float) -> None:
    """An unknown window given as 0, or a trigger below the target or above the stop, is an error at once."""
    with pytest.raises(ValueError, match="has to"):
        Budget(window, threshold)
