"""When the file is held, full, read-only or damaged, outputs and memories can be read from memory, and none is lost."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.lasting_store import LastingStore, Patience
from elbowroom.store.opening import Store
from elbowroom.store.sql_store import SqlStore
from kept_outputs import ME, file_store, read, store_over, text_of, written_down
from ledger_files import SOON, held_by_another_program, lasting_store, query
from ledger_samples import compaction, conversation

FULL_DISK = """
import asyncio, random, resource, sys
from pathlib import Path
from kept_outputs import ME, text_of, written_down
from ledger_files import query

async def main(path):
    async with file_store(path) as store:
        texts = [random.Random(number).randbytes(30_000).hex() for number in range(20)]
        refs = [await store.tool_outputs.keep(ME, "read", texts[0])]
        await store.memories.save(ME, "agent", "before", 0.0)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
        refs += [await store.tool_outputs.keep(ME, "read", text) for text in texts[1:]]
        await store.memories.save(ME, "agent", "meanwhile", 1.0)
        assert [await text_of(store.tool_outputs, ref.id) for ref in refs] == texts
        assert await written_down(store.memories) == ["meanwhile", "before"]
        stored = {ref_id for (ref_id,) in query(path, "SELECT id FROM tool_outputs")}
        assert refs[0].id in stored < {ref.id for ref in refs}
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert {ref_id for (ref_id,) in query(path, "SELECT id FROM tool_outputs")} == {ref.id for ref in refs}
    assert query(path, "SELECT count(*) FROM memories") == [(2,)]

asyncio.run(main(Path(sys.argv[1])))
"""
READ_ONLY = """
import asyncio, logging, os, sys, tempfile
from pathlib import Path
from kept_outputs import ME, text_of, written_down

async def keep_and_read(path):
    async with file_store(path) as store:
        ref = await store.tool_outputs.keep(ME, "read", "text")
        assert await text_of(store.tool_outputs, ref.id) == "text"
        await store.memories.save(ME, "agent", "likes tea", 0.0)
        assert await written_down(store.memories) == ["likes tea"]

logging.basicConfig(format="%(levelname)s %(message)s")
if os.geteuid() == 0:  # nothing is read-only to root
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(keep_and_read(Path(folder, "first.db")))  # everything is imported by this
    os.setuid(65534)
asyncio.run(keep_and_read(Path(sys.argv[1])))
"""


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a moment for another program that holds the file."""
    monkeypatch.setattr("elbowroom.store.sqlite.BUSY_MILLISECONDS", 50)


def run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of this file in a process of its own."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", "-c", script, str(path)]
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=100)


async def until_written(store: Store, path: Path, ref_id: str) -> None:
    """Go on asking, as requests would, until the file has an output."""
    deadline = time.monotonic() + 60
    while not query(path, "SELECT 1 FROM tool_outputs WHERE id = ?", [ref_id]):
        assert time.monotonic() < deadline, "it was never written"
        await store.tool_outputs.find(ME, ref_id)
        await asyncio.sleep(0.05)


@pytest.mark.usefixtures("_impatient")
async def test_a_file_held_by_another_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As long as it is held, all kinds are in memory; then all of them are in the file. Each is said once."""
    caplog.set_level("INFO", logger="elbowroom.store.lasting_store")
    path = tmp_path / "elbowroom.db"
    async with file_store(path) as store:
        old = await store.tool_outputs.keep(ME, "read", "old")
        forgotten = await store.memories.save(ME, "agent", "is tired", 0.0)
    async with file_store(path, Patience(opening=30, again=0.2, closing=30)) as store:
        with held_by_another_program(path):
            new = await store.tool_outputs.keep(ME, "read", "new")
            await store.ledger.save(*compaction(conversation(1)))
            await store.memories.save(ME, "agent", "likes tea", 1.0)
            assert await text_of(store.tool_outputs, new.id) == "new"
            assert await store.tool_outputs.find(ME, old.id) is None
            assert await read(store.tool_outputs, old.id) == []
            assert await written_down(store.memories) == ["likes tea"]
            assert not await store.memories.delete(ME, "agent", forgotten.id)
        await until_written(store, path, new.id)
        assert await text_of(store.tool_outputs, old.id) == "old"
        assert await written_down(store.memories) == ["likes tea", "is tired"]
        assert await store.memories.delete(ME, "agent", forgotten.id)
    assert query(path, "SELECT count(*) FROM ledger_entries") == [(1,)]
    assert query(path, "SELECT text FROM memories") == [('"likes tea"',)]
    assert [(record.levelname, record.getMessage().split(": ")[0]) for record in caplog.records] == [
        ("ERROR", f"The store {path} does not work"),
        ("INFO", f"The store {path} works again."),
    ]


@pytest.mark.usefixtures("_impatient")
async def test_what_is_forgotten_while_nothing_can_be_written_stays_forgotten(tmp_path: Path) -> None:
    """A memory that is deleted while the file is held is not told any more, and goes from the file later."""
    path = tmp_path / "elbowroom.db"
    async with file_store(path) as store:
        memory = await store.memories.save(ME, "agent", "is tired", 0.0)
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        assert await store.memories.delete(ME, "agent", memory.id)
        assert not await store.memories.delete(ME, "agent", memory.id)
        assert await written_down(store.memories) == []
        assert query(path, "SELECT count(*) FROM memories") == [(1,)]
        blocker.execute("ROLLBACK")
        blocker.close()
    assert query(path, "SELECT count(*) FROM memories") == [(0,)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot limit the size of files")
def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing is lost while the disk is full, and all of it is in the file once there is room again."""
    done = run(FULL_DISK, tmp_path / "elbowroom.db")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_read_only_folder() -> None:
    """Where nothing may be written, everything is in memory, and the log says what is lost in the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        done = run(READ_ONLY, folder / "elbowroom.db")
        assert list(folder.iterdir()) == []
    assert done.returncode == 0, done.stderr
    first, *lost = done.stderr.splitlines()
    assert first.startswith(f"ERROR The store {folder / 'elbowroom.db'} does not work: ")
    assert [line.split(": ")[1:] for line in lost] == [
        ["outputs of tools that are lost", "1."],
        ["memories that are lost", "1."],
    ]


@pytest.mark.parametrize("content", [b"no zlib", b"", "text", b"x\x9c\x01\x01\x00\xfe\xff\xff\x01\xfe\x01\x00"])
async def test_a_chunk_that_somebody_else_wrote(
    tmp_path: Path, content: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading ends where the text is broken, with a line in the log; an image is whole or not there."""
    path = tmp_path / "elbowroom.db"
    async with file_store(path) as store:
        text = await store.tool_outputs.keep(ME, "read", "line\n" * 50_000)
        image = await store.tool_outputs.keep_media(ME, "camera", "image/png", b"png" * 50_000)
    query(path, 'UPDATE tool_output_chunks SET content = ? WHERE line * "column" > 1', [content])
    async with file_store(path) as store:
        assert ("line\n" * 50_000).startswith(await text_of(store.tool_outputs, text.id))
        assert await store.tool_outputs.media(ME, image.id) is None
    assert f"The output {text.id} of a tool cannot be read to its end" in caplog.text


async def test_a_cancelled_keep_is_finished(tmp_path: Path) -> None:
    """A client that leaves while an output is being kept takes nothing along."""
    path = tmp_path / "elbowroom.db"
    async with file_store(path) as store:
        keeping = asyncio.create_task(store.tool_outputs.keep(ME, "read", "text" * 500_000))
        for _ in range(10_000):
            if path.exists():  # it is being opened for the text
                break
            await asyncio.sleep(0.0005)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
    assert query(path, "SELECT bytes FROM tool_outputs") == [(2_000_000,)]


async def test_after_closing_nothing_is_raised(tmp_path: Path) -> None:
    """A request that is late finds nothing, and what it keeps is in memory."""
    path = tmp_path / "elbowroom.db"
    store = store_over(lasting_store(path))
    ref = await store.tool_outputs.keep(ME, "read", "text")
    await store.aclose()
    assert await store.tool_outputs.find(ME, ref.id) is None
    late = await store.tool_outputs.keep(ME, "read", "late")
    assert await text_of(store.tool_outputs, late.id) == "late"
    await store.tool_outputs.in_use(ME, [ref.id])
    assert await written_down(store.memories) == []


async def test_many_keep_while_the_store_fails_and_comes_back(tmp_path: Path) -> None:
    """Fifty that keep and save around a failure: all of it is in the file in the end."""
    path = tmp_path / "elbowroom.db"
    fails = True

    async def open_when_told() -> SqlStore:
        if fails:
            raise StoreUnavailable("not yet")
        return await SqlStore.open(path)

    store = store_over(LastingStore(str(path), open_when_told, SOON))

    async def keep(number: int) -> None:
        nonlocal fails
        await asyncio.sleep(number / 500)
        fails = fails and number < 25
        text = f"text {number} " * 20_000
        ref = await store.tool_outputs.keep(ME, "read", text)
        await store.memories.save(ME, "agent", f"memory {number}", float(number))
        await store.ledger.save(*compaction(conversation(2, f"subject {number}")))
        assert await text_of(store.tool_outputs, ref.id) == text

    await asyncio.gather(*map(keep, range(50)))
    await store.aclose()
    for table in ("tool_outputs", "memories", "ledger_entries"):
        assert query(path, f"SELECT count(*) FROM {table}") == [(50,)]
