"""How is a request read: its body, and who sends it?"""

from elbowroom.server.request.body import (
    MAX_BODY_BYTES,
    at_leisure,
    read_chat_request,
    read_json,
    read_request,
    with_caller,
)
from elbowroom.server.request.caller import (
    OBSIDIAN,
    USER,
    caller_without_chat,
    conversation_name,
    is_from_here,
    keeper_of,
    named_user,
    owner_of,
)
from elbowroom.server.request.decoding import OPENERS, UnsupportedCoding

__all__ = [
    "MAX_BODY_BYTES",
    "OBSIDIAN",
    "OPENERS",
    "USER",
    "UnsupportedCoding",
    "at_leisure",
    "caller_without_chat",
    "conversation_name",
    "is_from_here",
    "keeper_of",
    "named_user",
    "owner_of",
    "read_chat_request",
    "read_json",
    "read_request",
    "with_caller",
]
