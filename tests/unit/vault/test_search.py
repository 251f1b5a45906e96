"""Search finds what is on disk now, the best first, and only what is open."""

import os
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cases import cases
from vaults import told as text_told
from vaults import vault_of, write_notes

from elbowroom.vault.changes import Changes
from elbowroom.vault.index import Index
from elbowroom.vault.journal import Journal
from elbowroom.vault.names import VaultError
from elbowroom.vault.search import Found, parse_query, search
from elbowroom.vault.telling import tell_count, tell_search
from elbowroom.vault.vault import Vault

NOTES = {
    "Garden.md": "# Garden\n\nSeeds and soil.\n",
    "Projects/Garden plan.md": "Plan for spring. #project/home\n",
    "Projects/House.md": "---\ntags: [project, Wood]\nstatus: done\nlinks:\n  - '[[Garden]]'\n---\n"
    "The garden fence. The garden gate.\n",
    "Daily/One.md": "We talked about the garden.\n`#no-tag` and #garden and 100 #1\n",
    "Daily/Straße.md": "Große Straße, café\n",
    "Code.md": "```\n#not-a-tag\n```\n",
}


def paths(found: Found) -> list[str]:
    """Return the paths of what was found, in order."""
    return ["/".join(hit.parts) for hit in found.hits]


def find(vault: Vault, text: str = "", *, tag: str = "", frontmatter: str = "", folder: str = "") -> list[str]:
    """Search and return the paths, best first."""
    return paths(search(vault, parse_query(text, tag, frontmatter, folder), limit=20))


def test_the_best_come_first(tmp_path: Path) -> None:
    """A name counts more than a heading, a heading more than the text, several places more than one."""
    vault = vault_of(tmp_path, NOTES)
    assert find(vault, "garden") == ["Garden.md", "Projects/Garden plan.md", "Projects/House.md", "Daily/One.md"]


def test_all_words_and_phrases_count(tmp_path: Path) -> None:
    """Words may stand anywhere in the note or its name, phrases stay together."""
    vault = vault_of(tmp_path, NOTES)
    assert find(vault, "garden gate fence") == ["Projects/House.md"]
    assert find(vault, '"garden gate"') == ["Projects/House.md"]
    assert find(vault, '"gate garden"') == []
    assert find(vault, "plan spring garden") == ["Projects/Garden plan.md"]


@pytest.mark.parametrize("query", ["STRASSE", "straße", "CAFE\u0301", "café", "GROSSE"])
def test_case_and_accents_do_not_matter(tmp_path: Path, query: str) -> None:
    """Case, and whether accents are composed, make no difference."""
    assert find(vault_of(tmp_path, NOTES), query) == ["Daily/Straße.md"]


def test_tags(tmp_path: Path) -> None:
    """From the text and the frontmatter, with those below them; not from code, and numbers are none."""
    vault = vault_of(tmp_path, NOTES)
    assert sorted(find(vault, tag="#Project")) == ["Projects/Garden plan.md", "Projects/House.md"]
    assert find(vault, tag="project/home") == ["Projects/Garden plan.md"]
    assert find(vault, tag="wood") == ["Projects/House.md"]
    assert find(vault, tag="garden") == ["Daily/One.md"]
    assert find(vault, tag="no-tag") == find(vault, tag="not-a-tag") == find(vault, tag="1") == []


def test_frontmatter(tmp_path: Path) -> None:
    """A key, or a key with its value, also one in a list."""
    vault = vault_of(tmp_path, NOTES)
    for written in ("status", "status=done", "Status: done", "links=[[Garden]]", "tags=wood"):
        assert find(vault, frontmatter=written) == ["Projects/House.md"]
    assert find(vault, frontmatter="status=open") == []


def test_folders(tmp_path: Path) -> None:
    """Only below a folder, however its case is written."""
    vault = vault_of(tmp_path, NOTES)
    assert find(vault, "garden", folder="projects") == ["Projects/Garden plan.md", "Projects/House.md"]
    with pytest.raises(VaultError, match="no folder 'Nowhere'"):
        find(vault, "garden", folder="Nowhere")


def test_what_is_on_disk_now(tmp_path: Path) -> None:
    """New, changed, renamed and deleted notes count at the next search, also those of the same size."""
    vault = vault_of(tmp_path, NOTES)
    root = Path(vault.root)
    assert find(vault, "marker") == []
    write_notes(root, {"New/One.md": "marker"})
    assert find(vault, "marker") == ["New/One.md"]
    (root / "New" / "One.md").rename(root / "New" / "Two.md")
    assert find(vault, "marker") == ["New/Two.md"]
    status = (root / "New" / "Two.md").stat()
    (root / "New" / "Two.md").write_text("makrer")
    os.utime(root / "New" / "Two.md", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert find(vault, "marker") == []
    (root / "New").rename(root / "Newer")
    assert find(vault, "makrer") == ["Newer/Two.md"]
    (root / "Newer" / "Two.md").unlink()
    assert find(vault, "makrer") == []


def test_changes_that_leave_no_other_sign(tmp_path: Path) -> None:
    """A note of the same size is found as it is, also when its time was put back, and when it changes at once."""
    vault = vault_of(tmp_path, {"Note.md": "marker 000"})
    note = Path(vault.root) / "Note.md"
    status = note.stat()
    for number in range(100):
        note.write_text(f"marker {number:03}")
        if number % 2:
            os.utime(note, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert find(vault, f"{number:03}") == ["Note.md"]


def test_the_memory_that_notes_take_is_bounded(tmp_path: Path) -> None:
    """By bytes: characters that take more of them count for more. What is beyond is found all the same."""
    vault = vault_of(tmp_path, {f"{n}.md": "\U0001f331" * 1000 for n in range(50)})
    small = replace(vault, index=Index(most_bytes=40_000))
    assert len(find(small, "\U0001f331")) == 20
    kept = [note.folded for note in small.index.notes.values() if note.folded is not None]
    assert 40_000 <= sum(map(sys.getsizeof, kept)) <= 45_000


def test_tags_without_end_are_not_kept(tmp_path: Path) -> None:
    """A note with very many tags is found by each of them, and they take no memory afterwards."""
    vault = vault_of(tmp_path, {"Note.md": "".join(f"#t{n} " for n in range(50_000)), "Few.md": "#t1"})
    for note in Path(vault.root).iterdir():
        os.utime(note, (1, 1.5))
    assert sorted(find(vault, tag="t1")) == ["Few.md", "Note.md"]
    assert find(vault, tag="t49999") == ["Note.md"]
    assert {note.name for note in vault.index.notes.values() if note._facts is not None} == {"few"}


def test_a_line_that_begins_like_a_heading(tmp_path: Path) -> None:
    """A tag or a far beginning of the note makes no heading of the line in which a word stands."""
    notes = {"A.md": "# needle\n", "B.md": "#tag needle needle\n", "C.md": f"# x\n{' y' * 500} needle\n"}
    assert find(vault_of(tmp_path, notes), "needle") == ["A.md", "B.md", "C.md"]


@pytest.mark.parametrize(
    "written", ["[ [" + "[" * 100_000 + "]", '[ {"a":' * 20_000 + "]", "[ a" + "'" * 500_000 + "]"]
)
def test_one_hostile_note_stops_no_search(tmp_path: Path, written: str) -> None:
    """Brackets nested without end in one note's frontmatter do not keep others from being found."""
    vault = vault_of(tmp_path, {"Bad.md": f"---\nstatus: {written}\n---\n", "Good.md": "---\nstatus: done\n---\n"})
    assert find(vault, frontmatter="status=done") == ["Good.md"]


def test_results_show_where(tmp_path: Path) -> None:
    """The lines that match, with numbers to read from; long ones around the match; bounded, with how to go on."""
    notes = {f"{n:03}.md": f"first\n{'x' * 5000} needle {'y' * 5000}\n" for n in range(50)}
    vault = vault_of(tmp_path, notes)
    told = text_told(tell_search(vault, "needle", "", "", "", 30, 0))
    assert told.startswith("50 notes found, best first.")
    assert told.count("  2: ...") == 30
    assert told.count("needle") == 30
    assert told.endswith("20 more: call again with offset=30.")
    assert text_told(tell_search(vault, "nothing", "", "", "", 10, 0)).startswith("Nothing found.")


def test_count(tmp_path: Path) -> None:
    """How many notes in all and by folder; without a query all of them."""
    vault = vault_of(tmp_path, NOTES)
    assert tell_count(vault, "", "", "", "").splitlines() == [
        "6 notes.",
        "Daily/: 2",
        "Projects/: 2",
        "directly here: 2",
    ]
    assert tell_count(vault, "garden", "", "", "Projects").splitlines() == ["2 notes.", "directly here: 2"]


@cases("query", ["(a+)+$", "(a|aa)+$", "[", "*", "a.*b", "\\", "(?P<x>"])
def test_patterns_are_plain_text(tmp_path: Path, query: str) -> None:
    """What looks like a pattern is looked for as it stands."""
    vault = vault_of(tmp_path, {"A.md": f"x {query} y", "B.md": "a" * 100_000})
    assert find(vault, query) == ["A.md"]


def test_a_query_has_bounds(tmp_path: Path) -> None:
    """A query of 100 KB, of too many words or of none is refused in a sentence."""
    vault = vault_of(tmp_path, NOTES)
    for query in ("x" * 100_000, " ".join(map(str, range(100))), "", ' "" '):
        with pytest.raises(VaultError):
            find(vault, query)


@pytest.mark.slow
def test_thousands_of_notes(tmp_path: Path) -> None:
    """In a vault of 2,500 notes exactly those that hold the word, as reading every one of them shows."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefghij", k=5)) for _ in range(400)]
    root = tmp_path / "vault"
    for folder in range(25):
        (root / f"f{folder}").mkdir(parents=True)
        for number in range(100):
            (root / f"f{folder}" / f"n{number}.md").write_text(" ".join(chance.choices(words, k=40)))
    vault = vault_of(tmp_path, {})
    for word in words[:3]:
        found = search(vault, parse_query(word), limit=10_000)
        expected = {path for path in root.rglob("*.md") if word in path.read_text()}
        assert {root.joinpath(*hit.parts) for hit in found.hits} == expected


def test_a_vault_that_is_too_large_for_memory(tmp_path: Path) -> None:
    """Notes that are not kept are read for each search: it finds the same, and renaming updates the same links."""
    whole = vault_of(tmp_path, NOTES)
    small = replace(whole, index=Index(most_bytes=200))
    for query in ("garden", "plan spring", "café", "nothing"):
        assert find(small, query) == find(whole, query)
    assert find(small, tag="project") == find(whole, tag="project")
    assert find(small, frontmatter="status=done") == ["Projects/House.md"]
    Changes(small, Journal(tmp_path / "undo"), "writer").rename("Garden", "Yard", "")
    assert "- '[[Yard]]'" in small.read("Projects/House").text()
