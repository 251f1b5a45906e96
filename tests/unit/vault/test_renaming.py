"""Renaming keeps what every link means: in notes, to notes and to the files that they embed."""

import os
from pathlib import Path

import pytest
from cases import cases
from vaults import WAYS, changes_of, files_in

from elbowroom.vault.names import VaultError, is_embedded


def renamed(folder: Path, notes: dict[str, str], old: str, new: str) -> dict[str, str]:
    """Rename one file of a vault and return what its notes hold then, after undo was shown to bring all back."""
    changes = changes_of(folder, notes)
    before = files_in(folder / "vault")
    changes.rename(old, new, "")
    after = files_in(folder / "vault")
    changes.undo()
    assert files_in(folder / "vault") == before
    return {name: data.decode() for name, data in after.items()}


@cases(
    ("before", "after"),
    [
        ("[[Old]]", "[[B/New]]"),
        ("[[old#A b|x y]]", "[[B/New#A b|x y]]"),
        ("![[Old#^id]]", "![[B/New#^id]]"),
        ("[[Old.md]]", "[[B/New.md]]"),
        ("[[A/Old]] [[/A/Old]] [[Old\\|x]]", "[[B/New]] [[B/New]] [[B/New\\|x]]"),
        ("[x](A/Old.md#a)", "[x](B/New.md#a)"),
        ("[x](<A/Old.md> 't')", "[x](<B/New.md> 't')"),
        ("[x](/A/Old.md)", "[x](/B/New.md)"),
        ("[x](A/Old)", "[x](B/New)"),
        ("[x][l]\n\n[l]: A/Old.md", "[x][l]\n\n[l]: B/New.md"),
        ('[l]: <A/Old.md#h> "Old"', '[l]: <B/New.md#h> "Old"'),
        ("> [l]:   A/Old.md 'Old'", "> [l]:   B/New.md 'Old'"),
        ("---\nup: '[[Old]]'\n---\n", "---\nup: '[[B/New]]'\n---\n"),
        *[
            (same, same)
            for same in ("[[Older]]", "`[[Old]]`", "[^l]: A/Old.md", "[x](http://A/Old.md)", "Old", "[[#Old]]")
        ],
        *[(same, same) for same in ("```\n[l]: A/Old.md\n```", "    [l]: A/Old.md", "[x](C/Old.md)", "[[C/New]]")],
    ],
)
def test_forms_of_links(tmp_path: Path, before: str, after: str) -> None:
    """Every form of a link stays of its form."""
    notes = {"A/Old.md": "", "C/New.md": "", "x.md": before}
    assert renamed(tmp_path, notes, "A/Old", "B/New")["x.md"] == after


def test_links_that_would_come_to_mean_another_note(tmp_path: Path) -> None:
    """A note that takes a name which others have takes none of their links; a note that moves keeps its own."""
    notes = {"A/Plan.md": "", "x.md": "[[Plan]] [[Old]] [p](Plan.md)", "Old.md": ""}
    assert renamed(tmp_path, notes, "Old", "Plan")["x.md"] == "[[A/Plan]] [[Plan]] [p](A/Plan.md)"
    notes = {"A/Near.md": "", "Near.md": "", "A/Old.md": "[[Near]] [n](Near.md) ![[p.png]] [p](p.png)", "A/p.png": ""}
    moved = renamed(tmp_path / "second", notes, "A/Old", "Old")["Old.md"]
    assert moved == "[[A/Near]] [n](A/Near.md) ![[p.png]] [p](A/p.png)"


@pytest.mark.parametrize("name", ["Café (a) 100%.md", "日本語 x.md", "Straße.md", "a+b & c.md", "é.md"])
def test_names_that_are_encoded(tmp_path: Path, name: str) -> None:
    """A link that was written by one renaming is found by the next, however its characters were encoded."""
    changes = changes_of(tmp_path, {"Old.md": "", "x.md": "[x](Old.md) [[Old]]"})
    for old, new in (("Old.md", name), (name, f"D/{name}"), (f"D/{name}", "Last.md")):
        assert "2 links" in changes.rename(old, new, "") or new.startswith("D/")
    assert (tmp_path / "vault" / "x.md").read_text() == "[x](Last.md) [[Last]]"


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_files_that_are_embedded(tmp_path: Path, by_descriptor: bool) -> None:
    """A picture is renamed with its embeds and links, whatever its size, and comes back by undoing."""
    notes: dict[str, str | bytes] = {
        "A/pic 1.png": b"\0" * 3_000_000,
        "A/x.md": "![[pic 1.png|100]] ![p](pic%201.png) [[A/pic 1.png]]\n\n[l]: <pic 1.png>\n",
        "pic 1.md": "[[pic 1]]",
    }
    changes = changes_of(tmp_path, notes, by_descriptor=by_descriptor)
    before = files_in(tmp_path / "vault")
    assert changes.rename("A/pic 1.png", "Media/photo.png", "").endswith("; 4 links in 1 notes were updated.")
    after = files_in(tmp_path / "vault")
    assert after["Media/photo.png"] == before["A/pic 1.png"]
    assert after["A/x.md"].decode() == (
        "![[photo.png|100]] ![p](../Media/photo.png) [[Media/photo.png]]\n\n[l]: <../Media/photo.png>\n"
    )
    assert after["pic 1.md"] == before["pic 1.md"]
    changes.undo()
    assert files_in(tmp_path / "vault") == before


@cases("new", ["photo", "photo.md", "photo.exe", "../photo.png", ".photo.png", "A/x.png", "con.png"])
def test_what_an_embedded_file_cannot_become(tmp_path: Path, new: str) -> None:
    """It keeps its ending, replaces nothing, and stays in the vault."""
    changes = changes_of(tmp_path, {"pic.png": "p", "A/x.png": "x"})
    before = files_in(tmp_path)
    with pytest.raises(VaultError):
        changes.rename("pic.png", new, "")
    assert {name: data for name, data in files_in(tmp_path).items() if not name.startswith("undo")} == before


def test_a_linked_picture_is_not_renamed(tmp_path: Path) -> None:
    """A link in the vault to a file outside is no picture of the vault, nor is one with a second name."""
    changes = changes_of(tmp_path, {"a.md": "![[out.png]]"})
    (tmp_path / "out.png").write_text("secret")
    os.link(tmp_path / "out.png", tmp_path / "vault" / "hard.png")
    (tmp_path / "vault" / "out.png").symlink_to(tmp_path / "out.png")
    for name in ("out.png", "hard.png"):
        with pytest.raises(VaultError, match="link"):
            changes.rename(name, "new.png", "")
    assert is_embedded("x.PNG")
    assert not is_embedded("png")
