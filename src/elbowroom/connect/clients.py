"""The chat programs that `elbowroom connect` knows, and what each of them needs: one table for all who tell of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

USER_HEADERS: Final = MappingProxyType({"X-Elbowroom-User": "{{USER_ID}}"})
"""What Open WebUI sends besides where several people use it."""


@dataclass(frozen=True, slots=True)
class Client:
    """A chat program: the name of the command's argument and its own, and what it sends with each request.

    `path` follows the address of elbowroom in what the program is told.
    """

    id: str
    name: str
    path: str = "/v1"
    headers: Mapping[str, str] = field(default_factory=dict)


OPEN_WEBUI: Final = Client(
    "open-webui",
    "Open WebUI",
    headers=MappingProxyType(
        {
            "X-Conversation-Id": "{{CHAT_ID}}",
            "X-Elbowroom-Message-Id": "{{MESSAGE_ID}}",
            "X-Elbowroom-Parent-Id": "{{USER_MESSAGE_PARENT_ID}}",
            "X-Elbowroom-Task": "{{TASK}}",
        }
    ),
)
CLIENTS: Final = {client.id: client for client in (OPEN_WEBUI,)}
"""All of them, by the argument of the command."""
