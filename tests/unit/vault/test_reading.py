"""What a model is shown of a vault: short, numbered, with how to read on."""

import sys
from pathlib import Path

import pytest
from vaults import told as text_told
from vaults import vault_of

from elbowroom.vault.files import version_of
from elbowroom.vault.names import NoSuchNote, VaultError
from elbowroom.vault.telling import MOST_CHARACTERS, tell_count, tell_folder, tell_note, tell_outline, tell_search

LONG = "".join(f"line {n} of a long note\n" for n in range(1, 2001))


def read(folder: Path, content: str | bytes, first: int = 1, count: int = 0, heading: str = "") -> str:
    """Return what is told of a note."""
    return text_told(
        tell_note(vault_of(folder, {"Note.md": content}), "Note", first, count, heading, frontmatter_only=False)
    )


def test_lines_have_their_numbers_and_the_note_its_version(tmp_path: Path) -> None:
    """The version is what a later write has to name."""
    told = read(tmp_path, "one\r\n\r\nthree")
    version = version_of(b"one\r\n\r\nthree")
    assert told == f"Note.md: lines 1-3 of 3, version {version}\n   1  one\n   2\n   3  three"


def test_a_long_note_is_read_piece_by_piece(tmp_path: Path) -> None:
    """Each result is bounded and says where to go on; together they are the note, line by line."""
    vault = vault_of(tmp_path, {"Note.md": LONG})
    lines: list[str] = []
    while len(lines) < 2000:
        told = text_told(tell_note(vault, "Note.md", len(lines) + 1, 0, "", frontmatter_only=False))
        assert len(told) < MOST_CHARACTERS + 200
        lines += [line[6:] for line in told.splitlines()[1:] if line[:4].strip().isdigit()]
        if len(lines) < 2000:
            assert told.endswith(f"call again with offset={len(lines) + 1}.")
    assert "".join(f"{line}\n" for line in lines) == LONG


def test_a_large_file_is_read_by_ranges(tmp_path: Path) -> None:
    """A log of several megabytes is read at any place; its lines are those of the file."""
    content = "".join(f"entry {n}: {'x' * 40}\r\n" for n in range(1, 60_001))
    vault = vault_of(tmp_path, {"server.log": content})
    told = text_told(tell_note(vault, "server.log", 50_000, 3, "", frontmatter_only=False)).splitlines()
    assert told[0] == f"server.log: lines 50000-50002 of a large file ({len(content):,} bytes)"
    assert told[1:4] == [f"{n}  entry {n}: {'x' * 40}" for n in (50_000, 50_001, 50_002)]
    assert told[4] == "There is more: call again with offset=50003."
    last = text_told(tell_note(vault, "server.log", 60_000, 3, "", frontmatter_only=False)).splitlines()
    assert last[1:] == [f"60000  entry 60000: {'x' * 40}"]
    with pytest.raises(VaultError, match="fewer than 60001 lines"):
        text_told(tell_note(vault, "server.log", 60_001, 3, "", frontmatter_only=False))


def test_one_huge_line(tmp_path: Path) -> None:
    """A file of megabytes in one line gives its beginning, and says that it was cut."""
    told = read(tmp_path, "é" * 2_000_000)
    assert len(told) < 3000
    assert "[line cut after 2000 characters]" in told


@pytest.mark.parametrize("content", [b"\x89PNG\0\0", b"caf\xe9 in Latin-1", "text".encode("utf-16")])
def test_what_is_no_utf8_text_is_said(tmp_path: Path, content: bytes) -> None:
    """Pictures and other encodings are named as such, not shown as noise."""
    with pytest.raises(VaultError, match=r"not (UTF-8 )?text"):
        read(tmp_path, content)


def test_a_section(tmp_path: Path) -> None:
    """Only what stands below a heading, with the numbers that the lines have in the note."""
    told = read(tmp_path, "# A\na\n## B\nb\n# C\nc\n", heading="B")
    assert told.splitlines()[1:] == ["   3  ## B", "   4  b"]


def test_an_empty_note_and_lines_beyond_the_end(tmp_path: Path) -> None:
    """Both are said in a sentence."""
    assert read(tmp_path, "").endswith("The note is empty.")
    with pytest.raises(VaultError, match="only 1 lines"):
        read(tmp_path, "one\n", first=5)


def test_frontmatter_only(tmp_path: Path) -> None:
    """The properties without the body."""
    vault = vault_of(tmp_path, {"Note.md": "---\ntags: [a, b]\nstatus: done\n---\nBody\n"})
    told = text_told(tell_note(vault, "Note", 1, 0, "", frontmatter_only=True))
    assert told.splitlines()[1:] == ["tags: a, b", "status: done"]


def test_outline(tmp_path: Path) -> None:
    """Headings with their lines, so that one section can be read instead of all."""
    vault = vault_of(tmp_path, {"Note.md": "---\nkey: x\n---\n# A\ntext\n## B\n"})
    head, *rows = tell_outline(vault, "Note").splitlines()
    assert head.endswith("frontmatter: key")
    assert rows == ["   4  # A (3 lines)", "   6  ## B (1 lines)"]


def test_a_name_alone_is_enough_to_read(tmp_path: Path) -> None:
    """As in links: where only one note has the name, its folder need not be known."""
    vault = vault_of(tmp_path, {"A/B/Plan.md": "deep", "A/Twice.md": "", "B/Twice.md": ""})
    assert vault.read("plan", anywhere=True).text() == "deep"
    with pytest.raises(NoSuchNote, match=r"2 notes 'Twice': A/Twice.md, B/Twice.md"):
        vault.read("Twice", anywhere=True)
    with pytest.raises(NoSuchNote):
        vault.read("plan")


def test_a_note_beside_a_folder_of_its_name(tmp_path: Path) -> None:
    """`Projects` is the note where there is one, else a folder, which is said."""
    vault = vault_of(
        tmp_path, {"Projects.md": "the note", "Projects/Plan.md": "", "Daily/One.md": "", "run.log": "log"}
    )
    assert vault.read("Projects").text() == "the note"
    assert vault.read("run.log").text() == "log"
    with pytest.raises(VaultError, match="Daily is a folder, not a note"):
        vault.read("Daily")


def test_near_names(tmp_path: Path) -> None:
    """A misspelt name is answered with those that are near."""
    vault = vault_of(tmp_path, {"Projects/Garden plan.md": "", "Projects/Kitchen.md": ""})
    with pytest.raises(NoSuchNote, match=r"There is no note 'Gardn plan'. Near names: Projects/Garden plan.md."):
        vault.read("Gardn plan")
    with pytest.raises(VaultError, match=r"no folder 'Project'. Near names: Projects."):
        text_told(tell_folder(vault, "Project", 0))


def test_a_large_folder_is_listed_piece_by_piece(tmp_path: Path) -> None:
    """Folders first, then notes, each with its whole path; bounded, with how to go on."""
    vault = vault_of(tmp_path, {**{f"A/{n:03}.md": "" for n in range(450)}, "A/B/x.md": "", "A/pic.png": b"\0"})
    told = text_told(tell_folder(vault, "A", 0)).splitlines()
    assert told[:3] == ["The folder A: 1 folders, 450 notes, 1 other files.", "A/B/ (1 notes)", "A/000.md"]
    assert told[-1] == "252 more: call again with offset=200."
    rest = text_told(tell_folder(vault, "a", 400)).splitlines()
    assert rest[-1] == "A/pic.png (not a note)"
    assert len(rest) == 53


def test_a_vault_that_is_gone(tmp_path: Path) -> None:
    """Where the folder is missing, the model is told what to tell the user."""
    vault = vault_of(tmp_path, {})
    Path(vault.root).rmdir()
    with pytest.raises(VaultError, match=r"cannot be opened.*vault.path"):
        text_told(tell_folder(vault, "", 0))


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """No descriptor outlives a call, whether it went well or not."""
    vault = vault_of(tmp_path, {"A/B/Note.md": "x"})
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        descriptors = Path("/dev/fd")
    before = len(list(descriptors.iterdir()))
    for path in ("A/B/Note.md", "A/B/No.md", "A/No/Note.md", "Note", "../x", "A/B"):
        for _ in range(20):
            try:
                text_told(tell_note(vault, path, 1, 0, "", frontmatter_only=False))
            except VaultError:
                continue
    assert len(list(descriptors.iterdir())) == before


def test_what_is_not_shown_is_said(tmp_path: Path) -> None:
    """Outlines, properties and counts that are too long say how much is left out, and are bounded."""
    headings = "".join(f"# {n:04} {'x' * 290}\n" for n in range(195))
    keys = "".join(f"k{n}: {'y' * 3000}\n" for n in range(50))
    notes = {"A.md": headings, "B.md": f"---\n{keys}---\n", **{f"{'z' * 245}{n:03}/x.md": "" for n in range(195)}}
    vault = vault_of(tmp_path, notes)
    told = [tell_outline(vault, "A"), text_told(tell_note(vault, "B", 1, 0, "", frontmatter_only=True))]
    told.append(tell_count(vault, "", "", "", ""))
    for text, rows in zip(told, (195, 50, 196), strict=True):
        *shown, last = text.splitlines()[1:]
        assert len(text) <= MOST_CHARACTERS + 100
        assert last == f"{rows - len(shown)} are not shown."


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_odd_names_on_disk(tmp_path: Path) -> None:
    """A name with a colon, as other programs give them, is found, shown and read."""
    vault = vault_of(tmp_path, {"12:30 Meeting.md": "needle", "B\\S.md": "needle"})
    assert text_told(tell_search(vault, "needle", "", "", "", 10, 0)).count("1: needle") == 2
    assert vault.read("12:30 Meeting").text() == "needle"


def test_characters_that_are_none(tmp_path: Path) -> None:
    """An escape for half a character in the frontmatter is shown as a question mark: results are text everywhere."""
    vault = vault_of(tmp_path, {"A.md": '---\nk: "\\ud800x" # why\nl: ["a # b", \'c\']\n---\n'})
    told = text_told(tell_note(vault, "A", 1, 0, "", frontmatter_only=True))
    assert told.encode().decode().splitlines()[1:] == ["k: ?x", "l: a # b, c"]
