"""A PostgreSQL server of Debian's in a temporary folder, for as long as the tests run, and a new database for each."""

import atexit
import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from elbowroom.store.place import ServerPlace

VERSIONS = Path("/usr/lib/postgresql")
USER = "postgres"
MISSING = "PostgreSQL is not installed"
HASTY = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "autovacuum=off", "max_wal_senders=0")
"""Settings of a server that may lose everything with the power, and that does nothing by itself."""
KEEPING = ("fsync=off", "autovacuum=off")
"""Settings of a server that keeps what it has acknowledged when its processes are killed."""
numbers = itertools.count(1)


def programs() -> Path:
    """Return the folder with the programs of the newest PostgreSQL; skips the test where there is none."""
    found = sorted(VERSIONS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        pytest.skip(MISSING)
    return found[-1].parent


class PostgreSQL:
    """A server with its data in a folder, on a port of this machine."""

    def __init__(self, folder: Path, settings: tuple[str, ...] = HASTY) -> None:
        self.folder = folder
        self.port = _free_port()
        self._settings = settings
        self._programs = programs()
        self._asking: Any = None

    def make(self) -> None:
        """Make the data of a new server."""
        self.run("initdb", "-D", self.data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def follow(self, primary: "PostgreSQL") -> None:
        """Make the data of a standby, which gets every change of another server."""
        source = f"host=127.0.0.1 port={primary.port} user={USER}"
        self.run("pg_basebackup", "-D", self.data, "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source)

    def promote(self) -> None:
        """Let a standby take changes itself."""
        self.run("pg_ctl", "promote", "-w", "-D", self.data)

    @property
    def data(self) -> str:
        """Return the folder of its data."""
        return str(self.folder / "data")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}"]
        given = " ".join(f"-c {option}" for option in (*options, *self._settings))
        self.run("pg_ctl", "start", "-w", "-D", self.data, "-o", given, "-l", str(self.folder / "log"))

    @property
    def pid(self) -> int:
        """Return the id of its first process."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def is_running(self) -> bool:
        """Tell whether it has been started, and not stopped since."""
        return (self.folder / "data" / "postmaster.pid").exists()

    def stop(self, how: str = "fast") -> None:
        """Stop it."""
        if self._asking is not None:
            self._asking.close()
        self.run("pg_ctl", "stop", "-w", "-D", self.data, "-m", how)

    def kill(self) -> None:
        """Kill all its processes, as a machine that has no memory left does, or one that loses its power."""
        own = psutil.Process(self.pid)
        processes = [own, *own.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes)
        (self.folder / "data" / "postmaster.pid").unlink()

    def run(self, program: str, *arguments: str) -> None:
        """Run one of its programs, not as root, under which none of them runs."""
        owner: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        command = [str(self._programs / program), *arguments]
        subprocess.run(
            command,
            check=True,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=60,
            **owner,
        )

    def address(self, database: str, user: str = USER) -> str:
        """Return the address of one of its databases."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def ask(self, question: Any, database: str = "postgres") -> list[Any]:
        """Carry out a statement on a connection of its own, and return its rows."""
        import psycopg

        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(question)
            return cursor.fetchall() if cursor.description else []

    def new_database(self, template: str = "template1") -> str:
        """Make a database and return its name."""
        name = f"store_{os.getpid()}_{next(numbers)}"
        asking = self._kept()
        # From version 15 on the pages are else written to the log as well, which takes twice as long.
        strategy = " STRATEGY file_copy" if asking.info.server_version >= 150_000 else ""
        asking.execute(f"CREATE DATABASE {name} TEMPLATE {template}{strategy}")
        return name

    def drop(self, database: str) -> None:
        """Drop a database, whoever has it open."""
        self._kept().execute(f"DROP DATABASE {database} WITH (FORCE)")

    def _kept(self) -> Any:
        """Return a connection that goes on: to connect takes as long as what is asked."""
        import psycopg

        if self._asking is None or self._asking.closed:
            self._asking = psycopg.connect(self.address("postgres"), autocommit=True)
        return self._asking


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def own_folder() -> Iterator[Path]:
    """Give a temporary folder that the server's user owns."""
    folder = Path(tempfile.mkdtemp(prefix="elbowroom-postgresql-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    if os.geteuid() == 0:
        shutil.chown(folder, USER, USER)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(settings: tuple[str, ...] = HASTY, primary: PostgreSQL | None = None) -> Iterator[PostgreSQL]:
    """Run a server of its own, or the standby of another one."""
    with own_folder() as folder:
        server = PostgreSQL(folder, settings)
        server.make() if primary is None else server.follow(primary)
        server.start()
        try:
            yield server
        finally:
            if server.is_running():
                server.stop("immediate")


@cache
def shared_server() -> PostgreSQL:
    """Return the server of this process, which ends with it."""
    programs()
    running = started()
    server = running.__enter__()
    atexit.register(running.__exit__, None, None, None)
    return server


@cache
def _template() -> str:
    """Return the name of a database with the tables."""
    from elbowroom.store.sql.dialect import create_engines
    from elbowroom.store.sql.schema import make_tables

    server = shared_server()
    name = server.new_database()
    readers, writer = create_engines(ServerPlace(server.address(name)), 1)
    with writer.begin() as connection:
        make_tables(connection)
    readers.dispose()
    writer.dispose()
    return name


@asynccontextmanager
async def new_place() -> AsyncIterator[ServerPlace]:
    """Give a database with empty tables, and drop it in the end."""
    server = shared_server()
    name = server.new_database(_template())
    try:
        yield ServerPlace(server.address(name))
    finally:
        server.drop(name)
