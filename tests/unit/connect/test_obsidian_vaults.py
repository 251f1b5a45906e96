"""Obsidian's lists of vaults: where they are, what may stand in them, and which vault a person means."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elbowroom.connect.obsidian import config_folder
from elbowroom.connect.obsidian.vaults import MOST_BYTES, Vault, chosen_vault, known_vaults
from elbowroom.errors import ElbowroomError

NATIVE = ".config/obsidian"
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what makes folders of notes, and a list of them in a folder of the home."""

    def write(folder: str, *names: str, **more: Any) -> None:
        rows = {name: {"path": str(tmp_path / name), "ts": number} for number, name in enumerate(names)}
        for name in names:
            (tmp_path / name / ".obsidian").mkdir(parents=True)
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "obsidian.json").write_text(json.dumps({"vaults": {**rows, **more}}), encoding="utf-8")

    return write


def names(home: Path, platform: str = "linux", **environ: str) -> list[str]:
    """Return the names of the vaults that are known."""
    return [vault.name for vault in known_vaults({"HOME": str(home), **environ}, platform).vaults]


@pytest.mark.parametrize(
    ("platform", "folder"),
    [
        ("linux", NATIVE),
        ("linux", "own/obsidian"),
        ("linux", ".var/app/md.obsidian.Obsidian/config/obsidian"),
        ("linux", "snap/obsidian/current/.config/obsidian"),
        ("darwin", "Library/Application Support/obsidian"),
        ("win32", "Roaming/obsidian"),
        ("win32", "AppData/Roaming/obsidian"),
    ],
)
def test_every_way_to_install_obsidian(tmp_path: Path, write: Write, platform: str, folder: str) -> None:
    """Its list is found wherever the system and the way of installing keep it."""
    write(folder, "Notizen \u00e4")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "own")} if folder.startswith("own") else {}
    environ |= {"APPDATA": str(tmp_path / "Roaming")} if folder.startswith("Roaming") else {}
    assert names(tmp_path, platform, **environ) == ["Notizen \u00e4"]


def test_open_ones_come_first(tmp_path: Path, write: Write) -> None:
    """The open vault, then the last opened; one that two lists have is there once."""
    write(NATIVE, "a", "b", "c", open={"path": str(tmp_path / "a"), "ts": 0, "open": True})
    write(".var/app/md.obsidian.Obsidian/config/obsidian", "d", same={"path": str(tmp_path / "b"), "ts": 9})
    assert names(tmp_path) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "row",
    [
        None, 5, [], {}, {"path": 5}, {"path": ""}, {"path": "relative"}, {"path": "/nowhere/at/all"},
        {"path": "/tmp\u0000"}, {"path": "\ud800"}, {"path": f"/{'x' * 5000}"}, {"path": ["/tmp"]},
    ],
)  # fmt: skip
def test_odd_rows_are_passed_over(tmp_path: Path, write: Write, row: Any) -> None:
    """What names no folder that is there hides no other vault, and is no problem."""
    write(NATIVE, "Notes")
    rows = {"odd": row, "good": {"path": str(tmp_path / "Notes"), "ts": "soon", "open": "yes"}}
    (tmp_path / NATIVE / "obsidian.json").write_text(json.dumps({"vaults": rows}), encoding="utf-8")
    known = known_vaults({"HOME": str(tmp_path)}, "linux")
    assert [(vault.name, vault.is_open) for vault in known.vaults] == [("Notes", False)]
    assert known.problems == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with a path")
def test_a_list_that_is_no_file(tmp_path: Path) -> None:
    """A pipe, whose reader would wait for ever, and a folder are not read."""
    (tmp_path / NATIVE).mkdir(parents=True)
    os.mkfifo(tmp_path / NATIVE / "obsidian.json")
    (tmp_path / "own" / "obsidian" / "obsidian.json").mkdir(parents=True)
    assert names(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "own")) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"vaults": []}', b'{"vaults": null}', b"\xff\xfe", b"[" * 100_000, b" " * (MOST_BYTES + 1)],
)
def test_a_broken_list_is_told_of(tmp_path: Path, content: bytes) -> None:
    """It is named in a sentence, and a vault can be named by its folder all the same."""
    (tmp_path / NATIVE).mkdir(parents=True)
    (tmp_path / NATIVE / "obsidian.json").write_bytes(content)
    known = known_vaults({"HOME": str(tmp_path)}, "linux")
    assert known.vaults == []
    file = tmp_path / NATIVE / "obsidian.json"
    told = f"Obsidian's list of vaults in {file} cannot be read: it is not in the form that is known."
    assert known.problems == [told]
    with pytest.raises(ElbowroomError, match=r"^Obsidian's list .* No vault of Obsidian was found\. Name its folder"):
        chosen_vault(known, "")
    assert chosen_vault(known, str(tmp_path)) == Vault(tmp_path)


def test_a_vault_is_named(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, in any case and either form of umlauts, or by its folder; of several, one has to be named."""
    write(NATIVE, "Notizen \u00e4", "Work", "old/Work", "old/Reise")
    known = known_vaults({"HOME": str(tmp_path)}, "linux")
    monkeypatch.chdir(tmp_path)
    for named in ("Notizen \u00e4", "notizen A\u0308", str(tmp_path / "Notizen \u00e4"), "Notizen \u00e4/.obsidian"):
        assert chosen_vault(known, named).id == "Notizen \u00e4"
    with pytest.raises(ElbowroomError, match="There are several vaults") as error:
        chosen_vault(known, "")
    assert f"Reise  ({tmp_path / 'old' / 'Reise'})" in error.value.message
    with pytest.raises(ElbowroomError, match="Several vaults are called work"):
        chosen_vault(known, "work")
    assert chosen_vault(known, os.path.join("old", "Work")).id == "old/Work"
    with pytest.raises(ElbowroomError, match="There is no vault and no folder nowhere"):
        chosen_vault(known, "nowhere")


def test_the_folder_of_settings(tmp_path: Path, write: Write) -> None:
    """It is `.obsidian`, or the one hidden folder with Obsidian's files, or the one that is named."""
    write(NATIVE, "Notes")
    vault = Vault(tmp_path / "Notes")
    assert config_folder(vault) == vault.folder / ".obsidian"
    (vault.folder / ".obsidian").rename(vault.folder / ".mine")
    with pytest.raises(ElbowroomError, match=r"is no vault of Obsidian: it has no folder \.obsidian"):
        config_folder(vault)
    (vault.folder / ".mine" / "app.json").touch()
    assert config_folder(vault) == vault.folder / ".mine"
    (vault.folder / ".phone").mkdir()
    (vault.folder / ".phone" / "workspace.json").touch()
    with pytest.raises(ElbowroomError, match=r"Name one with --config-folder: \.mine, \.phone"):
        config_folder(vault)
    assert config_folder(vault, ".phone") == vault.folder / ".phone"
    for wrong in ("..", "../.x", "plain", "/etc", ".nowhere", ".mine/x"):
        with pytest.raises(ElbowroomError):
            config_folder(vault, wrong)


def test_a_folder_inside_of_a_vault(tmp_path: Path, write: Write) -> None:
    """It is no vault, and the error names the one that it is in."""
    write(NATIVE, "Notes")
    inside = tmp_path / "Notes" / "Daily"
    inside.mkdir()
    with pytest.raises(ElbowroomError, match=r"is a folder inside of the vault .*Notes\. Name the vault"):
        config_folder(Vault(inside))
