"""Pairing: a code is used once, for ten minutes and five tries; of a token only a hash is kept, in a private file."""

import stat
import sys
from pathlib import Path

import pytest
from manual_clock import ManualClock

from elbowroom.connect.devices import MOST_DEVICES, PairedDevices
from elbowroom.connect.pairing import LETTERS, PairingCode
from elbowroom.errors import Conflict, Forbidden, Gone, SettingsNotSaved, TooManyTries


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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such rights")
async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """It has hashes and no token, and nobody else can read it, whatever its rights were before."""
    file = tmp_path / "data" / "paired.json"
    devices = PairedDevices(file)
    _, token = await devices.add("Phone")
    file.chmod(0o644)
    await devices.add("Laptop")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token not in file.read_text(encoding="utf-8")
    assert token.removeprefix("elbp_") not in file.read_text(encoding="utf-8")


async def test_devices_outlive_the_server(tmp_path: Path) -> None:
    """The next start knows the same tokens, names and times; what was revoked stays so."""
    file = tmp_path / "paired.json"
    devices = PairedDevices(file)
    (phone, token), (laptop, other) = await devices.add("Phone"), await devices.add("Laptop")
    assert await devices.remove(laptop.id)
    assert not await devices.remove(laptop.id)
    again = PairedDevices(file)
    assert again.listed() == [phone]
    assert again.using(other) is None
    used = again.using(token)
    assert used is not None
    assert used.last_used is not None
    await again.aclose()
    assert PairedDevices(file).listed() == [used]


async def test_uses_are_written_rarely(tmp_path: Path) -> None:
    """The first use is written, and then one an hour."""
    file, clock = tmp_path / "paired.json", ManualClock()
    clock.now = 1_800_000_000.0
    devices = PairedDevices(file, clock.time)
    _, token = await devices.add("Phone")
    written = []
    for _ in range(180):
        clock.now += 60
        devices.using(token)
        if devices._saving is not None:
            await devices._saving
        written.append(PairedDevices(file).listed()[0].last_used)
    assert len({*written}) == 3


async def test_what_cannot_be_written_is_not_changed(tmp_path: Path) -> None:
    """A program that cannot be kept is not paired, one whose revocation cannot be kept still is, as the error says."""
    file = tmp_path / "data" / "paired.json"
    devices = PairedDevices(file)
    device, token = await devices.add("Phone")
    file.unlink()
    file.mkdir()
    (file / "in the way").touch()
    for change in (devices.add("Laptop"), devices.remove(device.id)):
        with pytest.raises(SettingsNotSaved, match=r"paired\.json cannot be written"):
            await change
    assert [each.name for each in devices.listed()] == ["Phone"]
    assert devices.using(token) is not None


async def test_a_broken_file_pairs_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says that everything is to be paired anew, and that works."""
    file = tmp_path / "paired.json"
    file.write_text('[{"id": 5}]', encoding="utf-8")
    devices = PairedDevices(file)
    assert devices.listed() == []
    assert "Pair them anew" in caplog.text
    await devices.add("Phone")
    assert [each.name for each in PairedDevices(file).listed()] == ["Phone"]
    assert file.with_name("paired.json.damaged-1").read_text(encoding="utf-8") == '[{"id": 5}]'
    assert "it is kept as paired.json.damaged-1" in caplog.text


async def test_devices_are_bounded() -> None:
    """Beyond fifty the person is told to revoke some."""
    devices = PairedDevices(None)
    for number in range(MOST_DEVICES):
        await devices.add(str(number))
    with pytest.raises(Conflict, match="Revoke those"):
        await devices.add("one more")
