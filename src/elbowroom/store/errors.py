"""Why the store cannot do its work. Nobody outside the store sees these: chats go on without it."""


class StoreUnavailable(Exception):
    """The store cannot be read or written now: the message says why, and later may be different."""


class StoreDamaged(StoreUnavailable):
    """The file is there but is no sound database any more."""
