"""Reads every row of a store, and tells what is wrong with it; nothing is changed, and a server may have it open."""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Column, Connection, RowMapping, Select, Table, func, select

from elbowroom.errors import ElbowroomError
from elbowroom.store.base import SCHEMA_VERSION, UNFINISHED, StoreDamaged, StoreUnavailable
from elbowroom.store.message_parts import UNREADABLE, Part, joined
from elbowroom.store.place import ServerPlace
from elbowroom.store.sql.dialect import check, content_bytes, create_engines, plain_errors, server_faults
from elbowroom.store.sql.schema import (
    TEXT,
    compactions,
    conversations,
    message_parts,
    messages,
    noted_version,
    queue,
    queue_receipts,
    step_usage,
    tables_of,
    tool_output_chunks,
    tool_outputs,
    turns,
)
from elbowroom.store.sql.search import not_indexed

ROWS_READ_AT_ONCE: Final = 200
MOST_NAMED: Final = 3
"""How many rows of a table that cannot be read are named."""
NO_JSON: Final = frozenset({"verdict"})
"""The columns of texts that hold no JSON."""
BELONGING: Final = (
    (message_parts, message_parts.c.message, messages.c.id),
    (messages, messages.c.conversation, conversations.c.id),
    (turns, turns.c.conversation, conversations.c.id),
    (step_usage, step_usage.c.turn, turns.c.id),
    (compactions, compactions.c.conversation, conversations.c.id),
    (queue, queue.c.conversation, conversations.c.id),
    (queue_receipts, queue_receipts.c.conversation, conversations.c.id),
    (tool_output_chunks, tool_output_chunks.c.id, tool_outputs.c.id),
)
"""Which rows belong to which others: a table, its column, and the column that it names."""
Place = Path | ServerPlace
Report = Callable[[int, int], object]
"""Is told how many rows have been read, and how many there are."""


@dataclass(slots=True)
class Checked:
    """What a store holds, by table, what is wrong with it, and what else there is to say; all are sentences."""

    version: int = 0
    bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def check_store(place: Place, report: Report) -> Checked:
    """Read the whole store. Raises ElbowroomError where it cannot be read at all."""
    if isinstance(place, Path) and not place.is_file():
        raise ElbowroomError(f"There is no store at {place}. `elbowroom doctor` says where the store is.")
    found = Checked()
    if isinstance(place, Path):
        _check_file(place, found)
    with _said_plainly(place):
        reader, unused = create_engines(place, 1, is_read_only=True)
        try:
            with reader.begin() as connection:
                _check_tables(connection, found, report)
        finally:
            reader.dispose()
            unused.dispose()
    return found


@contextmanager
def _said_plainly(place: Place) -> Iterator[None]:
    try:
        with plain_errors():
            yield
    except StoreUnavailable as error:
        raise ElbowroomError(f"{place} cannot be read: {str(error).removesuffix('.')}.") from error


def _check_file(place: Path, found: Checked) -> None:
    try:
        check(place, lambda: False)
    except StoreDamaged as error:
        found.faults.append(f"The file is damaged: {error}. docs/store.md says how to get back what can be read of it.")
    except StoreUnavailable as error:
        raise ElbowroomError(f"{place} cannot be read: {str(error).removesuffix('.')}.") from error


def _check_tables(connection: Connection, found: Checked, report: Report) -> None:
    found.faults += server_faults(connection)
    found.version = noted_version(connection)
    if found.version == 0:
        found.faults.append("It has none of the tables; a server makes them when it starts.")
    elif found.version < 0:
        found.faults.append(f"It is unfinished: {UNFINISHED}.")
    elif found.version > SCHEMA_VERSION:
        found.faults.append(
            f"It was written by a newer elbowroom (tables of version {found.version}; this one knows "
            f"{SCHEMA_VERSION}): update elbowroom."
        )
    elif found.version < SCHEMA_VERSION:
        found.remarks.append("It was written by an older elbowroom; a server brings it up to date when it starts.")
    else:
        _check_rows(connection, found, report)


def _check_rows(connection: Connection, found: Checked, report: Report) -> None:
    tables = [table for table in tables_of(connection.dialect) if table.info.get("is_of") is None]
    found.bytes = content_bytes(connection)
    found.rows = {table.name: _count(connection, select(func.count()).select_from(table)) for table in tables}
    total, read = sum(found.rows.values()), 0
    for table in tables:
        unreadable: list[str] = []
        for together in _read_together(table, _rows(connection, table)):
            if not _is_readable(table, together):
                unreadable.append(_named(table, together[0]))
            read += len(together)
            report(read, total)
        if unreadable:
            found.faults.append(_said_of(table, unreadable))
    found.remarks += _without_owner(connection)
    if left := _count(connection, not_indexed(connection)):
        found.remarks.append(f"{left} messages are not in the index for searches yet; a running server puts them in.")


def _count(connection: Connection, question: Select[Any]) -> int:
    return connection.scalar(question) or 0


def _rows(connection: Connection, table: Table) -> Iterator[RowMapping]:
    statement = select(table).order_by(*table.primary_key)
    with connection.execute(statement, execution_options={"yield_per": ROWS_READ_AT_ONCE}) as rows:
        yield from rows.mappings()


def _read_together(table: Table, rows: Iterator[RowMapping]) -> Iterator[list[RowMapping]]:
    """Yield the parts of a message together, and every other row by itself."""
    if table is not message_parts:
        return ([row] for row in rows)
    return (list(parts) for _, parts in groupby(rows, key=itemgetter("message")))


def _is_readable(table: Table, rows: Sequence[RowMapping]) -> bool:
    if table is not message_parts:
        return all(_is_sound(column, rows[0][column.name]) for column in table.columns)
    try:
        joined("{}", [Part(row["kind"], row["content"]) for row in rows])
    except (KeyError, *UNREADABLE):
        return False
    return True


def _is_sound(column: Column[Any], value: Any) -> bool:
    """Tell whether what elbowroom reads in this column can be read; where it may be missing, nothing is sound."""
    try:
        if column is tool_output_chunks.c.content:
            zlib.decompress(value)
        elif column.type is TEXT and column.name not in NO_JSON and value:
            json.loads(value)
    except (*UNREADABLE, zlib.error):
        return False
    return True


def _named(table: Table, row: RowMapping) -> str:
    return " ".join(f"{column.name}={row[column.name]!r}" for column in table.primary_key)


def _said_of(table: Table, unreadable: Sequence[str]) -> str:
    count, what = len(unreadable), "messages" if table is message_parts else f"rows of {table.name}"
    named = ", ".join(unreadable[:MOST_NAMED]) + (", ..." if len(unreadable) > MOST_NAMED else "")
    return (
        f"{count} {what} cannot be read ({named}). elbowroom passes over them; another program "
        "has changed them, so a back-up may still hold what they said."
    )


def _without_owner(connection: Connection) -> list[str]:
    remarks = []
    for table, column, owner in BELONGING:
        lost = select(func.count()).select_from(table).where(column.not_in(select(owner)))
        if count := _count(connection, lost):
            remarks.append(f"{count} rows of {table.name} belong to nothing that is there; they only take room.")
    return remarks
