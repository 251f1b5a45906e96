"""How methods that take a connection are awaited without one: each on the threads that are for it."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from elbowroom.store.sql.database import Database

Given = ParamSpec("Given")
Result = TypeVar("Result")


class OnDatabase(Protocol):
    """Rows in a database."""

    @property
    def database(self) -> Database:
        """Return the database that has the rows."""


Rows = TypeVar("Rows", bound=OnDatabase)


def reading(
    question: Callable[Concatenate[Rows, Connection, Given], Result],
) -> Callable[Concatenate[Rows, Given], Coroutine[Any, Any, Result]]:
    """Let a method that takes a connection be awaited without one: it is answered on a thread for turns."""

    @wraps(question)
    async def ask(rows: Rows, /, *args: Given.args, **named: Given.kwargs) -> Result:
        return await rows.database.read(lambda connection: question(rows, connection, *args, **named))

    return ask


def browsing(
    question: Callable[Concatenate[Rows, Connection, Given], Result],
) -> Callable[Concatenate[Rows, Given], Coroutine[Any, Any, Result]]:
    """Let a method that takes a connection be awaited without one: it is answered on a thread no turn waits for."""

    @wraps(question)
    async def ask(rows: Rows, /, *args: Given.args, **named: Given.kwargs) -> Result:
        return await rows.database.browse(lambda connection: question(rows, connection, *args, **named))

    return ask


def writing(
    change: Callable[Concatenate[Rows, Connection, Given], Result],
) -> Callable[Concatenate[Rows, Given], Coroutine[Any, Any, Result]]:
    """Let a method that takes a connection be awaited without one: it is carried out on the thread that writes."""

    @wraps(change)
    async def make(rows: Rows, /, *args: Given.args, **named: Given.kwargs) -> Result:
        return await rows.database.write(lambda connection: change(rows, connection, *args, **named))

    return make


def housekeeping(
    change: Callable[Concatenate[Rows, Connection, Given], Result],
) -> Callable[Concatenate[Rows, Given], Coroutine[Any, Any, Result]]:
    """Let a method that takes a connection be awaited without one: the disk gets it in the background."""

    @wraps(change)
    async def make(rows: Rows, /, *args: Given.args, **named: Given.kwargs) -> Result:
        return await rows.database.keep_house(lambda connection: change(rows, connection, *args, **named))

    return make


def settling(
    change: Callable[Concatenate[Rows, Connection, Given], Result],
) -> Callable[Concatenate[Rows, Given], Coroutine[Any, Any, Result]]:
    """Let a method that takes a connection be awaited without one: servers settle it, and wait for nothing else."""

    @wraps(change)
    async def make(rows: Rows, /, *args: Given.args, **named: Given.kwargs) -> Result:
        return await rows.database.settle(lambda connection: change(rows, connection, *args, **named))

    return make
