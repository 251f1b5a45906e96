"""Which routes show, change, stop and feed conversations, and what is kept beside them?"""

from elbowroom.server.conversations.by_hand import add_by_hand_routes
from elbowroom.server.conversations.encode import describe_for_openai
from elbowroom.server.conversations.history import branch_used_last, events_of, history_of
from elbowroom.server.conversations.kept import add_kept_routes
from elbowroom.server.conversations.live import (
    add_cancel_route,
    add_live_route,
    cancelled_elsewhere,
    ended_elsewhere,
    owner_asking,
    writer_elsewhere,
)
from elbowroom.server.conversations.locks import changing, hold
from elbowroom.server.conversations.queue import add_queue_routes
from elbowroom.server.conversations.routes import SEARCHES, add_conversation_routes, whole_number
from elbowroom.server.conversations.search import add_search_route, hits_in

__all__ = [
    "SEARCHES",
    "add_by_hand_routes",
    "add_cancel_route",
    "add_conversation_routes",
    "add_kept_routes",
    "add_live_route",
    "add_queue_routes",
    "add_search_route",
    "branch_used_last",
    "cancelled_elsewhere",
    "changing",
    "describe_for_openai",
    "ended_elsewhere",
    "events_of",
    "history_of",
    "hits_in",
    "hold",
    "owner_asking",
    "whole_number",
    "writer_elsewhere",
]
