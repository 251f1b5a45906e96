"""The file of the database is deleted, moved or replaced under a running server, or before it starts again."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from chatting import RAW_MODEL, chunks_of, elbowroom_with_studio, eventually, said_until
from ledger_files import query
from read_conversations import all_kept, told
from serving import Served, text_of

from elbowroom.demo import Script, WaitFor
from elbowroom.server.state import SHARED
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.identity import FOREIGN_PLAINLY
from elbowroom.store.sql.conversations import SqlConversations
from elbowroom.store.write_behind import REPLACED

FILE = "elbowroom.db"
FIRST = {"role": "user", "content": "Which pier?"}
Fate = Callable[[Path], None]


async def ask(served: Served, question: str) -> str:
    """Ask for a stream; return all of it."""
    body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": question}], "stream": True}
    async with served.http.post(served.chat_url, json=body) as response:
        assert response.status == 200
        return (await response.read()).decode()


def delete(path: Path) -> None:
    """Delete the file, and leave its log."""
    path.unlink()


def delete_all(path: Path) -> None:
    """Delete all that belongs to it."""
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def restore(path: Path) -> None:
    """Put another copy in its place, and leave its log."""
    path.with_name("backup.db").replace(path)


def move(path: Path) -> None:
    """Give it another name."""
    path.replace(path.with_name("moved.db"))


def back_up(path: Path) -> None:
    """Make a copy as the docs say."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(path.with_name("backup.db"))) as copy:
        source.backup(copy)


@pytest.mark.fault(
    "database file replaced", "streaming", "told at once; the answer is whole in the file that is there then"
)
@pytest.mark.parametrize("fate", [delete, delete_all, restore, move])
async def test_an_answer_outlives_its_file(tmp_path: Path, fate: Fate) -> None:
    """What streams while the file goes is kept whole in the file that is there then, and the person is told."""
    path = tmp_path / FILE
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Before.")
        await ask(served, "Hello?")
        await all_kept(served)
        back_up(path)
        go_on = asyncio.Event()
        studio.enqueue(Script("The ninth", WaitFor(go_on), " of ten."))
        body = {"model": RAW_MODEL, "messages": [FIRST], "stream": True}
        async with served.http.post(served.chat_url, json=body) as response:
            await said_until(response, len("The ninth"))
            store = served.app[SHARED].store
            await eventually(lambda: store.can_be_written and store.lag == 0, "it is not written")
            gone = os.stat(path).st_ino
            fate(path)
            go_on.set()
            stream = (await response.read()).decode()
        await eventually(lambda: store.can_be_written and store.lag == 0, "the store does not work again")
        assert path.stat().st_ino != gone
        assert REPLACED in stream + await ask_and_read(served, studio, "Anything else?")
        async with served.http.get(f"{served.url}/health") as response:
            assert (await response.json())["store"] == {"status": "ok", "note": REPLACED}
        kept = {tuple(told(one)[:2]) for one in await all_kept(served)}
        whole = (("user", "Which pier?"), ("assistant", "The ninth of ten."))
        assert whole in kept
        assert ((("user", "Hello?"), ("assistant", "Before.")) in kept) == (fate is restore)
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert query(path, "SELECT count(*) FROM messages")[0][0] >= 4
    if fate is move:
        assert query(path.with_name("moved.db"), "SELECT count(*) FROM messages")[0][0] >= 3


async def ask_and_read(served: Served, studio: object, question: str) -> str:
    """Ask for another answer, with which the news come."""
    studio.enqueue("No.")  # type: ignore[attr-defined]
    return await ask(served, question)


@pytest.mark.slow
@pytest.mark.fault("database file replaced", "first", "noticed within seconds, also where nobody says anything")
async def test_it_is_noticed_where_nothing_is_written(tmp_path: Path) -> None:
    """Where nobody says anything it is seen within seconds, and told at `/health`."""
    path = tmp_path / FILE
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Before.")
        await ask(served, "Hello?")
        await all_kept(served)
        path.unlink()
        await eventually(
            lambda: served.app[SHARED].store.state == {"status": "ok", "note": REPLACED}, "not noticed", 10
        )
        assert path.exists()
        assert await all_kept(served) == []


@pytest.mark.fault("read-only folder", "first", "nothing is called deleted that would come back: 503")
async def test_nothing_is_called_deleted_that_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file cannot be written DELETE is a 503, and the conversation goes from the file once that works."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Before.")
        await ask(served, "Hello?")
        [kept] = await all_kept(served)
        one = f"{served.url}/v1/conversations/{kept.row.id}"

        async def refused(*_: object, **__: object) -> bool:
            raise StoreUnavailable("attempt to write a readonly database")

        with monkeypatch.context() as patched:
            patched.setattr(SqlConversations, "delete_some", refused)
            patched.setattr(SqlConversations, "write", refused)
            async with served.http.delete(one) as response:
                assert response.status == 503
                assert (await response.json())["error"]["code"] == "store_unwritable"
        assert query(tmp_path / FILE, "SELECT count(*) FROM messages")[0][0] > 0
        assert await all_kept(served) == []
        store = served.app[SHARED].store
        store._try_again()
        await eventually(lambda: store.can_be_written and store.lag == 0, "it does not work again")
    assert query(tmp_path / FILE, "SELECT count(*) FROM messages") == [(0,)]


WRITES = """
import os, sqlite3, sys
from contextlib import closing
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("UPDATE conversations SET name = name")
connection.execute("CREATE TABLE more (text)")
connection.execute("INSERT INTO more VALUES (?)", ["m" * 100_000])
connection.commit()
os._exit(0)
"""
"""Leaves a log beside the file, as a process that is killed does."""


def crash(path: Path, mark: bytes) -> None:
    """Leave a log that holds changes, and what elbowroom has noted beside the file while it ran."""
    path.with_name(f"{FILE}-mark").write_bytes(mark)
    subprocess.run([sys.executable, "-c", WRITES, str(path)], check=True)
    assert path.with_name(f"{FILE}-wal").stat().st_size > 0


@pytest.mark.fault("back-up under the log of another file", "first", "refused in words; nothing is changed")
@pytest.mark.parametrize("how", ["copied", "deleted"])
async def test_a_log_of_another_file_is_refused(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """A back-up restored under the log of a crash, or a log without its file: told with what to do; nothing is lost."""
    path = tmp_path / FILE
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Before.")
        await ask(served, "Hello?")
        await all_kept(served)
        back_up(path)
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("After.")
        await ask(served, "Hello again?")
        await all_kept(served)
        mark = path.with_name(f"{FILE}-mark").read_bytes()
    crash(path, mark)
    whole = tmp_path / "whole.db"
    shutil.copyfile(path, whole)
    if how == "copied":
        shutil.copyfile(tmp_path / "backup.db", path)
    else:
        path.unlink()
    log = path.with_name(f"{FILE}-wal").read_bytes()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Now.")
        assert "Now" in text_of(chunks_of((await ask(served, "And now?")).encode()))
        store = served.app[SHARED].store
        assert store.state["status"] == "failing"
        assert FOREIGN_PLAINLY in store.state["note"]
        assert path.with_name(f"{FILE}-wal").read_bytes() == log
        assert "move elbowroom.db-wal and elbowroom.db-shm away" in caplog.text
        path.unlink(missing_ok=True)
        whole.replace(path)  # as the sentence says
        store._try_again()
        await eventually(lambda: store.can_be_written and store.lag == 0, "it does not go on by itself")
        assert {told(one)[1][1] for one in await all_kept(served)} == {"Before.", "After.", "Now."}


@pytest.mark.parametrize("times", [1, 3])
async def test_a_crash_alone_is_no_reason_to_refuse(tmp_path: Path, times: int) -> None:
    """A log that belongs to its file is taken in as ever, however often the process was killed."""
    path = tmp_path / FILE
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Before.")
        await ask(served, "Hello?")
        await all_kept(served)
        mark = path.with_name(f"{FILE}-mark").read_bytes()
    for _ in range(times):
        query(path, "DROP TABLE IF EXISTS more")
        crash(path, mark)
        async with elbowroom_with_studio(tmp_path) as (served, _):
            assert [told(one)[1][1] for one in await all_kept(served)] == ["Before."]
            mark = path.with_name(f"{FILE}-mark").read_bytes()
            assert served.app[SHARED].store.state == {"status": "ok"}
