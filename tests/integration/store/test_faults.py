"""When the file is damaged, held, read-only or full, the chat goes on, and what could not be written is not lost."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.lasting_store import LastingStore, Patience
from elbowroom.store.sql_store import SqlStore
from ledger_files import (
    SOON,
    OwnLedgerRows,
    bytes_of,
    held_by_another_program,
    keys_in,
    lasting_rows,
    query,
    save_until_written,
    sql_rows,
)
from ledger_samples import compaction, conversation, spoken

from elbowroom.context.ledger import Entry

FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from ledger_files import keys_in, lasting_rows, save_until_written
from ledger_samples import compaction, conversation

async def main(path):
    rows = lasting_rows(path)
    samples = [compaction(conversation(100, f"subject {number}")) for number in range(30)]
    await rows.save(*samples[0])
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
    for entry, archive in samples[1:]:
        await rows.save(entry, archive)
        assert await rows.find([entry.key]) == [entry]
    everything = {entry.key for entry, _ in samples}
    assert set(await rows.keys()) == everything
    assert samples[0][0].key in keys_in(path) < everything
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    await save_until_written(rows, path, *compaction(conversation(1)))
    assert everything < keys_in(path)
    await rows.aclose()

asyncio.run(main(Path(sys.argv[1])))
"""
READ_ONLY = """
import asyncio, logging, os, sys, tempfile
from pathlib import Path
from ledger_files import lasting_rows
from ledger_samples import compaction, conversation

async def save_and_find(path):
    rows = lasting_rows(path)
    entry, archive = compaction(conversation(2))
    await rows.save(entry, archive)
    assert await rows.find([entry.key]) == [entry]
    assert list(await rows.keys()) == [entry.key]
    await rows.aclose()

logging.basicConfig(format="%(levelname)s %(message)s")
if os.geteuid() == 0:  # nothing is read-only to root
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(save_and_find(Path(folder, "first.db")))  # everything is imported by this
    os.setuid(65534)
asyncio.run(save_and_find(Path(sys.argv[1])))
"""


SPOIL = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:  # what others change is read from the file again
    connection.execute("PRAGMA user_version = 1")
connection.close()
with open(sys.argv[1], "r+b") as file:
    file.seek(8192)
    file.write(b"\\x5a" * 40_000)
"""


def overwrite(start: int, content: bytes) -> Callable[[Path], None]:
    """Return what breaks a file by writing these bytes over it."""

    def damage(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[start : start + len(content)] = content
        path.write_bytes(bytes(whole))

    return damage


def cut(size: int) -> Callable[[Path], None]:
    """Return what breaks a file by leaving only its beginning."""
    return lambda path: os.truncate(path, size)


DAMAGES = {
    "header": overwrite(0, b"\xde\xad\xbe\xef" * 25),
    "another file": lambda path: path.write_text("Dear diary", encoding="utf-8"),
    "first page": overwrite(100, b"\xff" * 3000),
    "middle": overwrite(8192, b"\x5a" * 40_000),
    "half": cut(30_000),
    "few bytes": cut(50),
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a moment for another program that holds the file."""
    monkeypatch.setattr("elbowroom.store.sqlite.BUSY_MILLISECONDS", 50)


def run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of this file in a process of its own."""
    support = str(Path(__file__).parents[2] / "support")
    command = [sys.executable, "-W", "error", "-c", script, str(path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=100)


async def filled(path: Path) -> set[str]:
    """Write a store of some size; returns the keys of its entries."""
    samples = [compaction(conversation(30, f"subject {number}")) for number in range(10)]
    async with sql_rows(path) as rows:
        for entry, archive in samples:
            await rows.save(entry, archive)
    return {entry.key for entry, _ in samples}


def set_aside(path: Path) -> list[Path]:
    """Return the files that were set aside, without what belongs to them."""
    return [file for file in path.parent.glob("*.damaged-*") if not file.name.endswith(("-wal", "-shm"))]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_file_is_set_aside(
    tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps its bytes under a name with the date, a new one is begun, and the log tells both names."""
    path = tmp_path / "elbowroom.db"
    await filled(path)
    damage(path)
    broken = bytes_of(path)
    entry, archive = compaction(conversation(2))
    rows = lasting_rows(path)
    assert list(await rows.keys()) == []
    await rows.save(entry, archive)
    await rows.aclose()
    assert keys_in(path) == {entry.key}
    (aside,) = set_aside(path)
    assert bytes_of(aside) == broken
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert f"The store {path} is damaged" in record.getMessage()
    assert str(aside) in record.getMessage()


async def test_a_sound_store_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As long as nothing fails the log is silent."""
    caplog.set_level("INFO", logger="elbowroom")
    path = tmp_path / "elbowroom.db"
    for number in range(2):
        rows = lasting_rows(path)
        await rows.save(*compaction(conversation(2, f"subject {number}")))
        await rows.save(*compaction(conversation(3, f"subject {number}")))
        await rows.aclose()
    assert len(keys_in(path)) == 4
    assert not caplog.records


async def test_an_entry_that_the_database_refuses_holds_up_no_other(tmp_path: Path) -> None:
    """One that cannot be written stays in memory, and those that came after it are written all the same."""
    path = tmp_path / "elbowroom.db"
    rows = lasting_rows(path)
    refused = Entry("refused", (), 2**80, 1, 1, "digest", 0.0)
    await rows.save(refused, [])
    entry, archive = compaction(conversation(2))
    await save_until_written(rows, path, entry, archive)
    assert set(await rows.keys()) == {"refused", entry.key}
    assert await rows.find(["refused"]) == [refused]
    await rows.aclose()
    assert keys_in(path) == {entry.key}


async def test_an_empty_file_is_a_new_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file without a byte in it is no damage."""
    path = tmp_path / "elbowroom.db"
    path.touch()
    async with sql_rows(path) as rows:
        assert list(await rows.keys()) == []
    assert not caplog.records
    assert not set_aside(path)


async def test_files_set_aside_never_overwrite_each_other(tmp_path: Path) -> None:
    """Two damages within a second give two files."""
    path = tmp_path / "elbowroom.db"
    for _ in range(3):
        await filled(path)
        DAMAGES["header"](path)
        async with sql_rows(path):
            pass
    assert len(set_aside(path)) == 3


async def test_damage_while_the_store_is_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reading damaged pages finds nothing and raises nothing; the file is set aside and saving goes on."""
    path = tmp_path / "elbowroom.db"
    keys = await filled(path)
    rows = lasting_rows(path)
    assert set(await rows.keys()) == keys
    assert run(SPOIL, path).returncode == 0
    for key in keys:
        await rows.find([key])
        await rows.archived(key)
    entry, archive = compaction(conversation(2))
    await save_until_written(rows, path, entry, archive)
    assert list(await rows.keys()) == [entry.key]
    await rows.aclose()
    assert len(set_aside(path)) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


async def test_a_file_held_by_another_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As long as it is held, compactions are in memory; then all of them are in the file. Each is said once."""
    caplog.set_level("INFO", logger="elbowroom.store.lasting_store")
    path = tmp_path / "elbowroom.db"
    keys = await filled(path)
    rows = lasting_rows(path, Patience(opening=30, again=0.2, closing=30))
    samples = [compaction(conversation(3, f"meanwhile {number}")) for number in range(3)]
    with held_by_another_program(path):
        assert list(await rows.keys()) == []
        for entry, archive in samples:
            await rows.save(entry, archive)
            assert await rows.find([entry.key, *keys]) == [entry]
            assert await rows.archived(entry.key)
    last = compaction(conversation(1))
    await save_until_written(rows, path, *last)
    everything = {*keys, last[0].key, *(entry.key for entry, _ in samples)}
    assert set(await rows.keys()) == everything
    await rows.aclose()
    assert keys_in(path) == everything
    assert [(record.levelname, record.getMessage().split(": ")[0]) for record in caplog.records] == [
        ("ERROR", f"The store {path} does not work"),
        ("INFO", f"The store {path} works again."),
    ]


async def test_a_file_that_is_held_while_it_is_open(tmp_path: Path) -> None:
    """An open store whose file another program takes goes on from memory in the same way."""
    path = tmp_path / "elbowroom.db"
    rows = lasting_rows(path)
    first, second = compaction(conversation(1, "first")), compaction(conversation(1, "second"))
    await rows.save(*first)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    await rows.save(*second)
    assert await rows.find([second[0].key, first[0].key]) == [second[0], first[0]]
    assert query(path, "SELECT count(*) FROM ledger_entries") == [(1,)]
    blocker.execute("ROLLBACK")
    blocker.close()
    await rows.aclose()
    assert keys_in(path) == {first[0].key, second[0].key}


async def test_closing_tells_what_could_not_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is only in memory when elbowroom ends is counted in the log."""
    path = tmp_path / "elbowroom.db"
    (tmp_path / "elbowroom.db").mkdir()
    rows = lasting_rows(path)
    await rows.save(*compaction(conversation(1)))
    await rows.save(*compaction(conversation(2)))
    await rows.aclose()
    assert caplog.messages[-1] == f"The store {path} could not be written: compactions that are lost: 2."


async def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Below a file there is no folder: the log says so, chats go on, and once the file is gone all is written."""
    (tmp_path / "data").write_text("in the way", encoding="utf-8")
    path = tmp_path / "data" / "elbowroom.db"
    rows = lasting_rows(path)
    entry, archive = compaction(conversation(2))
    await rows.save(entry, archive)
    assert await rows.find([entry.key]) == [entry]
    assert await rows.archived(entry.key) == spoken(conversation(2))
    assert f"The store {path} does not work" in caplog.text
    (tmp_path / "data").unlink()
    await rows.aclose()
    assert keys_in(path) == {entry.key}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_read_only_folder() -> None:
    """Where nothing may be written, compactions are in memory, and the log says so once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        done = run(READ_ONLY, folder / "elbowroom.db")
        assert list(folder.iterdir()) == []
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith(f"ERROR The store {folder / 'elbowroom.db'} does not work: ")
    assert "Permission denied" in first
    assert second.startswith("WARNING ")
    assert second.endswith("compactions that are lost: 1.")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot limit the size of files")
def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing is lost while the disk is full, and all of it is in the file once there is room again."""
    done = run(FULL_DISK, tmp_path / "elbowroom.db")
    assert done.returncode == 0, done.stderr
    assert "The store" in done.stderr


async def test_a_store_that_takes_long_to_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Requests wait for it a little while and only once; what they save meanwhile is written when it is open."""
    path = tmp_path / "elbowroom.db"
    may_open = asyncio.Event()

    async def open_slowly() -> SqlStore:
        await may_open.wait()
        return await SqlStore.open(path)

    rows = OwnLedgerRows(LastingStore(str(path), open_slowly, Patience(opening=0.05, again=0, closing=30)))
    entry, archive = compaction(conversation(2))
    assert list(await rows.keys()) == []
    await rows.save(entry, archive)
    assert await rows.find([entry.key]) == [entry]
    assert caplog.messages == [f"The store {path} takes long to open; chats go on without it until then."]
    assert not path.exists()
    may_open.set()
    await rows.aclose()
    assert keys_in(path) == {entry.key}


async def test_a_cancelled_save_is_finished(tmp_path: Path) -> None:
    """A client that leaves while its compaction is being saved, even while the file is opened, takes nothing along."""
    path = tmp_path / "elbowroom.db"
    rows = lasting_rows(path)
    entry, archive = compaction(conversation(2))
    saving = asyncio.create_task(rows.save(entry, archive))
    await asyncio.sleep(0)
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    await rows.aclose()
    assert keys_in(path) == {entry.key}


async def test_many_requests_while_the_store_fails_and_comes_back(tmp_path: Path) -> None:
    """A hundred saves around a failure are all in the file in the end, each as it was saved last."""
    path = tmp_path / "elbowroom.db"
    fails = True

    async def open_when_told() -> SqlStore:
        if fails:
            raise StoreUnavailable("not yet")
        return await SqlStore.open(path)

    rows = OwnLedgerRows(LastingStore(str(path), open_when_told, SOON))
    samples = [compaction(conversation(5, f"subject {number}")) for number in range(100)]

    async def save(number: int) -> None:
        nonlocal fails
        await asyncio.sleep(number / 1000)
        fails = fails and number < 50
        await rows.save(*samples[number])
        assert await rows.find([samples[number][0].key]) == [samples[number][0]]

    await asyncio.gather(*map(save, range(100)))
    await rows.aclose()
    assert keys_in(path) == {entry.key for entry, _ in samples}
