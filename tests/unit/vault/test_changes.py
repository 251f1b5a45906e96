"""Changes are whole or not at all, keep what they do not touch, and can be taken back."""

import os
import stat
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from vaults import WAYS, changes_of, files_in

from elbowroom.vault.changes import Changes
from elbowroom.vault.files import version_of
from elbowroom.vault.folder import rename_to_free
from elbowroom.vault.index import Index
from elbowroom.vault.journal import Journal, Relocated, Written
from elbowroom.vault.names import Moved, NoSuchNote, VaultError

NOTES = {
    "Plan.md": "# Plan\r\n\r\nText\r\n",
    "Log.md": "No end",
    "A/Index.md": "[[Plan]], [[plan#Plan|the plan]], ![[Plan.md]], [md](../Plan.md#x), [[Plan B]], `[[Plan]]`\n",
    "Home.md": "---\nup: '[[Plan]]'\n---\n[[Plan\\|in a table]] [x](Plan.md) [y](http://e.org/Plan.md)\n```\n[[Plan]]\n```\n",
}


def vault_files(changes: Changes) -> dict[str, bytes]:
    """Return the files of the vault that are not in its trash."""
    files = files_in(Path(changes.vault.root))
    return {name: data for name, data in files.items() if not name.startswith(".trash")}


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_create(tmp_path: Path, by_descriptor: bool) -> None:
    """A note in a folder that is made for it, ending in a line end; none that is there is replaced."""
    changes = changes_of(tmp_path, NOTES, by_descriptor=by_descriptor)
    data = b"# New\n\nText\n"
    assert changes.create("B/C/New", "# New\n\nText") == f"Created B/C/New.md, version {version_of(data)}."
    assert (tmp_path / "vault" / "B" / "C" / "New.md").read_bytes() == data
    for taken in ("B/C/New.md", "b/c/NEW", "plan"):
        with pytest.raises(VaultError, match="already a note"):
            changes.create(taken, "x")


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_append(tmp_path: Path, by_descriptor: bool) -> None:
    """Line ends and the end of the file stay as they were, and so do the permissions."""
    changes = changes_of(tmp_path, NOTES, by_descriptor=by_descriptor)
    (tmp_path / "vault" / "Plan.md").chmod(0o640)
    changes.append("Plan", "one\ntwo\n", "", "")
    changes.append("Log.md", "more\n", "", "")
    files = vault_files(changes)
    assert files["Plan.md"] == b"# Plan\r\n\r\nText\r\none\r\ntwo\r\n"
    assert files["Log.md"] == b"No end\nmore"
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "vault" / "Plan.md").stat().st_mode) == 0o640
    assert sorted(files) == sorted(NOTES), "no temporary file is left"


def test_patch_asks_for_the_version(tmp_path: Path) -> None:
    """A patch without the version, or with another than the note has, changes nothing."""
    changes = changes_of(tmp_path, NOTES)
    before = vault_files(changes)
    with pytest.raises(VaultError, match="Read the note first"):
        changes.patch("Plan", "heading", "Plan", "replace", "x", "")
    with pytest.raises(Moved, match="Read it again"):
        changes.patch("Plan", "heading", "Plan", "replace", "x", version_of(b"old"))
    assert vault_files(changes) == before
    told = changes.patch("Plan", "heading", "Plan", "replace", "x", changes.vault.read("Plan").version)
    assert told.endswith(f"version {version_of(b'# Plan' + bytes([13, 10, 13, 10]) + b'x' + bytes([13, 10]))} now.")


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_rename_updates_links(tmp_path: Path, by_descriptor: bool) -> None:
    """Wikilinks, embeds and Markdown links follow the note; aliases, headings, code and other links stay."""
    changes = changes_of(tmp_path, NOTES, by_descriptor=by_descriptor)
    before = vault_files(changes)
    assert changes.rename("Plan", "B/Great plan", "").endswith("; 7 links in 2 notes were updated.")
    files = vault_files(changes)
    assert files["B/Great plan.md"] == before["Plan.md"]
    assert files["A/Index.md"].decode() == (
        "[[Great plan]], [[Great plan#Plan|the plan]], ![[Great plan.md]], [md](../B/Great%20plan.md#x), [[Plan B]], "
        "`[[Plan]]`\n"
    )
    assert files["Home.md"].decode() == (
        "---\nup: '[[Great plan]]'\n---\n[[Great plan\\|in a table]] [x](B/Great%20plan.md) [y](http://e.org/Plan.md)\n"
        "```\n[[Plan]]\n```\n"
    )
    changes.undo()
    assert vault_files(changes) == before


def test_rename_where_names_repeat(tmp_path: Path) -> None:
    """A link by name means the note in the same folder, else the nearest to the root; a new name that another note
    has is written with its path.
    """
    notes = {
        "Plan.md": "",
        "A/Plan.md": "",
        "A/x.md": "[[Plan]] [[/Plan]]",
        "B/y.md": "[[Plan]] [[A/Plan]]",
        "C/Z.md": "",
    }
    changes = changes_of(tmp_path, notes)
    changes.rename("A/Plan.md", "D/Z.md", "")
    files = vault_files(changes)
    assert files["A/x.md"] == b"[[D/Z]] [[/Plan]]"
    assert files["B/y.md"] == b"[[Plan]] [[D/Z]]"


def test_rename_where_a_link_has_the_end_of_the_path(tmp_path: Path) -> None:
    """`B/Plan` means `A/B/Plan` where no other note's path ends so."""
    changes = changes_of(tmp_path, {"A/B/Plan.md": "", "C/Plan.md": "", "x.md": "[[B/Plan#One|two]] [[C/Plan]]"})
    changes.rename("A/B/Plan.md", "New.md", "")
    assert vault_files(changes)["x.md"] == b"[[New#One|two]] [[C/Plan]]"


def test_rename_keeps_the_notes_own_links(tmp_path: Path) -> None:
    """A note that moves to another folder keeps pointing to where its own relative links did, and to itself."""
    notes = {"A/Plan.md": "[n](Near.md) [[Near]] [s](Plan.md#x) [[Plan#x]] [h](#x)", "A/Near.md": "[back](Plan.md)"}
    changes = changes_of(tmp_path, notes)
    changes.rename("A/Plan.md", "B/C/New.md", "")
    assert vault_files(changes) == {
        "A/Near.md": b"[back](../B/C/New.md)",
        "B/C/New.md": b"[n](../../A/Near.md) [[Near]] [s](New.md#x) [[New#x]] [h](#x)",
    }


def test_rename_in_case_only(tmp_path: Path) -> None:
    """`plan` may become `Plan`."""
    changes = changes_of(tmp_path, {"plan.md": "x", "b.md": "[[plan]]"})
    changes.rename("plan.md", "Plan.md", "")
    assert vault_files(changes) == {"Plan.md": b"x", "b.md": b"[[Plan]]"}


def test_closed_folders_are_not_relinked(tmp_path: Path) -> None:
    """What the agent may not see is not changed behind its back."""
    changes = changes_of(tmp_path, {"Plan.md": "", "Private/x.md": "[[Plan]]"}, exclude=("Private",))
    changes.rename("Plan", "New", "")
    assert vault_files(changes)["Private/x.md"] == b"[[Plan]]"


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_delete_and_undo(tmp_path: Path, by_descriptor: bool) -> None:
    """A deleted note is in the vault's trash under a name of its own, and comes back."""
    changes = changes_of(tmp_path, NOTES, by_descriptor=by_descriptor)
    before = vault_files(changes)
    changes.delete("Plan", "")
    changes.create("Plan", "another")
    changes.delete("Plan", "")
    trash = files_in(tmp_path / "vault" / ".trash")
    assert trash == {"Plan.md": before["Plan.md"], "Plan 2.md": b"another\n"}
    with pytest.raises(NoSuchNote):
        changes.vault.read("Plan")
    for what in ("deleted Plan.md", "created Plan.md", "deleted Plan.md"):
        assert changes.undo() == f"Undone: {what}."
    assert vault_files(changes) == before
    with pytest.raises(VaultError, match="no change of yours"):
        changes.undo()


def test_undo_goes_back_step_by_step(tmp_path: Path) -> None:
    """Each undo takes back one change, the newest first, byte for byte."""
    changes = changes_of(tmp_path, NOTES)
    states = [vault_files(changes)]
    for number in range(5):
        changes.append("Plan", f"line {number}", "", "")
        states.append(vault_files(changes))
    while states:
        assert vault_files(changes) == states.pop()
        if states:
            changes.undo()


def test_undo_refuses_where_somebody_changed_the_note(tmp_path: Path) -> None:
    """What another program wrote since is not lost by undoing."""
    changes = changes_of(tmp_path, NOTES)
    changes.rename("Plan", "New", "")
    (tmp_path / "vault" / "Home.md").write_text("by hand")
    before = vault_files(changes)
    with pytest.raises(Moved, match=r"Home\.md has changed since"):
        changes.undo()
    assert vault_files(changes) == before


def test_each_agent_undoes_its_own(tmp_path: Path) -> None:
    """An agent does not take back what another one did."""
    changes = changes_of(tmp_path, NOTES)
    changes.append("Plan", "mine", "", "")
    other = replace(changes, agent="other")
    other.append("Log", "other's", "", "")
    assert changes.undo() == "Undone: appended to Plan.md."
    assert other.undo() == "Undone: appended to Log.md."


def test_without_a_journal_nothing_is_changed(tmp_path: Path) -> None:
    """Where what is needed to undo cannot be written, the change is refused."""
    changes = changes_of(tmp_path, NOTES)
    (tmp_path / "file").write_text("")
    before = vault_files(changes)
    with pytest.raises(VaultError, match="Nothing was changed"):
        replace(changes, journal=Journal(tmp_path / "file" / "undo")).append("Plan", "x", "", "")
    assert vault_files(changes) == before


def test_a_change_that_fails_half_way_is_taken_back(tmp_path: Path) -> None:
    """Where one of several steps cannot be done, all notes are as before, and nothing is left to undo."""
    changes = changes_of(tmp_path, NOTES)
    before = vault_files(changes)
    data = b"changed"
    first = Written("Log.md", before["Log.md"].decode(), version_of(data))
    new = Written("B/New.md", None, version_of(data))
    moved = Relocated("Home.md", "Away.md", version_of(before["Home.md"]))
    stale = Written("Plan.md", "what it never held", version_of(data))
    with changes._steps() as steps, pytest.raises(Moved):
        changes._apply(steps, "changed", [first, new, moved, stale], [data, data, data])
    assert vault_files(changes) == before
    with pytest.raises(VaultError, match="no change of yours"):
        changes.undo()


def test_undo_after_a_change_that_was_cut_off(tmp_path: Path) -> None:
    """A machine that goes down in the middle of a renaming: undo takes back the part that was done."""
    changes = changes_of(tmp_path, NOTES)
    before = vault_files(changes)
    changes.rename("Plan", "New", "")
    entry = changes.journal.last("writer")
    assert entry is not None
    root = tmp_path / "vault"
    (root / "New.md").rename(root / "Plan.md")
    (root / "A" / "Index.md").write_bytes(before["A/Index.md"])
    changes.undo()
    assert vault_files(changes) == before


def test_what_another_program_writes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """While another program writes the note over and over, each of its versions is seen or the change refused."""
    changes = changes_of(tmp_path, {"Note.md": "0\n"})
    note = tmp_path / "vault" / "Note.md"
    for number in range(50):
        version = changes.vault.read("Note").version
        note.write_text(f"{number + 1}\n")
        with pytest.raises(Moved):
            changes.append("Note", "x", "", version)
    assert note.read_text() == "50\n"


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what a descriptor stands for")
@pytest.mark.parametrize("name", ["Note.md", "New.md"])
def test_a_note_takes_its_place_when_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The whole new note is written and synchronised beside its place, under a hidden name, before it is there."""
    changes = changes_of(tmp_path, {"A/Note.md": "old\n"})
    folder, fsync = tmp_path / "vault" / "A", os.fsync
    before = (folder / name).read_text() if (folder / name).exists() else None
    seen: list[tuple[str, str | None]] = []

    def synchronised(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.parent == folder:
            there = (folder / name).read_text() if (folder / name).exists() else None
            seen.append((path.read_text(), there))
            assert path.name.startswith(".elbowroom-")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", synchronised)
    if before is None:
        changes.create(f"A/{name}", "new\n")
    else:
        changes.append(f"A/{name}", "new\n", "", "")
    assert seen == [((folder / name).read_text(), before)]
    assert sorted(path.name for path in folder.iterdir()) == sorted({"Note.md", name})


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot let two names change places")
def test_no_version_of_another_program_is_lost(tmp_path: Path) -> None:
    """Another program puts version after version in the note's place while the agent appends to it: whatever is in
    the way of whom, the last version that the program wrote is what stands in the note, with what was appended to it.
    """
    changes = changes_of(tmp_path, {"Note.md": "v0\n"})
    note, stop = tmp_path / "vault" / "Note.md", threading.Event()

    def append() -> None:
        while not stop.is_set():
            with suppress(VaultError):
                changes.append("Note", "x", "", "")

    agent = threading.Thread(target=append)
    agent.start()
    try:
        for number in range(1, 200):
            other = tmp_path / "next"
            other.write_text(f"v{number}\n")
            other.replace(note)
            sleep(0.001 * (number % 4))
            assert read_settled(note).startswith(f"v{number}\n")
    finally:
        stop.set()
        agent.join()


def read_settled(note: Path) -> str:
    """Return what a note holds once it holds the same twice; a version that is about to come back has its time."""
    text = note.read_text()
    for _ in range(50):
        sleep(0.0005)
        if (now := note.read_text()).splitlines()[0] == text.splitlines()[0]:
            return now
        text = now
    return text


@pytest.mark.parametrize("taken", ["New.md", ".trash/Plan.md"])
def test_a_file_that_comes_in_between_is_not_replaced(tmp_path: Path, taken: str) -> None:
    """Where another program makes a file of the very name a moment before, that file stays as it is."""
    changes = changes_of(tmp_path, {"Plan.md": "plan", taken: "another's"})
    with changes.vault.opened() as root, root.open_folder(".trash") if "/" in taken else nullcontext(root) as target:
        with pytest.raises(FileExistsError):
            rename_to_free(root, "Plan.md", target, taken.rsplit("/", 1)[-1])
    assert files_in(tmp_path / "vault") == {"Plan.md": b"plan", taken: b"another's"}


def test_the_journal_takes_a_bounded_room(tmp_path: Path) -> None:
    """The oldest changes go when all together take too much, the newest is always kept."""
    changes = replace(changes_of(tmp_path, {"Note.md": "x" * 10_000}), journal=Journal(tmp_path / "undo", 35_000))
    for number in range(9):
        changes.append("Note", str(number), "", "")
    assert len(os.listdir(tmp_path / "undo")) == 3
    tight = replace(changes, journal=Journal(tmp_path / "undo", 1))
    tight.append("Note", "last", "", "")
    assert len(os.listdir(tmp_path / "undo")) == 1
    assert tight.undo() == "Undone: appended to Note.md."


def test_changes_at_the_same_time(tmp_path: Path) -> None:
    """Changes by many threads come one after the other: no line is lost."""
    changes = changes_of(tmp_path, {"Note.md": ""})
    start = threading.Barrier(4)

    def work(worker: int) -> None:
        start.wait()
        for number in range(10):
            changes.append("Note", f"{worker}-{number}", "", "")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    lines = vault_files(changes)["Note.md"].decode().splitlines()
    assert sorted(lines) == sorted(f"{worker}-{number}" for worker in range(4) for number in range(10))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such permissions")
def test_the_journal_is_private(tmp_path: Path) -> None:
    """Only the owner reads what notes held; the number of entries is bounded."""
    changes = changes_of(tmp_path, {"Note.md": ""})
    for number in range(205):
        changes.append("Note", str(number), "", "")
    entries = list((tmp_path / "undo").iterdir())
    assert len(entries) <= 201
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in entries} == {0o600}
    assert stat.S_IMODE((tmp_path / "undo").stat().st_mode) == 0o700


def test_what_is_not_a_note_is_not_changed(tmp_path: Path) -> None:
    """Other files can be read and nothing more; names of other kinds get the ending of a note."""
    changes = changes_of(tmp_path, {"script.sh": "echo\n"})
    ways: list[Callable[[], str]] = [
        lambda: changes.append("script.sh", "x", "", ""),
        lambda: changes.delete("script.sh", ""),
        lambda: changes.rename("script.sh", "x", ""),
    ]
    for change in ways:
        with pytest.raises(VaultError, match="not a note"):
            change()
    changes.create("run.sh", "x")
    assert sorted(vault_files(changes)) == ["run.sh.md", "script.sh"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_folders_that_have_odd_names(tmp_path: Path) -> None:
    """A folder that is there may hold new notes whatever it is called; new folders and notes get no such name."""
    changes = changes_of(tmp_path, {"What is it?/Plan.md": ""})
    changes.create("what is it?/New/Note", "x")
    changes.rename("What is it?/Plan", "What is it?/Plan B", "")
    assert sorted(vault_files(changes)) == ["What is it?/New/Note.md", "What is it?/Plan B.md"]
    for path in ("What is it?/Who?/x", "What is it?/Who?", "New?/x"):
        with pytest.raises(VaultError, match="not allowed in new names"):
            changes.create(path, "x")
    assert sorted(vault_files(changes)) == ["What is it?/New/Note.md", "What is it?/Plan B.md"]


def test_a_damaged_journal_is_passed_over(tmp_path: Path) -> None:
    """An entry that cannot be read does not keep others from being undone."""
    changes = changes_of(tmp_path, {"Note.md": "x\n"})
    changes.append("Note", "y", "", "")
    (tmp_path / "undo" / "99999999999999999999-x.json").write_text("{")
    assert changes.undo() == "Undone: appended to Note.md."
    assert os.listdir(tmp_path / "undo") == ["99999999999999999999-x.json"]


def test_the_index_knows_own_changes_at_once(tmp_path: Path) -> None:
    """A note that was just written is found by name and by text."""
    changes = changes_of(tmp_path, {})
    changes.create("A/New", "needle")
    assert isinstance(changes.vault.index, Index)
    assert changes.vault.read("new", anywhere=True).text() == "needle\n"


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "語" * 400_000], ids=["NUL", "surrogate", "too long"])
def test_texts_that_no_note_can_hold(tmp_path: Path, text: str) -> None:
    """Nothing is written that could not be read again."""
    changes = changes_of(tmp_path, NOTES)
    before = vault_files(changes)
    ways: list[Callable[[], str]] = [
        lambda: changes.create("New", text),
        lambda: changes.append("Plan", text, "", ""),
    ]
    for change in ways:
        with pytest.raises(VaultError, match=r"no note can hold|too long"):
            change()
    assert vault_files(changes) == before
