"""No path leads out of the vault, to what is hidden in it, or to what is no plain file."""

import os
import socket
import sys
import threading
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cases import cases
from vaults import WAYS, changes_of, files_in, vault_of, write_notes
from vaults import told as text_told

from elbowroom.vault.changes import Changes
from elbowroom.vault.files import version_of
from elbowroom.vault.journal import Journal
from elbowroom.vault.names import NoSuchNote, Scope, VaultError, check_new, is_hidden, split_path
from elbowroom.vault.telling import tell_count, tell_folder, tell_note, tell_outline, tell_search
from elbowroom.vault.vault import Vault

SECRET = "the secret outside"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")


def vault_beside_a_secret(folder: Path, **options: Any) -> Vault:
    """Return a vault with notes beside files that must not be reached."""
    write_notes(folder, {"secret.md": SECRET, "vault-evil/secret.md": SECRET, "outside/secret.md": SECRET})
    notes = {
        "Plan.md": "plan",
        "A/Note.md": "note",
        ".obsidian/app.md": SECRET,
        ".git/config.md": SECRET,
        ".trash/old.md": SECRET,
        "A/.hidden.md": SECRET,
        ".env": SECRET,
    }
    return vault_of(folder, notes, **options)


def every_reader(vault: Vault, path: str) -> list[str]:
    """Return what each way of reading says to a path; a refusal is its message."""
    told = []
    readers: list[Callable[[], str]] = [
        lambda: text_told(tell_note(vault, path, 1, 0, "", frontmatter_only=False)),
        lambda: text_told(tell_folder(vault, path, 0)),
        lambda: text_told(tell_search(vault, "secret", "", "", path, 10, 0)),
        lambda: tell_count(vault, "secret", "", "", path),
        lambda: tell_outline(vault, path),
    ]
    for reader in readers:
        try:
            told.append(reader())
        except VaultError as error:
            told.append(error.message)
    return told


PATHS = [
    "../secret.md",
    "..",
    "A/../../secret.md",
    "A/..",
    "./../secret.md",
    "../vault-evil/secret.md",
    "vault-evil/secret.md",
    "/etc/passwd",
    "//server/share/secret.md",
    "\\\\server\\share\\secret.md",
    "\\\\?\\C:\\secret.md",
    "..\\secret.md",
    "A\\..\\..\\secret.md",
    "C:\\secret.md",
    "C:/secret.md",
    "c:secret.md",
    "%2e%2e/secret.md",
    "..%2fsecret.md",
    "%2e%2e%2fsecret.md",
    "~/secret.md",
    "~",
    "~root/secret.md",
    "../secret.md\0.md",
    "Plan.md\0",
    "Plan.md::$DATA",
    "Plan.md:secret",
    "CON",
    "NUL.md",
    "\u2024\u2024/secret.md",
    "\uff0e\uff0e/secret.md",
    "\u2025/secret.md",
    "..\u2215secret.md",
    "..\uff0fsecret.md",
    "..\uff3csecret.md",
    "\u202e../secret.md",
    "..\u200b/secret.md",
    ".\u200d./secret.md",
    "... /secret.md",
    ".. /secret.md",
    ".. ./secret.md",
    " ../secret.md",
    "A/ ../../secret.md",
    "A//../../secret.md",
    ".obsidian/app.md",
    ".OBSIDIAN/app.md",
    "./.obsidian/app.md",
    "A/../.obsidian/app.md",
    ".obsidian./app.md",
    ".obsidian /app.md",
    "\u200c.obsidian/app.md",
    ".o\u200cbsidian/app.md",
    "\uff0eobsidian/app.md",
    "OBSIDI~1/app.md",
    ".git/config.md",
    ".g\u200cit/config.md",
    ".trash/old.md",
    ".env",
    "A/.hidden.md",
    "A/.hidden",
    "x" * 5000,
    "/".join(["A"] * 600),
    "\udce9.md",
]


@pytest.mark.threat("paths out of the vault", "nothing outside is shown")
@cases("by_descriptor", WAYS)
@cases("path", PATHS)
def test_paths_that_lead_elsewhere(tmp_path: Path, path: str, by_descriptor: bool) -> None:
    """However a path is written, nothing outside and nothing hidden is shown, and the refusal is a sentence."""
    vault = vault_beside_a_secret(tmp_path, by_descriptor=by_descriptor)
    for told in every_reader(vault, path):
        assert SECRET not in told
        assert told.strip()


@cases("by_descriptor", WAYS)
@cases("path", PATHS)
def test_nothing_is_written_elsewhere(tmp_path: Path, path: str, by_descriptor: bool) -> None:
    """However a path is written, no change reaches a file that is hidden or outside, and none is made there."""
    vault = vault_beside_a_secret(tmp_path, by_descriptor=by_descriptor)
    changes = changes_of(tmp_path, {}, by_descriptor=by_descriptor)
    closed = {name: data for name, data in files_in(tmp_path).items() if not name.startswith("undo")}
    ways: list[Callable[[Changes], str]] = [
        lambda c: c.create(path, "x"),
        lambda c: c.append(path, "x", "", ""),
        lambda c: c.patch(path, "frontmatter", "key", "replace", "x", version_of(SECRET.encode())),
        lambda c: c.delete(path, ""),
        lambda c: c.rename("Plan.md", path, ""),
        lambda c: c.rename(path, "New.md", ""),
    ]
    for way in ways:
        try:
            way(changes)
        except VaultError:
            continue
        changes.undo()
    after = {name: data for name, data in files_in(tmp_path).items() if not name.startswith(("undo", "vault/.trash"))}
    assert after == {name: data for name, data in closed.items() if not name.startswith("vault/.trash")}
    assert SECRET in (Path(vault.root) / ".trash" / "old.md").read_text()


@pytest.mark.threat("paths out of the vault", "links are not followed")
@cases("by_descriptor", WAYS)
@cases("target", ["../outside", "../outside/secret.md", "A", "loop", "/etc", "Plan.md"])
def test_links_are_not_followed(tmp_path: Path, target: str, by_descriptor: bool) -> None:
    """A link in the vault is not followed wherever it leads: out, inside, to itself; to a file or to a folder."""
    vault = vault_beside_a_secret(tmp_path, by_descriptor=by_descriptor)
    for name in ("loop", "loop.md"):
        (Path(vault.root) / name).symlink_to(name if target == "loop" else target)
    for path in ("loop", "loop.md", "loop/secret.md", "loop/secret", "loop/Note.md", "loop/passwd"):
        for told in every_reader(vault, path):
            assert SECRET not in told
            assert "root:" not in told
            assert "   1  note" not in told
    assert "loop" not in text_told(tell_folder(vault, "", 0))
    assert sorted(vault.notes()) == [("A", "Note.md"), ("Plan.md",)]


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_a_linked_trash_is_no_way_out(tmp_path: Path, by_descriptor: bool) -> None:
    """Where `.trash` is a link, deleting is refused and the note stays."""
    changes = changes_of(tmp_path, {"Plan.md": "plan"}, by_descriptor=by_descriptor)
    (tmp_path / "outside").mkdir()
    (tmp_path / "vault" / ".trash").symlink_to(tmp_path / "outside")
    with pytest.raises(VaultError, match="link"):
        changes.delete("Plan.md", "")
    assert files_in(tmp_path / "outside") == {}
    assert (tmp_path / "vault" / "Plan.md").read_text() == "plan"


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_hard_links_are_closed(tmp_path: Path, by_descriptor: bool) -> None:
    """A file with a second name may be one outside: it is neither shown, nor found, nor changed."""
    vault = vault_beside_a_secret(tmp_path, by_descriptor=by_descriptor)
    os.link(tmp_path / "secret.md", Path(vault.root) / "second.md")
    for told in every_reader(vault, "second.md"):
        assert SECRET not in told
    with pytest.raises(VaultError, match="hard link"):
        changes_of(tmp_path, {}, by_descriptor=by_descriptor).append("second.md", "x", "", "")
    assert (tmp_path / "secret.md").read_text() == SECRET


@pytest.mark.threat("paths out of the vault", "nothing hangs")
@pytest.mark.parametrize("by_descriptor", WAYS)
@pytest.mark.timeout(20)
def test_pipes_and_sockets_are_not_opened(tmp_path: Path, by_descriptor: bool) -> None:
    """A pipe that nobody writes to does not hold anything up, and a socket is no note."""
    vault = vault_beside_a_secret(tmp_path, by_descriptor=by_descriptor)
    os.mkfifo(Path(vault.root) / "pipe.md")
    before = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(vault.root)  # the path of a socket is short
        try:
            listener.bind("socket.md")
        finally:
            os.chdir(before)
        for path in ("pipe.md", "socket.md"):
            with pytest.raises(VaultError, match="not a file"):
                vault.read(path)
        assert "pipe" not in text_told(tell_folder(vault, "", 0))
        assert text_told(tell_search(vault, "plan", "", "", "", 10, 0)).startswith("1 notes")


@pytest.mark.timeout(20)
@cases("by_descriptor", WAYS)
@cases("name", ["zero", "full", "random", "null"])
def test_devices_are_not_opened(tmp_path: Path, name: str, by_descriptor: bool) -> None:
    """A device, of which reading would never end, is no file, neither for those that read nor for those that write."""
    vault = Vault("/dev", Scope.of((), ()), by_descriptor=by_descriptor)
    changes = Changes(vault, Journal(tmp_path / "undo"), "writer")
    ways: list[Callable[[], object]] = [
        lambda: vault.read(name),
        lambda: text_told(tell_note(vault, name, 1, 0, "", frontmatter_only=False)),
        lambda: changes.append(name, "x", "", ""),
        lambda: changes.delete(name, ""),
    ]
    for way in ways:
        with pytest.raises(VaultError, match="not a file"):
            way()
    assert not (tmp_path / "undo").exists() or files_in(tmp_path / "undo") == {}


@pytest.mark.timeout(20)
def test_huge_files_are_not_read_whole(tmp_path: Path) -> None:
    """A file of five gigabytes is said to be too large, by every way to read, change and search it."""
    vault = vault_beside_a_secret(tmp_path)
    with (Path(vault.root) / "Huge.md").open("wb") as file:
        file.truncate(5 << 30)
    with pytest.raises(VaultError, match="too large"):
        text_told(tell_note(vault, "Huge.md", 1, 0, "", frontmatter_only=False))
    with pytest.raises(VaultError, match="too large"):
        changes_of(tmp_path, {}).append("Huge.md", "x", "", "")
    assert "1 notes are too large" in text_told(tell_search(vault, "plan", "", "", "", 10, 0))


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_other_ways_to_write_a_name_find_the_note(tmp_path: Path, by_descriptor: bool) -> None:
    """Accents composed or not and another case mean the same note, and the name on disk is what counts."""
    name = unicodedata.normalize("NFD", "Café Plan.md")
    vault = vault_of(tmp_path, {name: "coffee"}, by_descriptor=by_descriptor)
    for written in (unicodedata.normalize("NFC", name), name, "CAFÉ plan", "café plan.md"):
        assert vault.read(written).text() == "coffee"


def test_a_name_that_two_notes_may_mean(tmp_path: Path) -> None:
    """Where two notes differ in case only, the very name means one of them, and another spelling none."""
    vault = vault_of(tmp_path, {"plan.md": "small"})
    write_notes(tmp_path / "vault", {"PLAN.md": "large"})
    if len(list((tmp_path / "vault").iterdir())) == 1:
        pytest.skip("this file system ignores case")
    assert vault.read("PLAN.md").text() == "large"
    with pytest.raises(NoSuchNote):
        vault.read("Plan.md")


@cases("by_descriptor", WAYS)
@cases("folder", ["Private", "private", "PRIVATE"])
def test_excluded_folders_stay_closed_in_any_case(tmp_path: Path, folder: str, by_descriptor: bool) -> None:
    """What is excluded is closed however it is written in the settings and by the model."""
    notes = {"Private/Diary.md": SECRET, "Plan.md": "plan"}
    vault = vault_of(tmp_path, notes, exclude=(folder,), by_descriptor=by_descriptor)
    for path in (
        "Private/Diary.md",
        "private/diary.md",
        "PRIVATE/Diary",
        "Diary",
        "Private",
        "Private/",
        "Plan/../Private",
    ):
        for told in every_reader(vault, path):
            assert SECRET not in told
            assert "Diary.md" not in told.replace(path, "")


@pytest.mark.parametrize("by_descriptor", WAYS)
def test_only_included_folders_are_open(tmp_path: Path, by_descriptor: bool) -> None:
    """With `include`, the rest of the vault is not there; excluded folders in it are closed all the same."""
    notes = {"Work/A/Note.md": "note", "Work/B/Other.md": SECRET, "Home.md": SECRET, "Work/Top.md": SECRET}
    vault = vault_of(tmp_path, notes, include=("Work/A",), by_descriptor=by_descriptor)
    assert vault.read("Work/A/Note").text() == "note"
    assert [name for name, _ in vault.listing("").folders] == ["Work"]
    assert [name for name, _ in vault.listing("Work").folders] == ["A"]
    for path in ("Work/B/Other.md", "Home.md", "Work/Top.md", "Other", "Work/B"):
        for told in every_reader(vault, path):
            assert SECRET not in told
    with pytest.raises(VaultError, match="not open"):
        changes_of(tmp_path, {}, include=("Work/A",), by_descriptor=by_descriptor).create("Work/B/New.md", "x")


@pytest.mark.threat("paths out of the vault", "also while they are swapped")
@pytest.mark.parametrize("times", [250, pytest.param(1000, marks=pytest.mark.long)])
def test_a_swapped_folder_does_not_lead_out(tmp_path: Path, times: int) -> None:
    """While a folder is swapped with a link to one outside, over and over, nothing outside is read or written."""
    changes = changes_of(tmp_path, {"A/Note.md": "inside"})
    write_notes(tmp_path, {"outside/Note.md": SECRET})
    root, stop = tmp_path / "vault", threading.Event()
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    works: list[Callable[[], str]] = [
        lambda: changes.vault.read("A/Note.md").text(),
        lambda: text_told(tell_search(changes.vault, "secret", "", "", "", 10, 0)),
        lambda: changes.append("A/Note.md", "more", "", ""),
    ]

    def swap() -> None:
        while not stop.is_set():
            os.rename(root / "A", tmp_path / "kept")
            os.rename(tmp_path / "link", root / "A")
            os.rename(root / "A", tmp_path / "link")
            os.rename(tmp_path / "kept", root / "A")

    swapper = threading.Thread(target=swap)
    swapper.start()
    read, rounds = set[str](), 0
    try:
        while rounds < times or not any(told.startswith("inside") for told in read):
            rounds += 1
            for work in works:
                try:
                    read.add(work())
                except VaultError as error:
                    read.add(error.message)
    finally:
        stop.set()
        swapper.join()
    assert not [told for told in read if SECRET in told]
    assert files_in(tmp_path / "outside") == {"Note.md": SECRET.encode()}


@pytest.mark.slow
def test_a_swapped_file_does_not_lead_out(tmp_path: Path) -> None:
    """While a note is swapped with a link to a file outside, over and over, that file is never read or changed."""
    changes = changes_of(tmp_path, {"Note.md": "inside"})
    write_notes(tmp_path, {"outside.md": SECRET})
    note, stop = tmp_path / "vault" / "Note.md", threading.Event()
    works: list[Callable[[], str]] = [
        lambda: changes.vault.read("Note.md").text(),
        lambda: changes.append("Note.md", "more", "", ""),
    ]

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            other = tmp_path / f"next-{number}"
            if number % 2:
                other.symlink_to(tmp_path / "outside.md")
            else:
                other.write_text("inside")
            other.replace(note)

    swapper = threading.Thread(target=swap)
    swapper.start()
    read = set()
    try:
        for _ in range(1500):
            for work in works:
                try:
                    read.add(work())
                except VaultError as error:
                    read.add(error.message)
    finally:
        stop.set()
        swapper.join()
    assert not [told for told in read if SECRET in told]
    assert (tmp_path / "outside.md").read_text() == SECRET


@pytest.mark.timeout(60)
def test_a_swapped_pipe_holds_nothing_up(tmp_path: Path) -> None:
    """While a note is swapped with a pipe that nobody writes to, over and over, every read ends."""
    vault = vault_of(tmp_path, {"Note.md": "inside"})
    note, stop = Path(vault.root) / "Note.md", threading.Event()
    os.mkfifo(tmp_path / "pipe")

    def swap() -> None:
        while not stop.is_set():
            os.rename(note, tmp_path / "kept")
            os.rename(tmp_path / "pipe", note)
            os.rename(note, tmp_path / "pipe")
            os.rename(tmp_path / "kept", note)

    swapper = threading.Thread(target=swap)
    swapper.start()
    read = set()
    try:
        for _ in range(2000):
            try:
                read.add(vault.read("Note.md").text())
                vault.refresh()
            except VaultError:
                continue
    finally:
        stop.set()
        swapper.join()
    assert read <= {"inside"}


def test_a_swapped_root_does_not_lead_out(tmp_path: Path) -> None:
    """While the vault itself is swapped with another folder, nothing is written there that was read elsewhere."""
    changes = changes_of(tmp_path, {"Note.md": "inside\n"})
    write_notes(tmp_path, {"other/Note.md": SECRET})
    root, stop = Path(changes.vault.root), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(root, tmp_path / "kept")
            os.rename(tmp_path / "other", root)
            os.rename(root, tmp_path / "other")
            os.rename(tmp_path / "kept", root)

    swapper = threading.Thread(target=swap)
    swapper.start()
    version = version_of(b"inside\n")
    try:
        for _ in range(500):
            with suppress(VaultError):
                changes.append("Note.md", "more", "", version)
                changes.undo()
    finally:
        stop.set()
        swapper.join()
    assert (tmp_path / "other" / "Note.md").read_text() == SECRET


@pytest.mark.timeout(60)
def test_one_line_of_fifty_megabytes(tmp_path: Path) -> None:
    """Such a file is read by its beginning, is not searched, which is said, and changes nothing for others."""
    vault = vault_of(tmp_path, {"Plan.md": "plan a"})
    with (Path(vault.root) / "Line.md").open("wb") as file:
        for _ in range(50):
            file.write(b"a" * (1 << 20))
    assert "[line cut after 2000 characters]" in text_told(
        tell_note(vault, "Line.md", 1, 0, "", frontmatter_only=False)
    )
    for query in ("(a+)+$", "(a|aa)+$", "a"):
        assert "1 notes are too large" in text_told(tell_search(vault, query, "", "", "", 10, 0))


@cases("name", ["CON", "nul.md", "Lpt1.md", "a?.md", "a*.md", "end.", "end ", "a#b.md", "x" * 300])
def test_new_names_work_on_every_system(name: str) -> None:
    """A name that another system or a link could not hold is not given to a new note."""
    with pytest.raises(VaultError):
        check_new((name,))


USUAL = ["Plan.md", "…and then.md", "Café ☕️.md", "👩‍🚀 Space.md", "日本語.md", "a.b.c.md", "Étude n°5.md"]


@cases("name", USUAL)
def test_usual_names_are_open(name: str) -> None:
    """Letters of all scripts, emojis with what joins them, and dots inside of a name are fine."""
    assert split_path(f"Folder/{name}") == ("Folder", name)
    assert not is_hidden(name)
    check_new((name,))
