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


class Awaited(Protocol):
    """Lets a method that takes a connection be awaited without one."""

    def __call__(
        self, method: Callable[Concatenate[Rows, Connection, Given], Result], /
    ) -> Callable[Concatenate[Rows, Given], Coroutine[Any, Any, Result]]:
        """Return the method without a connection."""


def _awaited(carry_out: Callable[[Database, Callable[[Connection], Any]], Coroutine[Any, Any, Any]]) -> Awaited:
    """Return what has a method carried out by this one of its database."""

    def without_connection(
        method: Callable[Concatenate[Rows, Connection, Given], Result], /
    ) -> Callable[Concatenate[Rows, Given], Coroutine[Any, Any, Result]]:
        @wraps(method)
        async def ask(rows: Rows, /, *args: Given.args, **named: Given.kwargs) -> Result:
            result: Result = await carry_out(rows.database, lambda connection: method(rows, connection, *args, **named))
            return result

        return ask

    return without_connection


reading = _awaited(Database.read)
"""Answered on a thread for turns."""
browsing = _awaited(Database.browse)
"""Answered on a thread that no turn waits for."""
writing = _awaited(Database.write)
"""Carried out on the thread that writes."""
housekeeping = _awaited(Database.keep_house)
"""Carried out there, and the disk gets it in the background."""
settling = _awaited(Database.settle)
"""Settled among servers, which wait for nothing else."""
