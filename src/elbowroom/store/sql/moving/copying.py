"""Copies a store into an empty database, in transactions of some rows each, so that a copy that was stopped goes on.

The database that is copied is only read. The other one counts as unfinished until all rows are there: the version of
its tables is negative, with which no server opens it, and a table of its own tells how far each table has come.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Row,
    Table,
    Text,
    delete,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)

from elbowroom.errors import ElbowroomError
from elbowroom.store.base import SCHEMA_VERSION, StoreUnavailable
from elbowroom.store.lock import LOG, is_in_use, only_process, prepare_file
from elbowroom.store.place import ServerPlace
from elbowroom.store.sql.dialect import (
    create_engines,
    found_secret,
    insertion_order,
    is_postgresql,
    is_refusal,
    keep_secret,
    last_number,
    number_from,
    plain_errors,
    refresh_statistics,
    rows_written,
    sole_holder,
)
from elbowroom.store.sql.schema import (
    agent_list,
    make_tables,
    memories,
    metadata,
    noted_version,
    schema_version,
    version_of,
)
from elbowroom.store.sql.sharing import living_servers

BYTES_A_BATCH: Final = 2_000_000
ROWS_A_BATCH: Final = 1_000
ROWS_READ_AT_ONCE: Final = 50
COPY_LOCK: Final = 0x656C626F77637079
"""The advisory lock of whoever copies into a database."""
TABLES: Final = [table for table in metadata.sorted_tables if table is not schema_version and "is_of" not in table.info]
"""The tables whose rows are copied, which every database has."""
progress: Final = Table(
    "store_copy",
    MetaData(),
    Column("source", Text, nullable=False),
    Column("state", Text, nullable=False, comment="a JSON text: what changes with every change of what is copied"),
    Column("reached", Text, nullable=False, comment="a JSON object: the key of the last row by table, true for all"),
)
"""The table of an unfinished copy, with one row."""
Place = Path | ServerPlace
Report = Callable[[int, int], object]
"""Is told how many rows there are in the new database by now, and how many there will be."""


@dataclass(frozen=True, slots=True)
class Copied:
    """How many rows each table has, the same in both databases, and whether agents stayed where they were."""

    rows: Mapping[str, int]
    left_agents: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """What is copied, and where to; `reader` reads the one, `writer` writes the other."""

    source: Place
    target: Place
    reader: Engine
    writer: Engine


def copy_store(source: Place, target: Place, report: Report) -> Copied:
    """Copy all that a store holds into an empty database, or go on with that; nothing may have either of them open.

    Raises ElbowroomError, which says what to do; what was copied by then stays, and the next call goes on from there.
    """
    if source == target or (isinstance(source, Path) and isinstance(target, Path) and _are_same(source, target)):
        raise ElbowroomError(f"{source} cannot be copied into itself. Name another database.")
    if isinstance(source, Path) and not source.is_file():
        raise ElbowroomError(f"There is no store at {source}. `elbowroom doctor` says where the store is.")
    with ExitStack() as stack:
        for place in (source, target):
            stack.enter_context(_alone_at(place))
        stack.enter_context(_only_copy_to(target))
        with _said_plainly(target):
            ends = stack.enter_context(_opened(source, target))
        with _said_plainly(source), ends.reader.begin() as reading:
            return _copy(ends, reading, report)


def _copy(ends: Ends, reading: Connection, report: Report) -> Copied:
    """Copy all as it is at one moment."""
    _refuse_source(ends.source, reading)
    with _said_plainly(ends.target):
        reached = _begin(ends, json.dumps(_state_of(ends.source, reading)))
        before = _counts(reading)
        done = sum(_written(ends).values()) if reached else 0
        for table in TABLES:
            for size in _copy_table(ends, reading, table, reached):
                done += size
                report(done, sum(before.values()))
        for place, engine in ((ends.source, ends.reader), (ends.target, ends.writer)):
            _refuse_servers(place, engine)
        return _finish(ends, reading, before)


def _are_same(source: Path, target: Path) -> bool:
    return target.exists() and source.exists() and source.samefile(target)


@contextmanager
def _alone_at(place: Place) -> Iterator[None]:
    """Hold the lock of a file, which no server may have; of a database server's others are asked later."""
    if isinstance(place, ServerPlace):
        yield
        return
    if is_in_use(place):
        raise ElbowroomError(f"A server has {place} open. Stop it, and run the same command again.")
    with only_process(place):
        yield


@contextmanager
def _only_copy_to(target: Place) -> Iterator[None]:
    with _said_plainly(target), plain_errors(), sole_holder(target, COPY_LOCK) as is_alone:
        if not is_alone:
            raise ElbowroomError(f"Another command is copying into {target} now. Wait until it has ended.")
        yield


@contextmanager
def _opened(source: Place, target: Place) -> Iterator[Ends]:
    if isinstance(target, Path):
        prepare_file(target)
    reader, unused = create_engines(source, 2, is_read_only=True)
    other, writer = create_engines(target, 1)
    try:
        yield Ends(source, target, reader, writer)
    finally:
        for engine in (reader, unused, other, writer):
            engine.dispose()


@contextmanager
def _said_plainly(place: Place) -> Iterator[None]:
    """Say of which database an error is, and what to do."""
    try:
        with plain_errors():
            yield
    except StoreUnavailable as error:
        raise ElbowroomError(
            f"{place} cannot be used: {str(error).removesuffix('.')}. Nothing is lost: what is copied is only read. "
            "Once this is mended, run the same command again, which goes on from where it was."
        ) from error


def _refuse_source(source: Place, reading: Connection) -> None:
    version = version_of(reading)
    if version == 0:
        raise ElbowroomError(f"There is no store at {source}: it has none of the tables.")
    _refuse_older(source, version)
    if names := living_servers(reading):
        raise ElbowroomError(_in_use(source, names))


def _refuse_older(place: Place, version: int) -> None:
    if version < SCHEMA_VERSION:
        raise ElbowroomError(
            f"The store at {place} was written by an older elbowroom (tables of version {version}; this one copies "
            f"{SCHEMA_VERSION}). Start this elbowroom with it once, which brings it up to date, and stop it again."
        )


def _refuse_servers(place: Place, engine: Engine) -> None:
    """Refuse to call a copy whole beside which a server has begun to write."""
    if isinstance(place, ServerPlace):
        with engine.connect() as connection:
            if names := living_servers(connection):
                raise ElbowroomError(_in_use(place, names))


def _in_use(place: Place, names: Sequence[str]) -> str:
    return (
        f"{place} is in use by {', '.join(names)}. Stop every server of it, wait ten seconds, and run the same command "
        "again."
    )


def _state_of(source: Place, reading: Connection) -> list[int]:
    """Return numbers that change when anything in the store does."""
    if isinstance(source, ServerPlace):
        return [rows_written(reading, [table.name for table in TABLES])]
    files = [file for name in (source.name, source.name + LOG) if (file := source.with_name(name)).exists()]
    return list(chain.from_iterable((file.stat().st_size, file.stat().st_mtime_ns) for file in files))


def _begin(ends: Ends, state: str) -> dict[str, Any]:
    """Make the new database ready; return how far an earlier run has come, by table."""
    source = str(ends.source.absolute() if isinstance(ends.source, Path) else ends.source)
    with ends.writer.begin() as connection:
        version = noted_version(connection)
        if version == 0:
            make_tables(connection)
        if version >= 0:
            _refuse_older(ends.target, version_of(connection))
            _refuse_rows(ends.target, connection)
            progress.create(connection)
            connection.execute(insert(progress).values(source=source, state=state, reached="{}"))
            connection.execute(update(schema_version).values(version=-SCHEMA_VERSION))
            return {}
        found = connection.execute(select(progress)).one()
        if found.source != source:
            raise ElbowroomError(
                f"{ends.target} holds an unfinished copy of {found.source}. Copy that again to go on with it, or name "
                "an empty database."
            )
        if found.state == state:
            return dict(json.loads(found.reached))
        for table in reversed(TABLES):  # what was copied may have changed since, so all is copied anew
            connection.execute(delete(table))
        connection.execute(update(progress).values(state=state, reached="{}"))
        return {}


def _refuse_rows(target: Place, connection: Connection) -> None:
    counts = _counts(connection)
    if any(counts.values()):
        has = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        raise ElbowroomError(
            f"{target} holds a store already ({has}), and two stores cannot be put together. Name an empty database."
        )
    if names := living_servers(connection):
        raise ElbowroomError(_in_use(target, names))


def _counts(connection: Connection) -> dict[str, int]:
    return {table.name: connection.scalar(select(func.count()).select_from(table)) or 0 for table in TABLES}


def _written(ends: Ends) -> dict[str, int]:
    with ends.writer.connect() as connection:
        return _counts(connection)


def _copy_table(ends: Ends, reading: Connection, table: Table, reached: dict[str, Any]) -> Iterator[int]:
    """Copy the rows of a table that are not there yet; yield the size of each transaction."""
    last = reached.get(table.name)
    if last is True:
        return
    width = len(table.columns)
    for batch in _batches(_rows_after(reading, table, last)):
        reached[table.name] = list(batch[-1][width:])
        given = [_values(table, row) for row in batch]
        try:
            with plain_errors(), ends.writer.begin() as connection:
                connection.execute(insert(table), given)
                connection.execute(update(progress).values(reached=json.dumps(reached)))
        except StoreUnavailable as error:
            if is_refusal(error):
                raise ElbowroomError(_refused(ends, table, given)) from error
            raise
        yield len(batch)
    reached[table.name] = True
    with ends.writer.begin() as connection:
        if "number" in table.columns:
            number_from(connection, table, last_number(reading, table) + 1)
        connection.execute(update(progress).values(reached=json.dumps(reached)))


def _key_of(table: Table) -> Sequence[ColumnElement[Any]]:
    """Return what orders the rows of a table; memories go by when they came in, which no column tells."""
    return (insertion_order(table),) if table is memories else tuple(table.primary_key)


def _rows_after(reading: Connection, table: Table, last: Sequence[Any] | None) -> Iterator[Row[Any]]:
    """Yield rows in the order of their keys, with the columns of the key once more at the end."""
    key = _key_of(table)
    statement = select(*table.columns, *(part.label(f"key_{place}") for place, part in enumerate(key))).order_by(*key)
    if last is not None:
        reached = [literal(value, part.type) for part, value in zip(key, last, strict=True)]
        statement = statement.where(tuple_(*key) > tuple_(*reached) if len(key) > 1 else key[0] > reached[0])
    with reading.execute(statement, execution_options={"yield_per": ROWS_READ_AT_ONCE}) as rows:
        yield from rows


def _batches(rows: Iterator[Row[Any]]) -> Iterator[list[Row[Any]]]:
    batch: list[Row[Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if size >= BYTES_A_BATCH or len(batch) >= ROWS_A_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _values(table: Table, row: Row[Any]) -> dict[str, Any]:
    """Return the values of a row; a server that wrote it is none of the new database's."""
    values = {column.name: value for column, value in zip(table.columns, row, strict=False)}
    return values | {"server": ""} if "server" in values else values


def _refused(ends: Ends, table: Table, given: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence about the first of these rows that the database does not take."""
    for values in given:
        try:
            with plain_errors(), ends.writer.connect() as connection:
                connection.execute(insert(table).values(**values))  # which nobody commits
        except StoreUnavailable as error:
            key = {column.name: values[column.name] for column in table.primary_key}
            reason = " ".join(str(error).split())
            return (
                f"{ends.target} does not take a row of {table.name} with the key {key}: {reason}. elbowroom writes no "
                f"such row, so another program has. Mend or delete it in {ends.source}, and run the same command again."
            )
    return f"{ends.target} does not take rows of {table.name}. Run the same command again."


def _finish(ends: Ends, reading: Connection, before: Mapping[str, int]) -> Copied:
    """Compare the numbers of rows, and let servers open the new database."""
    secret = found_secret(ends.source, reading)
    with ends.writer.begin() as connection:
        after = _counts(connection)
        if wrong := [f"{name} {count} of {before[name]}" for name, count in after.items() if count != before[name]]:
            raise ElbowroomError(
                f"Rows are missing in {ends.target} ({', '.join(wrong)}): something else has changed it. Empty it, and "
                "run the same command again."
            )
        left_agents = _copy_agents(ends, reading, connection)
        if secret:
            keep_secret(ends.target, connection, secret)
        connection.execute(update(schema_version).values(version=SCHEMA_VERSION))
        progress.drop(connection)
    with ends.writer.begin() as connection:
        refresh_statistics(connection)
    return Copied(after, left_agents)


def _copy_agents(ends: Ends, reading: Connection, writing: Connection) -> bool:
    """Copy the agents that servers share, where both databases can have them; tell whether they stay where they are."""
    found = reading.execute(select(agent_list)).mappings().one_or_none() if is_postgresql(reading) else None
    if found is None:
        return False
    if not is_postgresql(writing):
        return True
    writing.execute(delete(agent_list))
    writing.execute(insert(agent_list).values(**found))
    return False
