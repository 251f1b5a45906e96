"""Statements: parts that each database says in words of its own, and how its driver carries them out.

The way through SQLAlchemy takes longer than most of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Insert,
    Select,
    String,
    Table,
    TableValuedAlias,
    Update,
    bindparam,
    case,
    column,
    func,
    insert,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import TypeEngine

MOST_VARIABLES: Final = 500
"""How many values one statement may carry; SQLite's oldest limit is 999."""
KEY: Final[TypeEngine[str]] = String().with_variant(String(collation="C"), "postgresql")
"""A text that is compared by its bytes, as SQLite and Python do it."""
INSERTED: Final = "inserted"
"""The column of PostgreSQL that has what SQLite's rowid tells: in which order rows were inserted."""
ROLE: Final = "message_role"
"""The function of PostgreSQL that reads the role in the fields of a message, made with the tables."""
Name = TypeVar("Name", str, int)


class _Each(FunctionElement[Any]):
    """The values of a JSON list with their places from 0."""

    name = "json_each"
    inherit_cache = True


@compiles(_Each)
def _each(element: _Each, compiler: Any, **options: Any) -> str:
    return f"json_each{compiler.process(element.clause_expr, **options)}"


@compiles(_Each, "postgresql")
def _each_in_postgresql(element: _Each, compiler: Any, **options: Any) -> str:
    given = compiler.process(element.clause_expr, **options)
    values = f"json_array_elements_text(CAST({given} AS JSON)) WITH ORDINALITY AS each (value, ordinality)"
    return f'(SELECT ordinality - 1 AS key, value COLLATE "C" AS value FROM {values})'  # noqa: S608  # of constants


class _Inserted(ColumnElement[int]):
    """The order in which the rows of a table were inserted."""

    inherit_cache = False

    def __init__(self, table: Table) -> None:
        self.table = table
        self.type = BigInteger()


@compiles(_Inserted)
def _inserted(element: _Inserted, compiler: Any, **_: Any) -> str:
    return f"{element.table.name}.rowid"


@compiles(_Inserted, "postgresql")
def _inserted_in_postgresql(element: _Inserted, compiler: Any, **_: Any) -> str:
    return f"{element.table.name}.{INSERTED}"


class _Role(FunctionElement[str]):
    """The role in the fields of a message."""

    name = ROLE
    inherit_cache = True
    type = KEY


@compiles(_Role)
def _role(element: _Role, compiler: Any, **options: Any) -> str:
    fields = next(iter(element.clauses))
    read = case((func.json_valid(fields) == 1, func.json_extract(fields, "$.role")), else_=literal(""))
    return str(compiler.process(read, **options))


@compiles(_Role, "postgresql")
def _role_in_postgresql(element: _Role, compiler: Any, **options: Any) -> str:
    return f"{ROLE}{compiler.process(element.clause_expr, **options)}"


class _Skipping(Insert):
    """An insertion that skips a row which is there already, or which has NULL where that may not be."""

    inherit_cache = False
    columns: Mapping[str, ColumnElement[Any]]
    needed: Sequence[str]


@compiles(_Skipping)
def _skipping(statement: _Skipping, compiler: Any, **options: Any) -> str:
    said = insert(statement.table).values(statement.columns).inline().prefix_with("OR IGNORE")
    return str(compiler.visit_insert(said, **options))


@compiles(_Skipping, "postgresql")
def _skipping_in_postgresql(statement: _Skipping, compiler: Any, **options: Any) -> str:
    there = [statement.columns[name].is_not(None) for name in statement.needed]
    row = select(*statement.columns.values()).where(*there)
    said = postgresql.insert(statement.table).from_select(list(statement.columns), row).on_conflict_do_nothing()
    return str(compiler.visit_insert(said, **options))


def skipping(table: Table, columns: Mapping[str, ColumnElement[Any]], needed: Sequence[str]) -> Insert:
    """Return an insertion that skips a row which is there already, or which has NULL in a column that is needed."""
    statement = _Skipping(table)
    statement.columns, statement.needed = columns, needed
    return statement


def batched(names: Sequence[Name]) -> Iterator[Sequence[Name]]:
    """Yield names or numbers in as many pieces as statements have to carry them."""
    for start in range(0, len(names), MOST_VARIABLES):
        yield names[start : start + MOST_VARIABLES]


def listed(name: str) -> TableValuedAlias:
    """Return a JSON list that is given under a name as a table of `key`, the place from 0, and `value`."""
    given = _Each(bindparam(name, type_=String()))
    return given.table_valued(column("key", BigInteger()), column("value", KEY), name=name)


def role_of(fields: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the role in the fields of a message, which another program may have written."""
    return _Role(fields)


def insertion_order(table: Table) -> ColumnElement[int]:
    """Return a number that rises with every row that is inserted, whatever the clock says."""
    return _Inserted(table)


Writing = Insert | Update | Delete
Values = dict[str, Any]
WAITS_FOR_DISK = "waits_for_disk"
"""The option of an engine or a connection whose transactions are over only once the disk has them."""


def execute_all(connection: Connection, groups: Sequence[tuple[Writing, Sequence[Values]]]) -> None:
    """Carry out statements in order, each for all its values, which are texts, numbers, bytes and None.

    The statements are constants, for each is translated into SQL once for each kind of database: that takes several
    times as long as carrying it out.
    """
    with _driver(connection) as cursor:
        for statement, given in groups:
            sql, fixed = _translated(statement, connection.dialect)
            cursor.executemany(sql, list(map(fixed.__or__, given)) if fixed else given)


def selected(
    connection: Connection, statement: Select[Any] | ReturningInsert[Any], given: Sequence[Values]
) -> list[Sequence[Any]]:
    """Return the rows that a statement selects, or changes, for all these values, of columns with texts and numbers.

    The statement is a constant, as for `execute_all`.
    """
    rows: list[Sequence[Any]] = []
    with _driver(connection) as cursor:
        sql, fixed = _translated(statement, connection.dialect)
        for values in given:
            cursor.execute(sql, {**fixed, **values})
            rows += cursor.fetchall()
    return rows


def carry_out(connection: Connection, given: Values, *statements: str) -> list[list[Sequence[Any]]]:
    """Send statements of PostgreSQL in one message, which is a transaction; return the rows of each.

    The connection has no transaction of its own. Each statement sees what was changed before it began. The plan of one
    that is sent by itself is kept: to plan it takes longer than to carry it out.
    """
    with _driver(connection, "ClientCursor" if statements[1:] else "") as cursor:
        own: Any = cursor
        own.execute("; ".join(statements), given)
        rows = [own.fetchall() if own.description else []]
        while own.nextset():
            rows.append(own.fetchall() if own.description else [])
        return rows


def without_waiting(writer: Engine) -> Engine:
    """Return the engine whose transactions are over once the system has them, though the disk has not."""
    return writer.execution_options(**{WAITS_FOR_DISK: False})


def waits_for_disk(connection: Connection) -> bool:
    """Tell whether a transaction of this connection is over only once the disk has it."""
    return bool(connection.get_execution_options().get(WAITS_FOR_DISK, True))


@contextmanager
def _driver(connection: Connection, kind: str = "") -> Iterator[DBAPICursor]:
    """Lend the driver's own cursor, of a kind where it has several.

    Its errors are raised as SQLAlchemy's, and a lost connection is given up.
    """
    driver = connection.dialect.loaded_dbapi
    plain: Any = connection.connection.driver_connection
    cursor = getattr(driver, kind)(plain) if kind else connection.connection.cursor()
    try:
        yield cursor
    except driver.Error as error:
        if connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, cursor):
            connection.invalidate(error)
        raise DBAPIError.instance(None, None, error, driver.Error, hide_parameters=True) from error
    finally:
        cursor.close()


@lru_cache(maxsize=128)
def _translated(statement: Writing | Select[Any], dialect: Dialect) -> tuple[str, dict[str, Any]]:
    """Return a statement in the database's words, and its values that are always the same."""
    compiled = statement.compile(dialect=dialect)
    return str(compiled), {name: value.value for value, name in compiled.bind_names.items() if not value.required}
