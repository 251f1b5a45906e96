"""A PostgreSQL database that cannot hold every text is refused, with the command that makes one which can."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run
from postgresql import PostgreSQL, shared_server

from elbowroom.doctor.machine import judge_server
from elbowroom.errors import ElbowroomError
from elbowroom.store import ServerPlace
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.inspection import inspect_server
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.moving import check_store

REMEDY = "createdb --encoding UTF8 --locale C.UTF-8 --template template0"


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def wrong_place(request: pytest.FixtureRequest) -> Iterator[ServerPlace]:
    """A database with another encoding."""
    server = shared_server()
    name = f"wrong_{request.param.lower()}"
    server.run("createdb", *at(server), "-E", request.param, "--locale", "C", "-T", "template0", name)
    yield ServerPlace(server.address(name))
    server.drop(name)


def at(server: PostgreSQL) -> list[str]:
    """Return the options of a program that say where the server is."""
    return ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]


async def test_another_encoding_is_refused_by_all(wrong_place: ServerPlace) -> None:
    """The store of `serve`, `doctor` and `store check` say the encoding and the command, and write nothing."""
    with pytest.raises(StoreUnavailable) as refused:
        await SqlStore.open(wrong_place, server="one")
    assert REMEDY in refused.value.plainly
    finding = judge_server(wrong_place, inspect_server(wrong_place))
    assert (finding.severity, REMEDY in finding.what) == ("fail", True)
    with pytest.raises(ElbowroomError, match="template0"):
        check_store(wrong_place, lambda *_: None)
    tables = "SELECT 1 FROM pg_tables WHERE schemaname = 'public'"
    assert shared_server().ask(tables, wrong_place.address.rpartition("/")[2]) == []


def test_serve_ends_with_the_command(wrong_place: ServerPlace, tmp_path: Path) -> None:
    """It does not start without a store that no waiting would mend, and says so on one line."""
    ended = run(tmp_path, "serve", "--port", "0", ELBOWROOM_STORE__URL=wrong_place.address)
    [line] = ended.stderr.splitlines()
    assert (ended.returncode, REMEDY in line, wrong_place.address in line) == (1, True, True)


async def test_the_command_makes_one_that_is_taken() -> None:
    """Also where the server's own template has another encoding."""
    server = shared_server()
    server.run("createdb", *at(server), *shlex.split(REMEDY)[1:], "remedied")
    await (await SqlStore.open(ServerPlace(server.address("remedied")), server="one")).aclose()
    server.drop("remedied")
