"""Where a queue is kept, as a list of changes: what a process that died has left can be read of it."""

from collections.abc import Sequence
from dataclasses import replace

from elbowroom.context.conversation import Change, Queued, QueuedMessage, QueueDropped, QueueTaken


class QueueJournal:
    """Keeps what is noted where it `works`; a queue that begins on it later finds what its contract promises."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.works = True

    def note(self, changes: Sequence[Change]) -> None:
        """Keep changes."""
        self.changes += changes

    async def settled(self) -> bool:
        """Tell whether all that was noted is durable."""
        return self.works

    async def queue(self) -> list[QueuedMessage]:
        """Return what waits; what a turn had taken waits again."""
        return [replace(item, turn="") for item in self.kept().values()] if self.works else []

    async def receipt(self, conversation: str, message: str) -> str | None:
        """Return the fingerprint of the message that was ever put in the queue of a conversation under this id."""
        items = [change.item for change in self.changes if isinstance(change, Queued)]
        found = (item.fingerprint for item in items if (item.conversation, item.id) == (conversation, message))
        return next(found, None)

    def kept(self) -> dict[str, QueuedMessage]:
        """Return what is in the queue by id, in order, with the turns that have taken it."""
        kept: dict[str, QueuedMessage] = {}
        for change in self.changes:
            match change:
                case Queued(item):
                    kept[item.id] = item
                case QueueTaken(turn, ids):
                    kept |= {one: replace(kept[one], turn=turn) for one in ids}
                case QueueDropped(ids):
                    for one in ids:
                        del kept[one]
                case _:
                    raise AssertionError(f"no change of a queue: {change}")
        return kept
