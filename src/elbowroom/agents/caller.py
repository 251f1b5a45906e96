"""Who asks: the owner and the conversation of a request as the client names them, and whether it is a task."""

from dataclasses import dataclass
from typing import Final, Literal

KnownBy = Literal["name", "token", "nobody else", "nothing"]
"""How it is known who asks: by a user's name, by the server's token, as the only user there is, or not at all."""
STRANGERS: Final = "\0strangers"
"""The owner of what all have in common of whom nothing is known; no client can have this name."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request says about where it comes from; what it does not say is empty.

    `owner` is a user of the client, taken at its word: it keeps the conversations of this server's users apart and
    proves nothing. `chat_id` is the client's name for a conversation, shared by its branches. A task is a request of
    the program itself beside the conversation, such as for a title; one that `is_awaited` has to be answered before
    the program goes on with the chat. Both names are printable and of bounded length.
    """

    owner: str = ""
    chat_id: str = ""
    is_task: bool = False
    is_awaited: bool = False
    known_by: KnownBy = "nothing"

    @property
    def may_wait(self) -> bool:
        """Tell whether nobody waits for the answer: chats go before it."""
        return self.is_task and not self.is_awaited

    @property
    def may_have_hidden(self) -> bool:
        """Tell whether what no client has seen of its owner's conversations is given to this caller.

        To have the same words is no permission: they may be another person's who gives no name either.
        """
        return bool(self.owner) or self.known_by != "nothing"

    @property
    def keeps_as(self) -> str:
        """Return whose conversations it shares, and their compactions: the owner's may tell what no client has seen."""
        return self.owner if self.may_have_hidden else STRANGERS


NOBODY: Final = Caller()
"""Who asks where nothing is known of it."""


class OnlyUser:
    """Knows whether whoever gives no name can be taken for the one user of this server: until a user has a name."""

    def __init__(self) -> None:
        self.is_alone = True

    def meet(self, owner: str) -> None:
        """Take note of a caller; one with a name ends it for good."""
        self.is_alone = self.is_alone and not owner
