"""What outlives a request: conversations, compactions, outputs of tools and memories, in a database."""

from elbowroom.store.lock import is_in_use, only_process
from elbowroom.store.store import Store, database_path, open_in_memory, open_store, open_temporary

__all__ = ["Store", "database_path", "is_in_use", "only_process", "open_in_memory", "open_store", "open_temporary"]
