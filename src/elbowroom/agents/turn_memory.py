"""One turn's part in the ledger: what it begins with, and what it leaves for the turns after it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from elbowroom.agents.history import History
from elbowroom.agents.ledger import Ledger
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import Compaction
from elbowroom.context.ledger import Archived, Chain, Entry, archive_of, is_system, replacement, restored
from elbowroom.context.transcript import Message

log = logging.getLogger(__name__)
MUCH_LARGER: Final = (5, 4)
"""A window is much larger than another from this ratio on: then what was compacted for the other may fit again."""

Measured = Callable[[Sequence[Message]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Written:
    """What made the messages that are to be kept: the window, sizes of the prompt before and after, and the rung."""

    window: int
    before: int
    after: int
    rung: str

    @classmethod
    def by(cls, compaction: Compaction, budget: Budget) -> "Written":
        """Return what there is to note about a compaction."""
        return cls(budget.window, compaction.before, compaction.after, compaction.rung)


class TurnMemory:
    """Knows a conversation by the chain over its client's messages; owner and agent are part of that.

    `of_client` are these messages, as they came; `chain` is theirs where somebody has made it before.
    """

    def __init__(
        self, ledger: Ledger, owner: str, agent: str, messages: Sequence[Message], chain: Chain | None = None
    ) -> None:
        self._ledger = ledger
        self._owner, self._agent = owner, agent
        self.of_client = list(messages)
        self._began_with = self.of_client
        self._beyond: Written | None = None
        self._chain = chain

    @cached_property
    def chain(self) -> Chain:
        """Return the chain over the client's messages."""
        return self._chain or Chain.of(self._owner, self._agent, self.of_client)

    def lock(self) -> asyncio.Lock:
        """Return what lets only one of several requests with the same messages compact them."""
        return self._ledger.lock(self.chain.keys[-1] if self.chain.keys else self.chain.seed)

    async def recall(self, history: History, budget: Budget, size: Measured) -> bool:
        """Put the longest beginning that was compacted before in its place; tell whether there was one.

        What was compacted for a much smaller window is taken only where the conversation, whole or with an earlier
        compaction, would fill more than half of this one.
        """
        much, larger = MUCH_LARGER
        found: list[tuple[int, Entry]] = []
        async for place, entry in self._ledger.recalled(self.chain):
            if not self._asks(self._restored(place, entry)):
                continue
            found.append((place, entry))
            if budget.window * larger < entry.window * much:
                break
        else:
            if found and await _is_half_empty(budget, size, self.of_client):
                return False
        if not found:
            return False
        if len(found) > 1 and await _is_half_empty(budget, size, self._restored(*found[-1])):
            found = found[-1:]
        place, entry = found[0]
        self._began_with = self._restored(place, entry)
        history.begin_anew_with(self._began_with, len(self.of_client) - self.chain.ends[place])
        return True

    def keep(self, history: History, written: Written) -> None:
        """Keep what stands for the beginning of the client's messages now, for turns that begin the same.

        What has taken in more than that is kept at the `end`, when it is known what the client has got of it. Nothing
        is kept where they stand as the turn began with them.
        """
        if history.has_taken_in_own:
            self._beyond = written
            return
        if history.of_client == self._began_with:
            return
        place, messages = replacement(self.of_client, self.chain, history.of_client, history.untouched)
        if place >= 0:
            self._keep(self.chain.keys[place], messages, written, archive_of(self.chain, self.of_client))

    def keep_behind(self, history: History, said: Message, written: Written) -> None:
        """Keep a compaction of the conversation with its answer, which the client has as `said`."""
        if not history.has_taken_in_own:
            self.keep(history, written)
            return
        key = self.key_behind(said)
        answer = Archived(key, self.chain.keys[-1] if self.chain.keys else self.chain.seed, said)
        spoken = [message for message in history.messages if not is_system(message)]
        self._keep(key, spoken, written, [*archive_of(self.chain, self.of_client), answer])

    def end(self, history: History, reply: Message, said: Message) -> None:
        """Keep a compaction within the turn that has taken in what the client has not sent.

        `reply` is the model's last message, `said` the answer as the client has it: behind that it is found.
        """
        if self._beyond is not None:
            self.keep_behind(history.followed_by(reply), said, self._beyond)

    def key_behind(self, said: Message) -> str:
        """Return the key of this conversation with the answer behind it, as the next request will bring it."""
        is_continued = bool(self.of_client) and self.of_client[-1].get("role") == "assistant"
        return self.chain.continued_by(self.of_client, said) if is_continued else self.chain.followed_by(said)

    def _asks(self, messages: Sequence[Message]) -> bool:
        """Tell whether these end as the client's do, and have its last question word for word.

        Who goes back to where a later compaction ends would find there a summary in place of what is to be answered.
        """
        spoken = [message for message in messages if not is_system(message)]
        last = next(message for message in reversed(self.of_client) if not is_system(message))
        questions = [message for message in self.of_client if message.get("role") == "user"]
        return (
            bool(spoken) and spoken[-1].get("role") == last.get("role") and (not questions or questions[-1] in messages)
        )

    def _restored(self, place: int, entry: Entry) -> list[Message]:
        return restored(self.of_client, self.chain, place, entry)

    def _keep(self, key: str, messages: Sequence[Message], written: Written, archive: Sequence[Archived]) -> None:
        entry = Entry(
            key, tuple(messages), written.window, written.before, written.after, written.rung, created=time.time()
        )
        self._ledger.keep(entry, archive)


async def _is_half_empty(budget: Budget, size: Measured, messages: Sequence[Message]) -> bool:
    """Tell whether messages fill no more than half of the window; where nobody can count them they do not."""
    try:
        return budget.occupied(await size(messages)) <= budget.window // 2
    except Exception as error:  # noqa: BLE001  # a chat must not fail for its count
        log.warning("Whether a conversation fits its window once more cannot be counted: %s", error)
        return False
