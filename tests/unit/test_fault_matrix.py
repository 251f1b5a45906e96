"""Holds that docs/develop/reliability.md says what the tests promise, and each fault and threat has its promise."""

import pytest
from fault_list import FAULTS, STATES, THREATS
from fault_matrix import DOCUMENT, promises, written

LISTED = {fault.name: fault for section in FAULTS.values() for fault in section}


@pytest.mark.slow
def test_the_page_says_what_the_tests_promise() -> None:
    """A mark that is added, changed or removed is missed on the page: `scripts/fault_matrix --write` mends that."""
    page = DOCUMENT.read_text(encoding="utf-8")
    assert written(page) == page


@pytest.mark.slow
def test_each_fault_has_a_test_or_a_reason_in_each_state() -> None:
    """No cell is empty, and none has both: a reason says that nothing can come there."""
    held = {(promise.about, promise.state) for promise in promises() if promise.state}
    cells = [(name, state) for name in LISTED for state in STATES]
    with_reason = {cell for cell in cells if LISTED[cell[0]].reason(cell[1]) is not None}
    assert [cell for cell in cells if cell not in held | with_reason] == []
    assert sorted(held & with_reason) == []
    assert sorted(held - set(cells)) == []


@pytest.mark.slow
def test_each_threat_has_a_test() -> None:
    """Every threat of the list is tried, and no mark names another one."""
    assert {promise.about for promise in promises() if not promise.state} == set(THREATS)


@pytest.mark.slow
def test_nothing_is_promised_twice() -> None:
    """A test has each of its marks once."""
    assert len(promises()) == len(set(promises()))


def test_reasons_name_states() -> None:
    """A reason stands for states that there are."""
    states = {state for fault in LISTED.values() for key in fault.reasons for state in key.split()}
    assert states <= set(STATES)
