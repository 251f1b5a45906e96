"""How do servers that share a PostgreSQL database hear of each other? Which are there, what each asks and holds."""

from elbowroom.store.sql.sharing.leases import SqlServerLeases
from elbowroom.store.sql.sharing.listener import Listener
from elbowroom.store.sql.sharing.servers import (
    Call,
    SqlServers,
    Written,
    living_servers,
    note_written,
    of_dead,
    renewing,
)

__all__ = [
    "Call",
    "Listener",
    "SqlServerLeases",
    "SqlServers",
    "Written",
    "living_servers",
    "note_written",
    "of_dead",
    "renewing",
]
