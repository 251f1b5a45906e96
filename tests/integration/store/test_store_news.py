"""What happens to the store is told to a person once, in short sentences."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kept_outputs import ME
from ledger_files import held_by_another_program, query, sql_of
from stored_conversations import pragma

from elbowroom.settings.model import StoreSettings
from elbowroom.store import Store, open_store
from elbowroom.store.write_behind import Patience

WORKS_AGAIN = "Conversations are saved again, and so is what had been kept in memory."
SPOIL = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:  # what others change is read from the file again
    connection.execute("PRAGMA user_version = 1")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
with open(sys.argv[1], "r+b") as file:
    whole = file.read()
    file.seek(4096)
    file.write(b"\\x5a" * (len(whole) - 4096))
"""


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    """Open a store that soon tries its file again."""
    store = open_store(StoreSettings(url=f"sqlite+aiosqlite:///{path}"), {})
    store.patience = Patience(opening=30, again=0.05, closing=30)
    try:
        yield store
    finally:
        await store.aclose()


async def save(store: Store, text: str) -> None:
    """Save something as a chat would."""
    await store.memories.save(ME, "agent", text, 1.0)


async def until_it_works(store: Store) -> list[str]:
    """Go on as chats would until all is written; returns what was told meanwhile."""
    deadline, told = time.monotonic() + 60, list[str]()
    while WORKS_AGAIN not in told:
        assert time.monotonic() < deadline, f"it never worked again: {told}"
        await save(store, "again")
        told += store.news()
        await asyncio.sleep(0.05)
    return told


def fails(why: str) -> str:
    """Return what a person reads where the store fails for this reason."""
    return (
        f"Conversations cannot be saved at the moment: {why}. The chat goes on, and what is new is kept in memory "
        "until that works again."
    )


async def test_no_news_is_good_news(tmp_path: Path) -> None:
    """As long as nothing fails there is nothing to tell; in memory nothing can fail."""
    async with opened(tmp_path / "elbowroom.db") as store:
        await save(store, "text")
        assert store.news() == []
    memory = open_store(StoreSettings(url="sqlite+aiosqlite://"), {})
    assert memory.news() == []
    memory.open_soon()
    await memory.aclose()


async def test_a_damaged_file_is_told_with_its_new_name(tmp_path: Path) -> None:
    """The name it is kept under is told once, without the folder, which is nobody's business."""
    path = tmp_path / "elbowroom.db"
    path.write_text("Dear diary", encoding="utf-8")
    async with opened(path) as store:
        await save(store, "text")
        (told,) = store.news()
        assert store.news() == []
    aside = next(file.name for file in tmp_path.glob("*.damaged-*"))  # noqa: ASYNC240  # a folder of two files
    assert told == (
        f"The database of conversations was damaged. It is kept as {aside} in its folder, and a new one has been "
        "begun, without what was in the old one."
    )


async def test_damage_that_is_found_while_it_is_open(tmp_path: Path) -> None:
    """That saving fails, under which name the file is kept, and then that all is well: each once, in this order."""
    path = tmp_path / "elbowroom.db"
    async with opened(path) as store:
        await save(store, "text " * 20_000)
        assert (await asyncio.to_thread(run, SPOIL, path)).returncode == 0
        told = await until_it_works(store)
    assert told[0] == fails("its file is damaged")
    assert told[1].startswith("The database of conversations was damaged. It is kept as elbowroom.db.damaged-")
    assert told[2:] == [WORKS_AGAIN]


async def test_a_held_file_is_told_and_so_is_that_it_works_again(tmp_path: Path) -> None:
    """However many chats come upon it, the sentence is given out once for each failure."""
    path = tmp_path / "elbowroom.db"
    async with opened(path) as store:
        with held_by_another_program(path):
            for number in range(3):
                await save(store, str(number))
            assert store.news() == [fails("another program holds its file")]
            await save(store, "more")
            assert store.news() == []
        assert await until_it_works(store) == [WORKS_AGAIN]
        assert len(await store.memories.all(ME, "agent")) == 5


async def test_nobody_asks_for_a_long_time(tmp_path: Path) -> None:
    """What goes wrong again and again is one sentence, and the last one says how it is now."""
    path = tmp_path / "elbowroom.db"
    async with opened(path) as store:
        for _ in range(100):
            store._fails(OSError("no"))
            store._works()
        assert store.news() == [fails("the log of the server says why"), WORKS_AGAIN]


async def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """A folder stands where the file should be."""
    path = tmp_path / "elbowroom.db"
    path.mkdir()
    async with opened(path) as store:
        await save(store, "text")
        assert store.news() == [fails("its file cannot be opened")]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a moment for another program that holds the file."""
    monkeypatch.setattr("elbowroom.store.sql.dialect.sqlite.BUSY_MILLISECONDS", 50)


def run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of this file in a process of its own."""
    folders = [str(Path(__file__).parents[2] / "support"), str(Path(__file__).parent), *filter(None, sys.path)]
    command = [sys.executable, "-W", "error", "-c", script, str(path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=100)


@pytest.mark.fault("disk full", "streaming", "told once")
@pytest.mark.parametrize(
    ("begin", "end", "plainly"),
    [
        ("max_page_count = 1", "max_page_count = 1000000", "the disk is full"),
        ("query_only = ON", "query_only = OFF", "its file or folder cannot be written"),
    ],
)
async def test_a_file_that_takes_nothing_more(tmp_path: Path, begin: str, end: str, plainly: str) -> None:
    """No room, or no right to write: chats go on, the reason is told in plain words, and all is written later."""
    path = tmp_path / "elbowroom.db"
    async with opened(path) as store:
        await save(store, "first")
        await pragma(sql_of(store), begin)
        for number in range(20):
            await save(store, f"{number} " * 1000)
        assert store.news() == [fails(plainly)]
        assert len(await store.memories.all(ME, "agent")) == 21
        await pragma(sql_of(store), end)
        assert await until_it_works(store) == [WORKS_AGAIN]
    assert query(path, "SELECT count(*) FROM memories") == [(22,)]
