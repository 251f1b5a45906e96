"""One turn's part in the ledger: what it begins with, and what it leaves for the turns after it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol
from weakref import WeakValueDictionary

from elbowroom.agents.request import Caller
from elbowroom.agents.turn.history import History
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import Compaction
from elbowroom.context.conversation import KeptTurn
from elbowroom.context.ledger import Chain, Entry, LedgerRows, is_system, replacement, restored
from elbowroom.context.put_back import Expanded, expanded
from elbowroom.context.transcript import Message

log = logging.getLogger(__name__)
CLOSING_SECONDS: Final = 10.0


class Ledger:
    """All that this server remembers of compactions; `rows` keep it beyond the server's own life.

    It is a help and never a hindrance: where rows cannot be read or written, the log says so and chats go on.
    """

    def __init__(self, rows: LedgerRows) -> None:
        self._rows = rows
        self._unwritten: dict[str, Entry] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def recalled(self, chain: Chain) -> AsyncIterator[tuple[int, Entry]]:
        """Yield the entries for beginnings of a conversation with their places in its chain, the longest first."""
        known = await self._known()
        for place in reversed(range(len(chain.keys))):
            key = chain.keys[place]
            if (entry := self._unwritten.get(key)) is None and key in known:
                entry = await self._found(key)
            if entry is not None:
                yield place, entry

    def keep(self, entry: Entry, made_from: Sequence[Message]) -> None:
        """Keep an entry that was made from these messages; the next request finds it, written already or not."""
        self._unwritten[entry.key] = entry
        task = asyncio.get_running_loop().create_task(self._write(entry, made_from))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def lock(self, key: str) -> asyncio.Lock:
        """Return what lets only one request at a time compact the conversation that this is the last key of."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def aclose(self) -> None:
        """Wait until everything is written, or until that has taken too long."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=CLOSING_SECONDS)

    async def _known(self) -> Collection[str]:
        try:
            return await self._rows.keys()
        except Exception:
            log.exception("The compactions of earlier requests cannot be read; they may be made once more.")
            return ()

    async def _found(self, key: str) -> Entry | None:
        try:
            entries = await self._rows.find([key])
        except Exception:
            log.exception("The compaction of an earlier request cannot be read; it may be made once more.")
            return None
        return entries[0] if entries else None

    async def _write(self, entry: Entry, made_from: Sequence[Message]) -> None:
        try:
            await self._rows.save(entry, made_from)
        except Exception:
            log.exception("A compaction could not be kept; a later request may have to make it once more.")
        finally:
            if self._unwritten.get(entry.key) is entry:
                del self._unwritten[entry.key]


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


class KeptTurns(Protocol):
    """What is kept of the turns of a conversation."""

    async def hidden(self, chain: Chain, place: int) -> list[KeptTurn]:
        """Return the turns behind a place in the chain that hold more than the client has seen."""
        ...


class TurnMemory:
    """Knows a conversation by the chain over its client's messages; owner and agent are part of that.

    `of_client` are these messages, as they came, and `chain` is theirs where it has been made before. To a caller that
    may have it, what no client has seen of the turns that are `kept` is put back among them. Of a turn that has such
    things nothing is left for any other caller.
    """

    def __init__(
        self,
        ledger: Ledger,
        caller: Caller,
        agent: str,
        messages: Sequence[Message],
        kept: KeptTurns | None = None,
        chain: Chain | None = None,
    ) -> None:
        self._ledger = ledger
        self._caller, self._agent = caller, agent
        self._kept = kept if caller.may_have_hidden else None
        self.of_client = list(messages)
        self._place = -1
        self._entry: Entry | None = None
        self._began_with = self.of_client
        self._has_begun = False
        self._beyond: Written | None = None
        self._chain = chain

    @cached_property
    def chain(self) -> Chain:
        """Return the chain over the client's messages."""
        return self._chain or Chain.of(self._caller.keeps_as, self._agent, self.of_client)

    @cached_property
    def _whole(self) -> Expanded:
        """The client's messages with what was put back; nothing was yet."""
        return Expanded(self.of_client, self.chain)

    def lock(self) -> asyncio.Lock:
        """Return what lets only one of several requests with the same messages compact them."""
        return self._ledger.lock(self.chain.keys[-1] if self.chain.keys else self.chain.seed)

    async def recall(self, history: History, budget: Budget, size: Measured) -> bool:
        """Put the longest beginning that was compacted before in its place; tell whether there was one.

        Behind it, or where there is none in all of the conversation, what the client never saw is put back. What was
        compacted for a much smaller window is taken only where the conversation, whole or with an earlier compaction,
        would fill more than half of this one.
        """
        found = await self._found(budget, size)
        if found is not None:
            self._place, self._entry = found
        elif self._whole.turns:
            return False  # it has been put back already
        self._begin(history, await self._put_back(self._place))
        return found is not None

    async def put_back(self, history: History) -> None:
        """Put back what the client never saw, once, where nobody knows the window and nothing is ever compacted."""
        if not self._has_begun:
            self._begin(history, await self._put_back(-1))

    def leave_away(self, history: History) -> bool:
        """Take away the older half of what was put back; tell whether something was and is none of a summary now."""
        count = len(self._whole.turns)
        if not count or history.has_taken_in_own or len(history.of_client) != len(self._began_with):
            return False
        turns = self._whole.turns[(count + 1) // 2 :]
        self._begin(history, expanded(self.of_client, self.chain, self._place, turns))
        return True

    async def _found(self, budget: Budget, size: Measured) -> tuple[int, Entry] | None:
        much, larger = MUCH_LARGER
        found: list[tuple[int, Entry]] = []
        async for place, entry in self._ledger.recalled(self.chain):
            if not self._asks(restored(self.of_client, self.chain, place, entry)):
                continue
            found.append((place, entry))
            if budget.window * larger < entry.window * much:
                break
        else:
            if found and await self._is_half_empty(budget, size, -1, None):
                return None
        if len(found) > 1 and await self._is_half_empty(budget, size, *found[-1]):
            return found[-1]
        return found[0] if found else None

    async def _is_half_empty(self, budget: Budget, size: Measured, place: int, entry: Entry | None) -> bool:
        """Tell whether the conversation behind an entry would fill no more than half of the window, put back too."""
        if not await _is_half_empty(budget, size, _behind(entry, place, Expanded(self.of_client, self.chain))):
            return False
        whole = await self._put_back(place)
        return not whole.turns or await _is_half_empty(budget, size, _behind(entry, place, whole))

    async def _put_back(self, place: int) -> Expanded:
        """Return the client's messages with what is kept of the turns behind a place; a chat never fails for that."""
        turns: Sequence[KeptTurn] = ()
        if self._kept is not None and any(message.get("role") == "assistant" for message in self.of_client):
            try:
                turns = await self._kept.hidden(self.chain, place)
            except Exception:
                log.exception("What an agent has read in a conversation cannot be put back.")
        return expanded(self.of_client, self.chain, place, turns)

    def _begin(self, history: History, whole: Expanded) -> None:
        """Let the turn begin with these, behind the compaction that was found."""
        self._whole, self._has_begun = whole, True
        if self._entry is None and not whole.turns and self._began_with is self.of_client:
            return
        covered = whole.chain.ends[self._place] if self._entry is not None else 0
        self._began_with = _behind(self._entry, self._place, whole)
        history.begin_anew_with(self._began_with, len(whole.messages) - covered)

    def keep(self, history: History, written: Written) -> None:
        """Keep what stands for the beginning of the client's messages now, for turns that begin the same.

        What has taken in more than that is kept at the `end`, when it is known what the client has got of it. Nothing
        is kept where they stand as the turn began with them.
        """
        if not self._may_keep(history):
            return
        if history.has_taken_in_own:
            self._beyond = written
            return
        if history.of_client == self._began_with:
            return
        whole = self._whole
        place, messages = replacement(whole.messages, whole.chain, history.of_client, history.untouched)
        if place >= 0:
            self._keep(whole.chain.keys[place], messages, written, self.of_client)

    def keep_behind(self, history: History, said: Message, written: Written) -> None:
        """Keep a compaction of the conversation with its answer, which the client has as `said`."""
        if not history.has_taken_in_own:
            self.keep(history, written)
            return
        if not self._may_keep(history):
            return
        spoken = [message for message in history.messages if not is_system(message)]
        self._keep(self.key_behind(said), spoken, written, [*self.of_client, said])

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

    def _may_keep(self, history: History) -> bool:
        """Tell whether what a history has become may be left for others that say the same."""
        return self._caller.may_have_hidden or not history.has_steps

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

    def _keep(self, key: str, messages: Sequence[Message], written: Written, made_from: Sequence[Message]) -> None:
        entry = Entry(
            key, tuple(messages), written.window, written.before, written.after, written.rung, created=time.time()
        )
        self._ledger.keep(entry, made_from)


def _behind(entry: Entry | None, place: int, whole: Expanded) -> list[Message]:
    """Return the conversation with an entry in place of what it covers, as it is where there is none."""
    return whole.messages if entry is None else restored(whole.messages, whole.chain, place, entry)


async def _is_half_empty(budget: Budget, size: Measured, messages: Sequence[Message]) -> bool:
    """Tell whether messages fill no more than half of the window; where nobody can count them they do not."""
    try:
        return budget.occupied(await size(messages)) <= budget.window // 2
    except Exception as error:  # noqa: BLE001  # a chat must not fail for its count
        log.warning("Whether a conversation fits its window once more cannot be counted: %s", error)
        return False
