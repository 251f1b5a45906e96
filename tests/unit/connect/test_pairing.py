"""Pairing: a code is used once, for ten minutes and five tries."""

import pytest
from manual_clock import ManualClock

from elbowroom.connect.pairing import LETTERS, PairingCode
from elbowroom.errors import Forbidden, Gone, TooManyTries


def test_a_code_is_easy_to_type() -> None:
    """It has two groups of four letters and digits that nobody takes for others, and is another one each time."""
    codes = {PairingCode().make() for _ in range(50)}
    assert len(codes) == 50
    for code in codes:
        assert len(code) == 9
        assert code[4] == "-"
        assert set(code.replace("-", "")) <= set(LETTERS)
    assert not set(LETTERS) & set("ILO01")


@pytest.mark.parametrize("typed", ["{}", " {} ", "{0:l}", "{0:n}"])
def test_a_code_may_be_typed_in_any_way(typed: str) -> None:
    """Small letters, spaces and no dash are the same code; it is used up then."""
    code = PairingCode()
    shown = code.make()
    forms = {"{0:l}": shown.lower(), "{0:n}": shown.replace("-", " ")}
    code.use(forms.get(typed) or typed.format(shown))
    with pytest.raises(Gone):
        code.use(shown)


def test_no_code_is_valid_before_one_is_made() -> None:
    """An empty code is not the one that was never made."""
    for given in ("", "-", "ABCD-2345"):
        with pytest.raises(Gone, match="Make a new one"):
            PairingCode().use(given)


def test_a_code_ends_after_ten_minutes() -> None:
    """The last moment counts, the one after it does not."""
    clock = ManualClock()
    code = PairingCode(clock.time)
    shown = code.make()
    clock.now += 599.9
    with pytest.raises(Forbidden):
        code.use("WRONG")
    clock.now += 0.2
    with pytest.raises(Gone):
        code.use(shown)


def test_a_new_code_replaces_the_one_before() -> None:
    """Only the last one is valid, and what was tried before does not count against it."""
    code = PairingCode()
    first = code.make()
    for _ in range(4):
        with pytest.raises(Forbidden):
            code.use("WRONG")
    second = code.make()
    with pytest.raises(Forbidden, match="It takes 4 more tries"):
        code.use(first)
    code.use(second)


def test_five_wrong_tries_end_a_code() -> None:
    """Whatever is sent, letters that are none too; then the right one is refused as well, until a new one is made."""
    code = PairingCode()
    shown = code.make()
    for wrong in ("WRONG", "\ud800", "Ä" * 8, shown[:-1]):
        with pytest.raises(Forbidden):
            code.use(wrong)
    for given in (shown + "A", shown, shown):
        with pytest.raises(TooManyTries):
            code.use(given)
    code.use(code.make())
