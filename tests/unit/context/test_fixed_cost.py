"""The words about a fixed cost: what takes the room, and what a person can do."""

from dataclasses import replace

import pytest

from elbowroom.context.budget import Budget, Measure, Refuse, Send, plan_step
from elbowroom.context.fixed_cost import FixedCost, items_of, notice_of, refusal_of, short_notice_of

LONGEST_LINE = 95  # characters that Open WebUI shows of a status

LARGEST = (("create_calendar_event", 412), ("update_automation", 398), ("create_automation", 377))
TOOLS = (("get_current_timestamp", 61), *LARGEST, *((f"tool_{number}", 160) for number in range(32)))
SLIM = 'or set client_tools = "slim" (saves about 5 tokens).'
LARGER_WINDOW = "Load the model with a larger context length"
BY_NAME = (
    'set client_tools = "search" under [server] of the settings, or of the agent (the model is told of tools by name, '
    "and looks up those it needs)"
)
OFF = "switch tools off in the client (Open WebUI: Builtin Tools, by `elbowroom connect open-webui --tools off`)"


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
    """Every remedy that applies comes first, then numbers, share, the largest items with the largest tools among them.

    A line of a chat program has the best remedy and two numbers.
    """
    assert notice_of(replace(hello(8192), slim_saves=2400)) == (
        f"Load the model with a larger context length, {OFF}, set client_tools = "
        f'"slim" (saves about 2400 tokens), or {BY_NAME}. '
        "Before the conversation begins, 7621 of this model's 8192 tokens (93%) are "
        "taken: 6368 by 36 tools (the largest: create_calendar_event 412, update_automation 398, create_automation "
        "377), 1000 by room for the reply, 219 by the system message, 34 by messages that have to stay."
    )
    line = "Switch tools off in the client: 7,621 of 8,192 tokens are taken before the chat begins."
    assert short_notice_of(hello(8192)) == line
    assert len(line) <= LONGEST_LINE


@pytest.mark.parametrize(
    ("cost", "way"),
    [
        (FixedCost(10**6, system=90, pinned=80), "Shorten the system message"),
        (FixedCost(10**6, system=80, pinned=90), "Send less text at once"),
        (FixedCost(10**6, tools=(("a", 90),), system=80), "Switch tools off in the client"),
        (FixedCost(10**6, tools=(("a", 90),), own=1), "Give the agent fewer tools"),
    ],
)
def test_the_line_says_what_helps_most(cost: FixedCost, way: str) -> None:
    """It is about the largest part, and is shown whole also where the numbers are large."""
    assert short_notice_of(cost).startswith(f"{way}: ")
    assert len(short_notice_of(replace(cost, reserve=10**6))) <= LONGEST_LINE


def test_the_refusal_says_what_takes_how_much_and_what_helps() -> None:
    """What helps comes first, then the words that clients know; the prompt alone is too long, without the reply."""
    assert refusal_of(replace(hello(4096), slim_saves=2400)) == (
        f"Load the model with a larger context length, {OFF}, set client_tools = "
        f'"slim" (saves about 2400 tokens), or {BY_NAME}. '
        "This model's maximum context length is 4096 tokens, and the request needs "
        "6621, however short the conversation is made: 6368 by 36 tools (the largest: create_calendar_event 412, "
        "update_automation 398, create_automation 377), 219 by the system message, 34 by messages that have to stay."
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
    ("cost", "remedy"),
    [
        (FixedCost(100, system=90), f"{LARGER_WINDOW}, or shorten the system message."),
        (FixedCost(100, pinned=90), f"{LARGER_WINDOW}, or send less text at once."),
        (FixedCost(100, reserve=90), f"{LARGER_WINDOW}."),
        (FixedCost(100, tools=(("a", 90),)), f"{LARGER_WINDOW}, or {OFF}."),
        (FixedCost(100, tools=(("a", 90),), own=1), f"{LARGER_WINDOW}, or give the agent fewer tools."),
        (
            FixedCost(100, tools=(("a", 20), ("b", 70)), own=1),
            f"{LARGER_WINDOW}, or {OFF}.",
        ),
        (FixedCost(100, system=90, slim_saves=5), f"{LARGER_WINDOW}, or shorten the system message."),
        (
            FixedCost(100, system=50, tools=(("a", 40),), slim_saves=5),
            f"{LARGER_WINDOW}, shorten the system message, {OFF}, {SLIM}",
        ),
    ],
)
def test_only_remedies_that_help_are_named(cost: FixedCost, remedy: str) -> None:
    """What is not there cannot be shortened, and slim tools are suggested only where they save something."""
    assert (notice_of(cost) or "").startswith(f"{remedy} ")
    assert refusal_of(cost).startswith(f"{remedy} ")


def test_refusal_names_the_files_in_messages_that_stay() -> None:
    """A person reads which file is in the way."""
    told = refusal_of(FixedCost(4096, pinned=5000, material="log.md, notes.md"))
    assert "5000 by messages that have to stay with log.md, notes.md" in told
