"""`elbowroom store copy` and `elbowroom store check`: nothing is lost or changed on the way, and refusals say why."""

import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from every_kind_of_row import VERSION_4
from ledger_files import query, sql_store, write
from postgresql import new_place, shared_server
from stored_conversations import ME, user, whole, write_behind_conversations

from elbowroom.context.conversation import Heard
from elbowroom.context.memories import Memory
from elbowroom.errors import ElbowroomError
from elbowroom.settings.model import StoreSettings
from elbowroom.store import Place, ServerPlace, only_process, open_store
from elbowroom.store.base import SCHEMA_VERSION, StoreUnavailable
from elbowroom.store.inspection import inspect_file, inspect_server
from elbowroom.store.lock import secret_beside
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.dialect import create_engines
from elbowroom.store.sql.moving import check_store, copy_store
from elbowroom.store.sql.moving.copying import TABLES


class Stopped(Exception):
    """A copy was stopped."""


def nobody(done: int, total: int) -> None:
    """Watch a copy or a check without a word."""
    assert 0 <= done <= total


def stops_after(reports: int) -> Callable[[int, int], None]:
    """Stop a copy after so many transactions."""
    left = iter(range(reports))

    def report(done: int, total: int) -> None:
        nobody(done, total)
        if next(left, None) is None:
            raise Stopped

    return report


def rows_of(place: Place) -> dict[str, list[Any]]:
    """Return all rows of all tables but the servers that wrote them."""
    reader, other = create_engines(place, 1)
    found = {}
    with reader.begin() as connection:
        for table in TABLES:
            columns = [column for column in table.columns if column.name != "server"]
            found[table.name] = [tuple(row) for row in connection.execute(table.select().with_only_columns(*columns))]
    reader.dispose()
    other.dispose()
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


@pytest.fixture
async def source(tmp_path: Path) -> Path:
    """A file with every kind of row, of which the newest message has been deleted."""
    path = tmp_path / "elbowroom.db"
    write(path, VERSION_4)
    async with sql_store(path) as store:
        for number, saved in enumerate((5.0, 3.0, 4.0)):
            await store.memories.save("room", Memory(f"m{number}", "It rains.\0", saved))
    secret_beside(path)
    late = "INSERT INTO messages SELECT 900, 'late', conversation, '', 'late', '', fields, status, at, 0 FROM messages"
    write(path, f"{late} LIMIT 1", "DELETE FROM messages WHERE number = 900")
    return path


@pytest.fixture
async def target() -> AsyncIterator[ServerPlace]:
    """An empty database on a PostgreSQL server."""
    server = shared_server()
    name = server.new_database()
    yield ServerPlace(server.address(name))
    server.drop(name)


@pytest.mark.slow
async def test_a_store_is_the_same_after_there_and_back(
    source: Path, target: ServerPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row, the secret, the order of memories, and the numbers of what comes next, on a server and in a file."""
    back = tmp_path / "back" / "elbowroom.db"
    monkeypatch.setattr("elbowroom.store.sql.rows.MOST_MEMORIES", 10)
    copied = copy_store(source, target, nobody)
    assert copied.rows == {name: len(rows) for name, rows in rows_of(source).items()}
    assert sum(copied.rows.values()) > 40
    assert all(copied.rows[name] for name in ("memories", "ledger_entries", "tool_output_chunks", "queue"))
    assert not copied.left_agents
    copy_store(target, back, nobody)
    assert rows_of(source) == rows_of(target) == rows_of(back)
    assert secret_beside(back) == secret_beside(source)
    store = open_store(StoreSettings(url=target.address), {})
    assert await store.secret() == secret_beside(source)
    await store.aclose()
    for place in (source, target, back):
        async with sql_store(place) as opened:
            for number in range(8):  # ten are kept: the one that came in first goes, whatever the clock said
                await opened.memories.save("room", Memory(f"n{number}", "It snows.", 10.0))
            assert {memory.id for memory in await opened.memories.all("room")} >= {"m1", "m2"}
            assert "m0" not in {memory.id for memory in await opened.memories.all("room")}
        async with write_behind_conversations(place) as kept:
            kept.note([*whole("new"), Heard("new", "k", "p", user("Hello"), 1.0)])
            assert await kept.settled()
            assert [row.id for row in await kept.rows(ME, search="Hello")] == ["new"]
    with closing(sqlite3.connect(back)) as connection:
        assert connection.execute("SELECT min(number) FROM messages WHERE conversation = 'new'").fetchone() == (901,)
    first = shared_server().ask(
        "SELECT min(number) FROM messages WHERE conversation = 'new'", target.address.rpartition("/")[2]
    )
    assert first == [(901,)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["server", "file"])
async def test_a_copy_that_is_stopped_anywhere_goes_on(
    source: Path, target: ServerPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Stopped after every transaction in turn, it copies each row once, and no server opens it before its end."""
    monkeypatch.setattr("elbowroom.store.sql.moving.copying.ROWS_A_BATCH", 3)
    place = target if kind == "server" else tmp_path / "new" / "elbowroom.db"
    runs = 1
    with suppress(StopIteration):
        while True:
            try:
                copy_store(source, place, stops_after(1))
                break
            except Stopped:
                runs += 1
            with pytest.raises(StoreUnavailable, match="has not come to its end"):
                await SqlStore.open(place)
            found = inspect_server(place) if isinstance(place, ServerPlace) else inspect_file(place)
            assert found.state == "unfinished"
    assert runs > 5
    assert rows_of(place) == rows_of(source)
    assert check_store(place, nobody).faults == []


@pytest.mark.slow
async def test_a_copy_begins_anew_when_its_source_has_changed(
    source: Path, target: ServerPlace, tmp_path: Path
) -> None:
    """What was changed or deleted after the copy was stopped is so in the copy, from a file and from a server."""
    name = target.address.rpartition("/")[2]
    with pytest.raises(Stopped):
        copy_store(source, target, stops_after(6))
    write(source, "DELETE FROM memories WHERE id = 'm0'; UPDATE memories SET text = '\"Fog.\"' WHERE id = 'm1'")
    copy_store(source, target, nobody)
    assert rows_of(target) == rows_of(source)
    back = tmp_path / "back.db"
    with pytest.raises(Stopped):
        copy_store(target, back, stops_after(6))
    shared_server().ask("UPDATE memories SET text = '\"Hail.\"' WHERE id = 'm1'", name)
    shared_server().ask("SELECT pg_stat_force_next_flush()", name)
    copy_store(target, back, nobody)
    assert rows_of(back) == rows_of(target)


@pytest.mark.slow
async def test_refusals_say_what_to_do(source: Path, target: ServerPlace, tmp_path: Path) -> None:
    """No store, a store in use, one into itself, into another's rows or unfinished copy, of older tables: no change."""
    empty, other = tmp_path / "new.db", tmp_path / "other.db"

    def refused(start: Place, end: Place) -> str:
        assert start is not None
        assert end is not None
        with pytest.raises(ElbowroomError) as caught:
            copy_store(start, end, nobody)
        return str(caught.value)

    assert "There is no store at" in refused(tmp_path / "none" / "none.db", empty)
    assert not (tmp_path / "none").exists()
    assert not empty.exists()
    assert "none of the tables" in refused(target, empty)
    assert "into itself" in refused(source, source)
    with only_process(source):
        assert "Stop it" in refused(source, empty)
    async with new_place() as used:
        store = open_store(StoreSettings(url=used.address), {})
        store.open_soon()
        await store.ready(30)
        await store.servers.others()
        assert "is in use by" in refused(used, empty)
        assert "is in use by" in refused(source, used)
        await store.aclose()
    before = rows_of(source)
    shutil.copy2(source, other)
    assert "holds a store already" in refused(other, source)
    assert rows_of(source) == before
    with pytest.raises(Stopped):
        copy_store(source, target, stops_after(2))
    assert f"unfinished copy of {source}" in refused(other, target)
    old = tmp_path / "old.db"
    write(old, VERSION_4)
    assert "older elbowroom" in refused(old, tmp_path / "new.db")
    assert query(old, "SELECT version FROM schema_version") == [(4,)]
    gone = ServerPlace("postgresql://127.0.0.1:1/elbowroom")
    assert "the same command again" in refused(source, gone)


@pytest.mark.slow
async def test_a_row_that_a_server_does_not_take_is_named(source: Path, target: ServerPlace) -> None:
    """A NUL, which PostgreSQL refuses and elbowroom never writes: the copy names the row, and then goes on."""
    write(source, "UPDATE messages SET status = 'com' || char(0) || 'plete' WHERE number = 3")
    with pytest.raises(ElbowroomError, match=r"does not take a row of messages with the key \{'number': 3\}"):
        copy_store(source, target, nobody)
    write(source, "UPDATE messages SET status = 'complete' WHERE number = 3")
    copy_store(source, target, nobody)
    assert rows_of(target) == rows_of(source)


@pytest.mark.slow
async def test_a_check_tells_what_is_wrong(source: Path, target: ServerPlace) -> None:
    """Rows that cannot be read, rows without an owner, a damaged file; the same store on a server is told alike."""
    files = sorted(file.name for file in source.parent.iterdir())
    checked = check_store(source, nobody)
    assert sorted(file.name for file in source.parent.iterdir()) == files
    assert (checked.version, checked.faults) == (SCHEMA_VERSION, [])
    assert checked.rows["memories"] == 6
    write(source, "UPDATE messages SET fields = '{' WHERE number = 2; UPDATE tool_output_chunks SET content = x'00'")
    write(source, "INSERT INTO message_parts VALUES ('nobody', 0, 'text', 'complete', '\"a\"')")
    told = check_store(source, nobody)
    assert any(fault.startswith("1 rows of messages cannot be read (number=2)") for fault in told.faults)
    assert any("rows of tool_output_chunks cannot be read" in fault for fault in told.faults)
    assert "1 rows of message_parts belong to nothing that is there; they only take room." in told.remarks
    copy_store(source, target, nobody)
    assert check_store(target, nobody).faults == told.faults
    with source.open("r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xff" * 4096 * 4)
    with suppress(ElbowroomError):
        assert any("damaged" in fault for fault in check_store(source, nobody).faults)


@pytest.mark.slow
def test_the_commands_print_counts_and_say_what_is_next(source: Path, target: ServerPlace, tmp_path: Path) -> None:
    """They end with 0 where all is well, with 1 and a sentence where not, and take files and addresses."""
    done = run(tmp_path, "store", "copy", str(source), target.address)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  memories +6$", done.stdout, re.MULTILINE)
    assert f"{target} has every row of {source}, which is as it was." in done.stdout
    assert "name it in store.url" in done.stdout
    again = run(tmp_path, "store", "copy", f"sqlite:///{source}", target.address)
    assert (again.returncode, again.stdout) == (1, "")
    assert "holds a store already" in again.stderr
    for place in ([target.address], [str(source)], []):
        sound = run(tmp_path, "store", "check", *place, ELBOWROOM_DATA_DIR=str(source.parent))
        assert sound.returncode == 0, sound.stderr
        assert "Sound: every row can be read." in sound.stdout
    write(source, "UPDATE messages SET fields = '{' WHERE number = 2")
    wrong = run(tmp_path, "store", "check", str(source))
    assert wrong.returncode == 1
    assert "Wrong: 1 rows of messages cannot be read" in wrong.stdout
    assert "in memory" in run(tmp_path, "store", "check", "sqlite:///:memory:").stderr
    for wrong_address in ("mysql://x", "postgresql://me:secret@127.0.0.1/x"):
        told = run(tmp_path, "store", "check", wrong_address).stderr
        assert "This is no address of a store, which takes " in told
        assert "Value error" not in told
