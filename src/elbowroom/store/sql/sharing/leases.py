"""Leases in a PostgreSQL database: tokens of models' windows that the servers hold which share it.

Whoever changes the leases of a model locks them first. A lease counts as long as its server is there.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from sqlalchemy import Connection, select, update
from sqlalchemy.dialects.postgresql import insert

from elbowroom.store.base import LeaseRow, WindowShare
from elbowroom.store.sql.asking import settling
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import carry_out
from elbowroom.store.sql.schema import admission
from elbowroom.store.sql.sharing.servers import CHANNEL, LEASE_SECONDS, wake

ADMISSION_LOCK: Final = 0x656C6261
"""With a hash of the model, the advisory lock of whoever changes its leases."""
LOCK: Final = f"SELECT pg_advisory_xact_lock({ADMISSION_LOCK}, hashtext(%(pool)s))"
LIVING: Final = f"""
living AS (
    SELECT admission.* FROM admission JOIN servers ON servers.id = admission.server
    WHERE pool = %(pool)s AND servers.renewed > extract(epoch FROM clock_timestamp()) - {LEASE_SECONDS}
)"""  # noqa: S608  # of constants
"""The leases of a model that count."""
HOLD: Final = f"""
SELECT made, granted, holder FROM hold_window(%(pool)s, %(server)s, %(tokens)s, %(rank)s, %(capacity)s, {LEASE_SECONDS},
    {ADMISSION_LOCK})"""  # noqa: S608  # of constants
CLEAR: Final = f"""
DELETE FROM admission WHERE pool = %(pool)s AND server NOT IN (
    SELECT id FROM servers WHERE renewed > extract(epoch FROM clock_timestamp()) - {LEASE_SECONDS}
)"""  # noqa: S608  # of constants
"""Ends the leases of dead servers for good: what one does alone, another one may have done since."""
GRANT: Final = f"SELECT granted, holder FROM grant_window(%(pool)s, %(capacity)s, {LEASE_SECONDS})"  # noqa: S608  # of constants
GRANTED: Final = "SELECT number FROM admission WHERE number = ANY(%(numbers)s) AND is_granted"
GROW: Final = f"""
WITH {LIVING}, others AS (
    SELECT coalesce(sum(tokens), 0) AS held FROM living WHERE is_granted AND number <> %(number)s
)
UPDATE admission SET tokens = %(tokens)s FROM others
WHERE number = %(number)s AND (held = 0 OR held + %(tokens)s <= %(capacity)s) RETURNING number"""  # noqa: S608  # of constants
GIVE_BACK: Final = f"""
WITH gone AS (DELETE FROM admission WHERE number = ANY(%(numbers)s::bigint[]) RETURNING pool), waiting AS (
    SELECT DISTINCT server FROM admission WHERE NOT is_granted AND pool IN (SELECT pool FROM gone)
)
SELECT pg_notify('{CHANNEL}', server) FROM waiting"""  # noqa: S608  # of constants


class SqlServerLeases:
    """The leases of a database, seen from the server with this id. All methods raise StoreUnavailable."""

    def __init__(self, database: Database, server: str) -> None:
        self.database = database
        self.id = server

    @settling
    def hold(self, connection: Connection, share: WindowShare) -> tuple[int, bool]:
        """Ask for a share of a model's window; return the number of the lease, and whether it is granted already."""
        given = asdict(share) | {"server": self.id}
        *_, rows = carry_out(connection, given, *((LOCK, CLEAR, HOLD) if share.is_sole else (HOLD,)))
        number, granted = rows[0][0], [row[1:] for row in rows if row[1] is not None]
        self._wake(connection, granted)
        return number, any(new == number for new, _ in granted)

    @settling
    def look(self, connection: Connection, share: WindowShare, numbers: Sequence[int]) -> set[int]:
        """Grant what there is room for, and return which of the leases with these numbers are granted."""
        given = {"pool": share.pool, "capacity": share.capacity, "numbers": list(numbers)}
        first = (LOCK, CLEAR) if share.is_sole else (LOCK,)
        *_, new, granted = carry_out(connection, given, *first, GRANT, GRANTED)
        self._wake(connection, new)
        return {number for (number,) in granted}

    @settling
    def hold_more(self, connection: Connection, share: WindowShare, number: int) -> bool:
        """Let a granted lease grow to the tokens of the share, where there is room beside all others, or none is."""
        _, grown = carry_out(connection, asdict(share) | {"number": number}, LOCK, GROW)
        return bool(grown)

    @settling
    def give_back(self, connection: Connection, numbers: Collection[int]) -> None:
        """End leases, and wake the servers that wait for room."""
        carry_out(connection, {"numbers": list(numbers)}, GIVE_BACK)

    @settling
    def put_right(self, connection: Connection, rows: Sequence[LeaseRow], *, ends_others: bool) -> list[int]:
        """Let this server have these leases, also those that others have ended meanwhile; return their numbers.

        Where it `ends_others`, it has no others. A lease that is held is held, whether there is room for it or not, but
        what it did alone is lost.
        """
        own = admission.c
        known = {row.number: row for row in connection.execute(select(admission).where(own.server == self.id))}
        numbers = []
        for row in rows:
            found = known.pop(row.number, None)
            if found is None:
                is_lost = row.share.is_sole and row.number is not None
                numbers.append(row.number if is_lost and row.number else self._insert(connection, row))
                continue
            numbers.append(found.number)
            if found.tokens < row.share.tokens or found.is_granted < row.is_granted:
                new = {"tokens": row.share.tokens, "is_granted": row.is_granted or found.is_granted}
                connection.execute(update(admission).where(own.number == row.number).values(new))
        if ends_others and known:
            carry_out(connection, {"numbers": list(known)}, GIVE_BACK)
        return numbers

    def _insert(self, connection: Connection, row: LeaseRow) -> int:
        """Make a row, with the number that the lease has, unless another one has got that."""
        share, numbered = row.share, {} if row.number is None else {"number": row.number}
        values = {"pool": share.pool, "server": self.id, "tokens": share.tokens, "rank": share.rank}
        new = insert(admission).values(**numbered, **values, is_granted=row.is_granted).on_conflict_do_nothing()
        number = connection.scalar(new.returning(admission.c.number))
        return int(number) if number is not None else self._insert(connection, replace(row, number=None))

    def _wake(self, connection: Connection, granted: Sequence[Sequence[Any]]) -> None:
        """Have the other servers look whose leases were granted."""
        for server in {server for _, server in granted} - {self.id}:
            wake(connection, server)
