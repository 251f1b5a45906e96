"""The settings file is the old one or the new one, whatever fails, and stays the kind of file that it was."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from elbowroom.errors import SettingsNotSaved
from elbowroom.settings.files import replace_file, write_private

POSIX = pytest.mark.skipif(os.name != "posix", reason="Windows has other rights and limits")
TRY = """
import os, resource, sys
from pathlib import Path
from elbowroom.errors import SettingsNotSaved
from elbowroom.settings.files import replace_file
path, limit = Path(sys.argv[1]), int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
elif os.geteuid() == 0:  # nothing is read-only to root
    os.setuid(65534)
try:
    replace_file(path, b"x" * 5000, path.read_bytes())
except SettingsNotSaved as error:
    sys.exit(error.message)
"""


def refusal(path: Path, limit: int = 0) -> str:
    """Replace the file in a program that may not, or not with so many bytes, and return what it says."""
    command = [sys.executable, "-c", TRY, str(path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    return done.stderr.strip()


def mode_of(path: Path) -> int:
    """Return the rights of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


def test_the_content_before_is_beside_it(tmp_path: Path) -> None:
    """The file is replaced, and one backup has what it held before; nothing else is left."""
    path = tmp_path / "settings.toml"
    replace_file(path, b"one", None)
    assert [file.name for file in tmp_path.iterdir()] == ["settings.toml"]
    replace_file(path, b"two", b"one")
    replace_file(path, b"three", b"two")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "settings.toml": b"three",
        "settings.toml.bak": b"two",
    }


def test_what_a_killed_attempt_left_is_no_obstacle(tmp_path: Path) -> None:
    """A half-written file of an attempt that was killed is cleared away."""
    path = tmp_path / "settings.toml"
    path.write_bytes(b"one")
    (tmp_path / ".settings.toml.new").write_bytes(b"half")
    replace_file(path, b"two", b"one")
    assert path.read_bytes() == b"two"
    assert not (tmp_path / ".settings.toml.new").exists()


@POSIX
def test_a_new_file_is_its_owners(tmp_path: Path) -> None:
    """The folder is made where there is none; others can read neither it nor the file."""
    path = tmp_path / "config" / "elbowroom" / "settings.toml"
    replace_file(path, b"one", None)
    assert (mode_of(path), mode_of(path.parent)) == (0o600, 0o700)
    write_private(tmp_path / "secrets" / "key", b"k")
    assert (mode_of(tmp_path / "secrets" / "key"), mode_of(tmp_path / "secrets")) == (0o600, 0o700)


@POSIX
def test_rights_and_links_stay(tmp_path: Path) -> None:
    """The file behind a link is replaced, with the rights that it had; its backup has the same."""
    real, link = tmp_path / "dotfiles" / "mine.toml", tmp_path / "settings.toml"
    real.parent.mkdir()
    real.write_bytes(b"one")
    real.chmod(0o640)
    link.symlink_to(real)
    replace_file(link, b"two", b"one")
    assert link.is_symlink()
    assert real.read_bytes() == b"two"
    assert mode_of(real) == mode_of(real.with_name("mine.toml.bak")) == 0o640
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["settings.toml"]


@POSIX
def test_a_folder_that_is_read_only() -> None:
    """What is said names the file, the reason and the remedy; the file is as it was."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.toml"
        path.write_bytes(b"one")
        path.chmod(0o644)
        Path(folder).chmod(0o555)
        said = refusal(path)
        Path(folder).chmod(0o755)
        assert [file.name for file in Path(folder).iterdir()] == ["settings.toml"]
        assert path.read_bytes() == b"one"
    assert said.startswith(f"{path} cannot be written: Permission denied.")
    assert f"write in the folder {path.parent}" in said


@POSIX
def test_a_full_disk(tmp_path: Path) -> None:
    """A file that cannot be written to its end replaces nothing and is cleared away."""
    path = tmp_path / "settings.toml"
    path.write_bytes(b"one")
    assert f"Make room on the disk of {tmp_path}" in refusal(path, limit=1000)
    assert path.read_bytes() == b"one"
    assert not (tmp_path / ".settings.toml.new").exists()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    """Whatever else the system says is passed on."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SettingsNotSaved, match=r"settings\.toml cannot be written"):
        replace_file(tmp_path / "file" / "settings.toml", b"one", None)
