"""What outlives a request: conversations, compactions, outputs of tools and memories, in a database."""

from elbowroom.store.base import owner_key
from elbowroom.store.lock import is_in_use, only_process
from elbowroom.store.place import Place, ServerPlace
from elbowroom.store.sharing import Servers
from elbowroom.store.store import Store, database_path, open_in_memory, open_store, open_temporary, store_place

__all__ = [
    "Place",
    "ServerPlace",
    "Servers",
    "Store",
    "database_path",
    "is_in_use",
    "only_process",
    "open_in_memory",
    "open_store",
    "open_temporary",
    "owner_key",
    "store_place",
]
