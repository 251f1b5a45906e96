"""Why the store cannot do its work. Nobody outside the store sees these: chats go on without it."""

from typing import Final

UNKNOWN: Final = "the log of the server says why"


class StoreUnavailable(Exception):
    """The store cannot be read or written now: the message says why, and later may be different.

    `plainly` says it to a person in a chat, without paths and in the words of no database.
    """

    def __init__(self, message: str, plainly: str = UNKNOWN) -> None:
        super().__init__(message)
        self.plainly = plainly


class StoreDamaged(StoreUnavailable):
    """The file is there but is no sound database any more."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "its file is damaged")
