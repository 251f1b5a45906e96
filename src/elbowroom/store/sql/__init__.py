"""The store's rows in a database, over SQLAlchemy Core; loaded in a thread when the store is first used."""

from elbowroom.store.sql.store import SqlStore

__all__ = ["SqlStore"]
