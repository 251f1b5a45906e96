"""Which of several machines a prompt goes to: its own as long as that is not full for too long, else a free one."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elbowroom.agents.admission.choice import LARGEST_SHARE, Candidate, chosen

WINDOW = 8192
OWN = Candidate("own", WINDOW, cached=1000, was_last=True, rate=500.0)
OTHER = Candidate("other", WINDOW, rate=500.0)
FULL = replace(OWN, claimed=WINDOW, requests=1)

sizes = st.integers(0, 20_000)
machines = st.lists(
    st.builds(
        Candidate,
        st.just(""),
        st.one_of(st.none(), st.sampled_from([2048, 4096, 8192, 32768])),
        st.one_of(st.none(), st.integers(1, 4)),
        is_loaded=st.booleans(),
        claimed=sizes,
        requests=st.integers(0, 5),
        cached=sizes,
        was_last=st.booleans(),
        rate=st.one_of(st.none(), st.floats(10, 2000)),
        prompts=st.integers(0, 100),
    ),
    min_size=1,
    max_size=5,
).map(lambda found: [replace(one, id=str(number)) for number, one in enumerate(found)])


def test_a_prompt_goes_where_its_prefix_is() -> None:
    """The machine that has it in its cache is chosen, though another one is idle and it is not."""
    busy = replace(OWN, claimed=4000, requests=2)
    assert chosen([OTHER, busy], 1200) == busy


def test_it_waits_as_long_as_reading_again_would_take() -> None:
    """A full machine is left once the wait is as long as another one would read: 1,200 tokens in 2.4 seconds."""
    assert chosen([FULL, OTHER], 1200, waited=2.3) == FULL
    assert chosen([FULL, OTHER], 1200, waited=2.4) == OTHER


def test_a_machine_without_an_idle_slot_is_full() -> None:
    """An engine that works on as many requests as it can is left like one whose window is full."""
    busy = replace(OWN, claimed=10, requests=2, slots=2)
    assert chosen([busy, OTHER], 1200, waited=2.3) == busy
    assert chosen([busy, OTHER], 1200, waited=2.4) == OTHER
    assert chosen([replace(busy, slots=3), OTHER], 1200, waited=600).id == OWN.id


def test_it_stays_where_all_are_full() -> None:
    """Another full machine is no better, however long the wait has been."""
    assert chosen([FULL, replace(OTHER, claimed=WINDOW, requests=3)], 1200, waited=600) == FULL


def test_a_new_conversation_goes_to_the_idle_machine() -> None:
    """Without a prefix anywhere requests spread: to a free machine, and then to the one that was asked less."""
    assert chosen([replace(OTHER, requests=1, claimed=10), replace(OTHER, id="idle")], 500).id == "idle"
    assert chosen([replace(OTHER, prompts=3), replace(OTHER, id="rested")], 500).id == "rested"


def test_a_much_faster_machine_is_worth_it() -> None:
    """Where both are free, the one that reads far more tokens a second is asked."""
    assert chosen([replace(OTHER, rate=100.0), replace(OTHER, id="fast", rate=2000.0)], 4000).id == "fast"


def test_a_larger_window_goes_before_a_compaction() -> None:
    """A prompt that its own machine would have to compact goes to one that has room for all of it."""
    small = replace(OWN, window=4096)
    assert chosen([small, OTHER], 3900) == OTHER
    assert chosen([small, OTHER], 2000) == small


@given(machines, sizes, st.floats(0, 1000))
def test_the_choice_is_one_of_them_and_sensible(candidates: list[Candidate], tokens: int, waited: float) -> None:
    """What is chosen has the model loaded where any has, and the prompt fits it where it fits any of those."""
    choice = chosen(candidates, tokens, waited)
    assert choice in candidates
    able = [one for one in candidates if one.is_loaded] or candidates
    assert choice in able
    assert choice.fits(tokens) or not any(one.fits(tokens) for one in able)
    large = [one for one in able if one.fits(tokens)] or able
    if not choice.has_room(tokens) and not choice.cached:
        assert not any(one.has_room(tokens) for one in large if one.window is None or one.fits(tokens))


@given(machines, sizes, st.floats(0, 1000), st.floats(0, 1000))
def test_who_has_left_does_not_come_back_for_waiting(
    candidates: list[Candidate], tokens: int, waited: float, more: float
) -> None:
    """A longer wait never makes the own machine better than another one."""
    first, later = chosen(candidates, tokens, waited), chosen(candidates, tokens, waited + more)
    own = max((one.cached for one in candidates), default=0)
    if first.cached < own:
        assert later == first


def test_the_share_is_that_of_a_window() -> None:
    """A prompt counts as fitting up to eight tenths of a window."""
    assert OWN.fits(int(LARGEST_SHARE * WINDOW))
    assert not OWN.fits(int(LARGEST_SHARE * WINDOW) + 1)
