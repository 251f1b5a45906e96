"""What goes wrong between elbowroom and an MCP server."""

from elbowroom.errors import ElbowroomError


class McpUnavailable(ElbowroomError):
    """A server cannot be used; the message says why, as the end of a sentence, and holds no secret."""


class LinkLost(Exception):
    """The connection has ended; `was_sent` tells whether the server may have got the request."""

    def __init__(self, *, was_sent: bool) -> None:
        super().__init__()
        self.was_sent = was_sent
