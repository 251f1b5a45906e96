"""How is a request read: its body, and who sends it?"""

from elbowroom.server.request.body import MAX_BODY_BYTES, read_chat_request, read_json
from elbowroom.server.request.caller import (
    USER,
    caller_without_chat,
    conversation_name,
    keeper_of,
    owner_of,
    with_caller,
)

__all__ = [
    "MAX_BODY_BYTES",
    "USER",
    "caller_without_chat",
    "conversation_name",
    "keeper_of",
    "owner_of",
    "read_chat_request",
    "read_json",
    "with_caller",
]
