"""One server for each data folder."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import run, running

from elbowroom.errors import ElbowroomError
from elbowroom.store import is_in_use, only_process

HOLDER = """
import sys
from pathlib import Path
from elbowroom.store import only_process

with only_process(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a database's lock."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.mark.slow
def test_a_second_process_is_refused_in_words(tmp_path: Path) -> None:
    """The refusal names the folder and what to do; another database in the same folder is free."""
    path = tmp_path / "data" / "elbowroom.db"
    with held_by_another_process(path):
        with pytest.raises(ElbowroomError) as refusal, only_process(path):
            pass
        with only_process(path.with_name("other.db")):
            pass
    assert str(refusal.value).startswith(f"Another elbowroom is running with the data folder {path.parent} and has ")
    assert "ELBOWROOM_DATA_DIR" in str(refusal.value)


@pytest.mark.slow
def test_a_killed_process_frees_the_lock(tmp_path: Path) -> None:
    """However a process dies, the next one may start at once."""
    path = tmp_path / "elbowroom.db"
    for _ in range(2):
        with held_by_another_process(path) as holder:
            holder.kill()
            holder.wait()
            with only_process(path):
                pass


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there the lock is by the path")
def test_the_lock_is_on_the_file_itself(tmp_path: Path) -> None:
    """No other name of the file, and no lock file that somebody removes, lets a second server in."""
    path = tmp_path / "data" / "elbowroom.db"
    linked, symbolic, hard = (tmp_path / way / path.name for way in ("link to the folder", "symbolic", "hard"))
    with held_by_another_process(path):
        linked.parent.symlink_to(path.parent)
        symbolic.parent.mkdir()
        symbolic.symlink_to(path)
        hard.parent.mkdir()
        hard.hardlink_to(path)
        for other in (linked, symbolic, hard, path):
            if other == path:
                path.with_name("elbowroom.db.lock").unlink()
            assert is_in_use(other), other
            with pytest.raises(ElbowroomError, match="Another elbowroom is running"), only_process(other):
                pass
    for other in (linked, symbolic, hard, path):
        with only_process(other):
            pass


def test_memory_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file nothing is written."""
    monkeypatch.chdir(tmp_path)
    with only_process(None), only_process(None):
        assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_locked_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Below a file there is no folder: the server starts all the same, since chats go on without their store."""
    (tmp_path / "data").write_text("in the way", encoding="utf-8")
    path = tmp_path / "data" / "elbowroom.db"
    with only_process(path):
        (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"{path} cannot be locked (")


@pytest.mark.slow
@pytest.mark.fault("two processes on one folder", "first", "the second is refused in words")
async def test_a_second_server_does_not_start(tmp_path: Path) -> None:
    """Even on another port it ends with code 1 before it listens; once the first is killed it may start."""
    async with running(tmp_path, "serve", "--port", "0") as first:
        await first.address()
        second = await asyncio.to_thread(run, tmp_path, "serve", "--port", "0")
        assert second.returncode == 1
        assert second.stderr.splitlines()[-1].startswith("elbowroom: Another elbowroom is running with the data folder")
        assert "Paste this" not in second.stdout + second.stderr
        await first.end(signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
    async with running(tmp_path, "serve", "--port", "0") as third:
        await third.address()


@pytest.mark.slow
async def test_a_server_with_a_folder_of_its_own_and_the_demo_start(tmp_path: Path) -> None:
    """Neither asks for the lock that the data folder's server has."""
    data = tmp_path / "data"
    with only_process(data / "elbowroom.db"):
        for command in ("serve", "demo"):
            own = {"ELBOWROOM_DATA_DIR": str(tmp_path / "other" if command == "serve" else data)}
            async with running(tmp_path, command, "--port", "0", variables=own) as program:
                await program.address()
