"""Messages and texts as JSON in plain ASCII, in which lone surrogates, NUL and NaN survive any database."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elbowroom.context.ledger import Archived, Entry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """An entry's messages and those it was made from, by their keys, as JSON; what the nodes' parents are."""

    messages: str
    archive: Mapping[str, str]

    @property
    def size(self) -> int:
        """Return how many bytes this is."""
        return len(self.messages) + sum(map(len, self.archive.values()))


def written(entry: Entry, archive: Sequence[Archived]) -> Written | None:
    """Return what is to be kept, or None with a warning in the log where that is nothing JSON can hold."""
    try:
        for text in (entry.key, entry.rung, *(part for node in archive for part in (node.key, node.parent))):
            text.encode()
        return Written(encoded(entry.messages), {node.key: encoded(node.message) for node in archive})
    except (TypeError, ValueError, RecursionError) as error:
        log.warning("A compaction cannot be kept, so it may be made again: %s.", error)
        return None


def encoded(value: Any) -> str:
    """Return a message, several, or a text as JSON. Raises TypeError, ValueError or RecursionError for what is none."""
    return json.dumps(value, separators=(",", ":"), default=_plain)


def decoded_text(text: str) -> str:
    """Return a text that was written as JSON; one that something else has written is taken as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) else text


def _plain(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a message holds a {type(value).__name__}, which is not JSON")
