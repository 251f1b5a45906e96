"""Who asks: the owner and the conversation of a request as the client names them, and whether it is a task."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request says about where it comes from; what it does not say is empty.

    `owner` is a user of the client, taken at its word: it keeps the conversations of this server's users apart and
    proves nothing. `chat_id` is the client's name for a conversation, shared by its branches. A task is a request of
    the program itself beside the conversation, such as for a title. Both names are printable and of bounded length.
    """

    owner: str = ""
    chat_id: str = ""
    is_task: bool = False


NOBODY: Final = Caller()
"""Who asks where nothing is known of it."""
