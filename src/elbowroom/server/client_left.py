"""What ends an answer that nobody reads any more."""


class ClientLeft(Exception):
    """The client has closed its connection, or has not read for too long and was cut off."""
