"""Conversations as chats need them: there from the start, written a moment later, and never in the way."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from elbowroom.context.conversation import Change, KeptMessage, Known
from elbowroom.store.backlog import WaitingChanges
from elbowroom.store.base import ALONE, Servers, StoreUnavailable
from elbowroom.store.changes import (
    Batch,
    CompactionUndone,
    Deleted,
    Described,
    KeptChange,
    Pinned,
    Released,
    Renamed,
    SummaryEdited,
    TurnDeleted,
    Unheard,
)
from elbowroom.store.index import ConversationIndex, fill
from elbowroom.store.questions import Conversations, Question
from elbowroom.store.stand_by import StandBy
from elbowroom.store.write_behind import WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlConversations, SqlStore

log = logging.getLogger(__name__)
WRITTEN_SECONDS: Final = 0.25
"""How long after it was said a word is in the database at the latest."""
LATEST_SECONDS: Final = 0.6 * WRITTEN_SECONDS
"""How long a word or another change waits before it begins to be written; writing has the rest."""
PAUSE_SECONDS: Final = 0.05
"""How long writing pauses at least, where what waits could not be written or has come while it was slow."""
MOST_CHANGES: Final = 64
"""More changes than this for each reply that grows are written at once: about so many tokens may be unwritten."""
AGAIN_SECONDS: Final = 15.0
"""After this time writing is tried again where it failed, also when nobody says anything more."""
Answer = TypeVar("Answer")


class WriteBehindConversations(Conversations):
    """`Conversations` in a database that may fail.

    Changes that cannot be written wait in memory, in order and within bounds, and are written once that works again.
    Meanwhile questions are answered from what can be read together with what waits. Where other servers share the
    database, nothing is answered from memory alone.
    """

    def __init__(self, store: WriteBehindStore, servers: Servers = ALONE) -> None:
        self._store = store
        self._servers = servers
        self._waiting = WaitingChanges(self._write, self._forget)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._has_started = False
        self._next_start = 0.0
        self._stand_by: StandBy | None = None
        self._replacing = asyncio.Lock()
        self.index = ConversationIndex()
        self._filling: asyncio.Task[None] | None = None
        self._expected: dict[asyncio.Future[None], float] = {}
        store.add(self._waiting)
        store.when_open(self._has_opened)
        store.when_replaced(self._carry_over)

    def note(self, changes: Sequence[Change]) -> None:
        """Keep changes; they are written a moment later, or at once when there are many."""
        if self._servers.may_remember:
            self.index.note(changes)
        self._waiting.note(changes)
        self._write_in_time()

    def note_when_writing(self, hand_on: Callable[[], None]) -> None:
        """Call this when changes are written, a moment later, so that it notes what has come until then."""
        self._waiting.note_when_writing(hand_on)
        self._write_in_time()

    @property
    def lag(self) -> float:
        """Return for how many seconds the oldest change that is not in the database has waited; 0 where all are.

        What a turn says while its conversation is still being looked for counts from its beginning.
        """
        now = time.monotonic()
        return now - min([self._waiting.oldest or now, *self._expected.values()])

    @property
    def is_opening(self) -> bool:
        """Tell whether the store is being opened, so that only what is new is known."""
        return self._store.is_opening

    def expect(self, noting: Awaitable[None]) -> None:
        """Let what people ask wait until this task has noted what was said."""
        task = asyncio.ensure_future(noting)
        self._expected[task] = time.monotonic()
        task.add_done_callback(self._expected.pop)

    async def settled(self) -> bool:
        """Write what has been noted; tell whether all of it is on the disk."""
        let_go = self._waiting.let_go
        batches = self._waiting.waiting()
        await self._flush()
        is_written = self._waiting.let_go == let_go and not self._waiting.waits(batches)
        return is_written and self._store.is_durable

    def remembered(self, owner: str, name: str, keys: Sequence[str], common: int) -> Known | None:
        """Answer as `look_up` does, from memory and at once; None where only the database can tell."""
        return self.index.look_up(owner, name, keys, common) if self._servers.may_remember else None

    async def look_up(self, owner: str, name: str, keys: Sequence[str], common: int = 0) -> Known | None:
        """Find a conversation as LookUp says, once the store is open, however long that takes.

        One that is deleted while the question is answered is not found.
        """
        await self._store.opening_ended()
        known = await super().look_up(owner, name, keys, common)
        return None if known is not None and self.index.was_deleted(known.conversation) else known

    async def ask(self, question: Question[Answer]) -> Answer:
        """Answer a question from the database where all that was noted before it is written, else from both."""
        if not question.is_of_turn and self._expected:
            await asyncio.wait(self._expected)
        batches = self._waiting.waiting()
        await self._flush()
        if sql := await self._store.opened():
            try:
                await self._start_if_possible(sql.conversations)
                if not self._waiting.waits(batches):
                    return await sql.conversations.ask(question)
                return await self._ask_both(question, sql.conversations)
            except StoreUnavailable as error:
                self._store.failed(sql, error)
        return await self._ask_both(question, None)

    async def delete(self, owner: str, conversation: str) -> bool:
        """Delete one with all that belongs to it; tell whether it was there.

        Where that cannot be written now, it is deleted once it can.
        """
        found = await self.find(owner, conversation)
        if found:
            self.index.note([Deleted(found.id)])
            await self._delete_messages(found.id)
            self.index.note([Deleted(found.id)])
            self._note(Deleted(found.id))
            await self._flush()
        return found is not None

    async def delete_turn(self, owner: str, turn: str) -> bool:
        """Delete one turn with all that was said in it; tell whether it was there.

        Where that cannot be written now, it is deleted once it can.
        """
        holder = await self.holder(owner, turn)
        if holder is not None:
            self._note(TurnDeleted(turn))
            self.index.read_again(holder)
            await self._flush()
            self.index.read_again(holder)  # it may have been read meanwhile as it was before
            self._fill_soon()
        return holder is not None

    async def describe(self, conversation: str, metadata: Mapping[str, str]) -> None:
        """Keep what a client wants kept beside a conversation, in place of what it kept before."""
        await self._keep(Described(conversation, metadata))

    async def rename(self, conversation: str, title: str) -> None:
        """Keep the title that a person gave a conversation; an empty one gives it back the first question's."""
        await self._keep(Renamed(conversation, title))

    async def edit_summary(self, conversation: str, at: float, text: str) -> None:
        """Keep a person's words in place of the summary of the compaction that was made at this time."""
        await self._keep(SummaryEdited(conversation, at, text))

    async def undo_compaction(self, conversation: str, at: float) -> None:
        """Note that the compaction that was made at this time is taken back."""
        await self._keep(CompactionUndone(conversation, at, time.time()))

    async def pin(self, conversation: str, message: str, *, is_pinned: bool) -> None:
        """Note whether a message, by its id, is never to be summarised."""
        await self._keep(Pinned(conversation, message, is_pinned))

    def release(self, ids: Sequence[str]) -> None:
        """Give messages of the queue to whichever server runs the next turn of their conversation."""
        self._note(Released(tuple(ids)))

    async def _keep(self, change: Described | Renamed | SummaryEdited | CompactionUndone | Pinned) -> None:
        self._note(change)
        await self._flush()

    async def unhear(self, conversation: str, message: KeptMessage) -> None:
        """Delete a message of a client; what came after it comes after the message before it then."""
        self._note(Unheard(conversation, message.id, message.key, message.parent))
        self.index.read_again(conversation)
        await self._flush()
        self.index.read_again(conversation)  # it may have been read meanwhile as it was before
        self._fill_soon()

    async def aclose(self) -> None:
        """Give back what stood by for the database; for when the store is closed."""
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])
        if self._stand_by:
            await self._stand_by.dropped()

    async def _write(self, store: "SqlStore", batch: Batch) -> None:
        if not self._has_started:
            await self._start(store.conversations)
        await store.conversations.write(batch.changes, batch.number)
        self._drop_stand_by()
        store.has_grown()

    def _forget(self) -> None:
        """Forget all that was noted, for some of it is lost."""
        self._drop_stand_by()
        self.index.clear()

    def _write_in_time(self) -> None:
        """Begin to write before the oldest new change has waited too long, or at once where many can be written.

        What has been refused is tried again some time after that.
        """
        waiting, now = self._waiting, time.monotonic()
        is_open = self._store.current is not None and not self._store.is_failing
        if is_open and len(waiting.new) > MOST_CHANGES * waiting.growing:
            self._write_soon()
        elif self._writing is None and waiting.oldest is not None:
            if waiting.since is None:
                begin = now + self._store.seconds_until_next_try
            else:
                begin = max(waiting.since + LATEST_SECONDS, now + PAUSE_SECONDS)
            if self._timer and self._timer.when() > begin:
                self._timer.cancel()
                self._timer = None
            self._timer = self._timer or asyncio.get_running_loop().call_at(begin, self._write_soon)

    def _write_soon(self) -> None:
        """Begin to write what waits; what comes meanwhile is written after it."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._writing is None and not self._store.is_closed:
            self._writing = self._store.tasks.start(self._store.write(self._waiting))
            self._writing.add_done_callback(self._has_written)

    def _note(self, change: KeptChange) -> None:
        """Let a change wait that says nothing to the index."""
        self._waiting.note([change])
        self._write_in_time()

    async def _delete_messages(self, conversation: str) -> None:
        """Delete the messages some at a time: what is said in other conversations is written in between."""
        sql = self._store.current
        try:
            while sql and await sql.conversations.delete_some(conversation):
                pass
        except StoreUnavailable as error:
            log.debug("A conversation is deleted later: %s", error)

    def _has_opened(self, sql: "SqlStore") -> None:
        """Fill the index from the database that was opened; a new one in place of a damaged one has nothing of it."""
        if sql.set_aside:
            self.index.clear()
        sql.ask_before_deleting(self.index.may_go, self._stays)
        self._fill_soon()

    async def _carry_over(self, old: "SqlStore", new: "SqlStore") -> None:
        """Bring the conversations that are being answered, or wait to be written, into the file that is there now."""
        self.index.clear()
        self._drop_stand_by()
        self._has_started = False
        await self._start(new.conversations)
        changes = [*self.index.running(), *(change for batch in self._waiting.waiting() for change in batch.changes)]
        await new.conversations.take_over(await old.conversations.copied(changes, ()))

    def _stays(self, conversation: str) -> None:
        """Read a conversation again that was to be deleted and is still there."""
        self.index.stays(conversation)
        self._fill_soon()
        self._write_in_time()

    def _fill_soon(self) -> None:
        sql, index = self._store.current, self.index
        is_filling = self._filling is not None and not self._filling.done()
        if sql is not None and self._servers.may_remember and not is_filling and (index.wants_more or index.to_read):
            self._filling = asyncio.create_task(self._fill(sql))

    async def _fill(self, sql: "SqlStore") -> None:
        try:
            while self.index.wants_more or self.index.to_read:
                batches = self._waiting.waiting()
                await self._flush()
                if self._waiting.waits(batches):
                    return  # until all that was noted before can be read, only the database knows it with the rest
                await self._start_if_possible(sql.conversations)
                await fill(self.index, sql.conversations)
        except StoreUnavailable as error:
            self._store.failed(sql, error)

    def _has_written(self, _: asyncio.Task[None]) -> None:
        self._writing = None
        self._fill_soon()
        self._write_in_time()

    async def _flush(self) -> None:
        if self._waiting.oldest is not None:
            await self._store.tasks.run(self._store.write(self._waiting))

    async def _start(self, sql: "SqlConversations") -> None:
        """Mark what the process before this one has left unfinished, once and before anything is written."""
        async with self._starting:
            if not self._has_started:
                await sql.interrupt()
                self._has_started = True

    async def _start_if_possible(self, sql: "SqlConversations") -> None:
        """Do that before anything is read; a file that cannot be written is read as it is."""
        if not self._has_started and time.monotonic() >= self._next_start:
            try:
                await self._start(sql)
            except StoreUnavailable:
                self._next_start = time.monotonic() + AGAIN_SECONDS

    async def _ask_both(self, question: Question[Answer], stored: "SqlConversations | None") -> Answer:
        """Answer a question from the database, where it can be read, together with what waits."""
        while True:
            stand_by = await self._standing_by(stored)
            with stand_by.used():
                await stand_by.take(self._waiting.waiting())
                if stored is None and self._store.current:  # it was opened meanwhile, and may have all that waited
                    return await self.ask(question)
                if self._stand_by is stand_by:  # else something was written meanwhile, and may be in it twice
                    return await stand_by.ask(question)

    async def _standing_by(self, stored: "SqlConversations | None") -> StandBy:
        async with self._replacing:
            if self._stand_by is None or self._stand_by.stored is not stored:
                self._drop_stand_by()
                self._stand_by = await StandBy.over(stored)
            return self._stand_by

    def _drop_stand_by(self) -> None:
        if self._stand_by:
            self._stand_by.drop()
            self._stand_by = None
