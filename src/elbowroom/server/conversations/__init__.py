"""Which routes show, change, stop and feed conversations, and what is kept beside them?"""

from elbowroom.server.conversations.encode import describe_for_openai
from elbowroom.server.conversations.kept import add_kept_routes
from elbowroom.server.conversations.locks import LOCKS
from elbowroom.server.conversations.queue import add_queue_routes
from elbowroom.server.conversations.routes import (
    add_cancel_route,
    add_conversation_routes,
    add_live_route,
    owner_asking,
)

__all__ = [
    "LOCKS",
    "add_cancel_route",
    "add_conversation_routes",
    "add_kept_routes",
    "add_live_route",
    "add_queue_routes",
    "describe_for_openai",
    "owner_asking",
]
