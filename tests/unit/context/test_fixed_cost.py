"""What no compaction can free: its sums, and what is said about it."""

import pytest

from elbowroom.context.budget import (
    Budget,
    FixedCost,
    Measure,
    Refuse,
    Send,
    items_of,
    notice_of,
    plan_step,
    refusal_of,
)

LARGEST = (("create_calendar_event", 412), ("update_automation", 398), ("create_automation", 377))
TOOLS = (("get_current_timestamp", 61), *LARGEST, *((f"tool_{number}", 160) for number in range(32)))
SLIM = 'or set client_tools = "slim" (saves about 5 tokens).'
LARGER_WINDOW = "Load the model with a larger context length"


def hello(window: int) -> FixedCost:
    """Return the fixed cost of a first "hello" with 36 tools, which take most of a prompt of 6621 tokens."""
    return FixedCost(window, Budget(window).reserve(6621), system=219, tools=TOOLS, pinned=34)


def test_the_sums_are_those_of_the_parts() -> None:
    """A first "hello" with the tools of a large client fills 81 % of a window of 8192, the room for the reply aside."""
    cost = hello(8192)
    assert (cost.all_tools, cost.prompt, cost.total) == (6368, 6621, 7621)
    assert f"{cost.prompt / cost.window:.0%}" == "81%"
    assert cost.share == 7621 / 8192


def test_the_notice_says_what_takes_how_much_and_what_helps() -> None:
    """Numbers, share, the largest items with the largest tools among them, and every remedy that applies."""
    assert notice_of(hello(8192), slim_saves=2400) == (
        "7621 of this model's 8192 tokens (93%) are taken before the conversation begins: 6368 by 36 tools (the "
        "largest: create_calendar_event 412, update_automation 398, create_automation 377), 1000 by room for the "
        "reply, 219 by the system message, 34 by messages that have to stay. Load the model with a larger context "
        'length, switch tools off in the client, or set client_tools = "slim" (saves about 2400 tokens).'
    )


def test_the_refusal_says_what_takes_how_much_and_what_helps() -> None:
    """It begins as the errors do that clients know, and leaves out the reply: the prompt alone is too long."""
    assert refusal_of(hello(4096), slim_saves=2400) == (
        "This model's maximum context length is 4096 tokens. The request needs 6621, however short the conversation "
        "is made: 6368 by 36 tools (the largest: create_calendar_event 412, update_automation 398, create_automation "
        "377), 219 by the system message, 34 by messages that have to stay. Load the model with a larger context "
        'length, switch tools off in the client, or set client_tools = "slim" (saves about 2400 tokens).'
    )


@pytest.mark.parametrize("window", [4096, 8192, 16384, 32768, 131072])
def test_the_notice_comes_where_the_decision_says_it_is_tight(window: int) -> None:
    """The words and the decision about the request draw the same line."""
    cost = hello(window)
    match plan_step(Measure(cost.prompt, cost.prompt), Budget(window)):
        case Send(is_tight):
            assert (notice_of(cost) is not None) == is_tight
        case other:
            assert isinstance(other, Refuse)
            assert cost.prompt >= window


@pytest.mark.parametrize(("system", "is_tight"), [(499, False), (500, False), (501, True)])
def test_half_the_window_is_the_line(system: int, is_tight: bool) -> None:
    """Exactly half is no reason for a notice, one token more is."""
    assert (notice_of(FixedCost(2000, reserve=500, system=system)) is not None) == is_tight


@pytest.mark.parametrize(
    ("cost", "items"),
    [
        (FixedCost(1000), []),
        (FixedCost(1000, tools=(("clock", 7),)), ["7 by the tool clock"]),
        (
            FixedCost(1000, 50, 60, (("clock", 3), ("read", 9), ("list", 3)), 60),
            [
                "60 by the system message",
                "60 by messages that have to stay",
                "50 by room for the reply",
                "15 by 3 tools (read 9, clock 3, list 3)",
            ],
        ),
    ],
)
def test_items_are_named_the_largest_first(cost: FixedCost, items: list[str]) -> None:
    """Parts that take nothing are not named, and equal ones keep their order."""
    assert items_of(cost) == items


@pytest.mark.parametrize(
    ("cost", "slim_saves", "remedy"),
    [
        (FixedCost(100, system=90), 0, f"{LARGER_WINDOW}, or shorten the system message."),
        (FixedCost(100, pinned=90), 0, f"{LARGER_WINDOW}, or send less text at once."),
        (FixedCost(100, reserve=90), 0, f"{LARGER_WINDOW}."),
        (FixedCost(100, tools=(("a", 90),)), 0, f"{LARGER_WINDOW}, or switch tools off in the client."),
        (FixedCost(100, system=90), 5, f"{LARGER_WINDOW}, or shorten the system message."),
        (
            FixedCost(100, system=50, tools=(("a", 40),)),
            5,
            f"{LARGER_WINDOW}, shorten the system message, switch tools off in the client, {SLIM}",
        ),
    ],
)
def test_only_remedies_that_help_are_named(cost: FixedCost, slim_saves: int, remedy: str) -> None:
    """What is not there cannot be shortened, and slim tools are suggested only where they save something."""
    assert (notice_of(cost, slim_saves=slim_saves) or "").endswith(f". {remedy}")
    assert refusal_of(cost, slim_saves=slim_saves).endswith(f". {remedy}")
