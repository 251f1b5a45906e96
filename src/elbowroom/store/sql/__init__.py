"""How are rows kept in a database? Over SQLAlchemy Core; loaded in a thread when the store is first used."""

from elbowroom.store.sql.conversations import SqlConversations
from elbowroom.store.sql.sharing import Call, Listener, SqlServerLeases, SqlServers
from elbowroom.store.sql.store import SqlStore

__all__ = ["Call", "Listener", "SqlConversations", "SqlServerLeases", "SqlServers", "SqlStore"]
