"""Names."""

from typing import Final

PAGE: Final = "/"
PARTS: Final = "/page/"
CONVERSATION: Final = "X-Conversation-Id"
REQUEST_ID: Final = "X-Request-Id"


def is_page(path: str) -> bool:
    """Tell whether a path leads to the page or a part of it: what everybody may read, for it holds nobody's data."""
    return path == PAGE or path.startswith(PARTS)
