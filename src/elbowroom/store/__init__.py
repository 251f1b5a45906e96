"""What outlives a request: conversations, compactions, outputs of tools and memories, in a database."""

from elbowroom.store.base import ALL_TOKENS, ALONE, Servers, WindowTokens, owner_key
from elbowroom.store.lock import is_in_use, only_process
from elbowroom.store.people import TOKENS_BEGIN, People
from elbowroom.store.place import Place, ServerPlace
from elbowroom.store.sharing import Together
from elbowroom.store.store import Store, database_path, open_in_memory, open_store, open_temporary, store_place
from elbowroom.store.tokens import ROLES, Act, Did, Role, Token

__all__ = [
    "ALL_TOKENS",
    "ALONE",
    "ROLES",
    "TOKENS_BEGIN",
    "Act",
    "Did",
    "People",
    "Place",
    "Role",
    "ServerPlace",
    "Servers",
    "Store",
    "Together",
    "Token",
    "WindowTokens",
    "database_path",
    "is_in_use",
    "only_process",
    "open_in_memory",
    "open_store",
    "open_temporary",
    "owner_key",
    "store_place",
]
