"""Conversations in a database."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection, Row, Select, Table, insert, select, update

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import (
    Conversation,
    ConversationRow,
    KeptTurn,
    Known,
    MessagePage,
    Overview,
    QueuedMessage,
    Savings,
)
from elbowroom.store.base import StoreUnavailable, encoded, owner_key
from elbowroom.store.changes import KeptChange, Released, TurnDeleted, is_sound, left_out
from elbowroom.store.index import IndexedConversation
from elbowroom.store.questions import (
    AskedConversations,
    Find,
    Holder,
    Look,
    LookUp,
    OneMessage,
    Page,
    Pins,
    Question,
    Queue,
    Read,
    Receipt,
    Rows,
    Saved,
    Times,
    Turns,
)
from elbowroom.store.sql.asking import browsing, housekeeping, reading, writing
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import batched, execute_all, is_refusal, number_from
from elbowroom.store.sql.finding import known_of, longest_known, page_of_index, searched, some_of_index
from elbowroom.store.sql.limits import GOING, delete_messages
from elbowroom.store.sql.pages import read_message, read_page
from elbowroom.store.sql.reading import (
    conversation_row,
    read_conversation,
    read_overview,
    read_pins,
    read_queue,
    read_times,
    read_turns,
)
from elbowroom.store.sql.savings import read_savings
from elbowroom.store.sql.schema import (
    compactions,
    conversations,
    message_parts,
    messages,
    queue,
    queue_receipts,
    step_usage,
    turns,
)
from elbowroom.store.sql.sharing import Written, note_written, of_dead, renewing
from elbowroom.store.sql.statements import interrupting
from elbowroom.store.sql.writing import Plan

NUMBERED: Final = (messages, step_usage, compactions, queue)
FIRST_COPIED_NUMBER: Final = 2**40
"""From here on rows are numbered beside such as were copied with their numbers."""
Copied = Mapping[Table, Sequence[Mapping[str, Any]]]
"""Rows of conversations by their tables."""
Answer = TypeVar("Answer")


class _TakenBack(Exception):
    """What was written in a rehearsal is taken back."""


REHEARSED: Final[Sequence[KeptChange]] = (
    kinds.ConversationBegun("rehearsed", "", "", "", 0.0),
    kinds.Heard("rehearsed", "rehearsed", "", {"role": "user", "content": ""}, 0.0),
    kinds.TurnBegun("rehearsed", "rehearsed", "rehearsed", "", 0.0),
    kinds.ReplyBegun("rehearsed", "rehearsed.1", 0.0),
    kinds.ReplyGrew("rehearsed.1", "text", "Once"),
    kinds.ReplyGrew("rehearsed.1", "reasoning", "more"),
    kinds.ReplyEnded("rehearsed.1", "complete", None),
    kinds.TurnEnded("rehearsed", "complete", "", 0.0),
)
"""A turn that is written, and taken back, before anybody says something."""


class SqlConversations(AskedConversations):
    """Conversations in a database. All methods raise StoreUnavailable.

    `server` is which of the servers that share it this one is, empty for the only one.
    """

    _is_rehearsed = False

    def __init__(self, database: Database, server: str = "") -> None:
        self.database = database
        self._server = server

    @housekeeping
    def interrupt(self, connection: Connection) -> None:
        """Mark as interrupted all that a process which has stopped was saying, and put back what it had taken."""
        if self._server:
            connection.execute(renewing(self._server))
        execute_all(connection, [(each, [{}]) for each in interrupting(of_dead if self._server else None)])

    @housekeeping
    def delete_some(self, connection: Connection, conversation: str) -> bool:
        """Delete some messages of a conversation that is to be deleted; tell whether there are more.

        Until it is deleted as a whole it counts as used before all others, and goes with the next limits.
        """
        connection.execute(update(conversations).filter_by(id=conversation).values(updated=GOING))
        return delete_messages(connection, conversation)

    async def rehearse(self) -> None:
        """Write a turn and take it back: a process's first takes long, and nothing that is said is to wait for it.

        Where it cannot be written, because another process writes for example, words will meet that and tell it.
        """
        if not SqlConversations._is_rehearsed:
            with suppress(StoreUnavailable):
                await self.database.do(self._rehearse)
                SqlConversations._is_rehearsed = True

    async def write(self, changes: Sequence[KeptChange], number: int = 0, server: str = "") -> None:
        """Write changes in order, all or nothing; those that refer to nothing, or that are refused, are left out.

        `number` is that of the batch, which rises. A batch that is written again, since a server's answer to the first
        time was lost, is written once. With `server` it is that of another server, which has left it.
        """
        await self.database.do(partial(self._write, changes, Written(number), server or self._server))

    async def ask(self, question: Question[Answer]) -> Answer:
        """Return the answer; turns wait for none that people ask for, and nobody for a search."""
        answer: Callable[[Connection], Answer] = partial(_ANSWERS[type(question)], question)
        if question.is_of_turn:
            return await self.database.read(answer)
        if isinstance(question, Rows) and question.search:
            return await self.database.search(answer)
        return await self.database.browse(answer)

    @browsing
    def indexed(self, connection: Connection, after: tuple[float, str] | None) -> list[IndexedConversation]:
        """Return some conversations with their keys, those used last first, after the last one of the page before."""
        return page_of_index(connection, after)

    @browsing
    def indexed_again(self, connection: Connection, ids: Sequence[str]) -> list[IndexedConversation]:
        """Return these conversations with their keys, as far as they are there."""
        return some_of_index(connection, ids)

    @reading
    def copied(self, connection: Connection, changes: Sequence[KeptChange], known: Collection[str]) -> Copied:
        """Return all rows of the conversations that these changes are about, without those that are known."""
        wanted = sorted(_conversations_of(connection, changes).difference(known))
        return {
            table: [dict(row) for some in batched(wanted) for row in connection.execute(statement(some)).mappings()]
            for table, statement in ROWS_OF.items()
        }

    @writing
    def put(self, connection: Connection, copied: Copied) -> None:
        """Keep rows that were copied from another database."""
        for table, rows in copied.items():
            if rows:
                connection.execute(insert(table), list(rows))

    @writing
    def take_over(self, connection: Connection, copied: Copied) -> None:
        """Keep rows that were copied from a database in whose place this one is, with numbers of this one.

        Those that are here already stay as they are.
        """
        for table, rows in copied.items():
            new = [{name: value for name, value in row.items() if name != "number"} for row in rows]
            if new:
                connection.execute(insert(table).prefix_with("OR IGNORE", dialect="sqlite"), new)

    @writing
    def number_apart(self, connection: Connection) -> None:
        """Give new rows numbers that copied ones do not have, nor any before them; for a new database."""
        for table in NUMBERED:
            number_from(connection, table, FIRST_COPIED_NUMBER)

    @reading
    def ids(self, connection: Connection) -> set[str]:
        """Return the ids of all conversations."""
        return set(connection.scalars(select(conversations.c.id)))

    def _rehearse(self) -> None:
        with suppress(_TakenBack), self.database.writing_at_once() as connection:
            execute_all(connection, Plan(self._server).add(REHEARSED).groups)
            raise _TakenBack

    def _write(self, changes: Sequence[KeptChange], written: Written, server: str) -> None:
        """Write changes together, or where a database refuses their values, one by one."""
        try:
            with self.database.writing_at_once() as connection:
                if not server or note_written(connection, server, written):
                    execute_all(connection, Plan(server).add(changes).groups)
        except StoreUnavailable as error:
            if not is_refusal(error):
                raise
            if written.place:
                left_out(changes[0], error)
                return
            for place, change in enumerate(changes, 1):
                self._write([change], Written(written.number - 1, place), server)


def _rows_of(table: Table) -> Any:
    order = list(table.primary_key)

    def statement(ids: Sequence[str]) -> Select[Any]:
        if table is conversations:
            condition = table.c.id.in_(ids)
        elif table is message_parts:
            condition = table.c.message.in_(select(messages.c.id).where(messages.c.conversation.in_(ids)))
        elif table is step_usage:
            condition = table.c.turn.in_(select(turns.c.id).where(turns.c.conversation.in_(ids)))
        else:
            condition = table.c.conversation.in_(ids)
        return select(table).where(condition).order_by(*order)

    return statement


ROWS_OF: Final = {
    table: _rows_of(table)
    for table in (conversations, turns, messages, message_parts, step_usage, compactions, queue, queue_receipts)
}
"""What selects the rows of conversations, for each table that has any."""


def _conversations_of(connection: Connection, changes: Sequence[KeptChange]) -> set[str]:
    """Return which conversations these changes are about, where they are there."""
    found: set[str] = set()
    names: dict[Table, set[str]] = {turns: set(), messages: set(), queue: set()}
    for change in changes:
        match change:
            case kinds.Queued():
                found.add(change.item.conversation)
            case kinds.ReplyGrew() | kinds.ReplyCalled() | kinds.ReplyEnded():
                names[messages].add(change.message)
            case kinds.ReplyBegun() | kinds.Added() | kinds.StepUsed() | kinds.TurnEnded() | TurnDeleted():
                names[turns].add(change.turn)
            case kinds.QueueTaken() | kinds.QueueDropped() | Released():
                names[queue].update(change.ids)
            case _:
                found.add(change.conversation)
    for table, ids in names.items():
        for some in batched(sorted(filter(is_sound, ids))):
            found.update(connection.scalars(select(table.c.conversation).where(table.c.id.in_(some))))
    return set(filter(is_sound, found))


def _found(owner: str, conversation: str, connection: Connection) -> Row[Any] | None:
    """Return the conversation with this id, or else the one used last with this name."""
    own = select(conversations).where(conversations.c.owner == owner_key(owner), conversations.c.id == conversation)
    if is_sound(conversation) and (row := connection.execute(own).first()):
        return row
    return connection.execute(_named(owner, conversation)).first() if conversation else None


def _named(owner: str, name: str) -> Select[Any]:
    """Select those with this name, the one used last first; ordered so, the index of names is used."""
    own = conversations.c
    named = select(conversations).where(own.owner == owner_key(owner), own.name == encoded(name))
    return named.order_by((own.updated + 0).desc(), own.id.desc())


def _newest(owner: str) -> Select[Any]:
    own = conversations.c
    return select(conversations).where(own.owner == owner_key(owner)).order_by(own.updated.desc(), own.id.desc())


_ANSWERS: Final[dict[type[Question[Any]], Callable[[Any, Connection], Any]]] = {}
"""What answers each kind of question."""


def _answers(kind: Callable[..., Question[Answer]]) -> Callable[[Callable[[Any, Connection], Answer]], object]:
    """Let a function answer this kind of question."""

    def note(answer: Callable[[Any, Connection], Answer]) -> object:
        _ANSWERS[cast("type[Question[Answer]]", kind)] = answer
        return answer

    return note


@_answers(LookUp)
def _look_up(asked: LookUp, connection: Connection) -> Known | None:
    if asked.name:
        row = connection.execute(_named(asked.owner, asked.name)).first() or _found(asked.owner, asked.name, connection)
        found = row.id if row else None
    else:
        found = longest_known(connection, owner_key(asked.owner), asked.keys, asked.common)
    return known_of(connection, found, asked.keys) if found else None


@_answers(Turns)
def _turns(asked: Turns, connection: Connection) -> list[KeptTurn]:
    return read_turns(connection, asked.conversation, set(asked.keys)) if is_sound(asked.conversation) else []


@_answers(Pins)
def _pins(asked: Pins, connection: Connection) -> frozenset[str]:
    return read_pins(connection, asked.conversation) if is_sound(asked.conversation) else frozenset()


@_answers(Times)
def _times(asked: Times, connection: Connection) -> Mapping[str, float]:
    keys = [key for key in asked.keys if is_sound(key)]
    return read_times(connection, asked.conversation, keys) if is_sound(asked.conversation) else {}


@_answers(Queue)
def _queue(_: Queue, connection: Connection) -> list[QueuedMessage]:
    return read_queue(connection)


@_answers(Receipt)
def _receipt(asked: Receipt, connection: Connection) -> str | None:
    if not is_sound(asked.conversation):
        return None
    own = queue_receipts.c
    received = select(own.fingerprint).where(own.id == asked.message, own.conversation == asked.conversation)
    fingerprint: str | None = connection.scalar(received)
    return fingerprint


@_answers(Rows)
def _rows(asked: Rows, connection: Connection) -> list[ConversationRow]:
    statement = _newest(asked.owner)
    if asked.before is not None:
        statement = statement.where(conversations.c.updated < asked.before)
    if asked.agent:
        statement = statement.where(conversations.c.agent == encoded(asked.agent))
    if asked.program:
        told = f'"program":{encoded(asked.program)}'
        statement = statement.where(conversations.c.metadata.contains(told, autoescape=True))
    if asked.model:
        using = select(turns.c.id).join(step_usage, step_usage.c.turn == turns.c.id)
        own = turns.c.conversation == conversations.c.id
        statement = statement.where(using.where(own, step_usage.c.model == encoded(asked.model)).exists())
    if asked.search:
        return searched(connection, statement, asked.search, asked.size)
    return list(map(conversation_row, connection.execute(statement.limit(asked.size)).all()))


@_answers(Saved)
def _saved(asked: Saved, connection: Connection) -> Savings:
    return read_savings(connection, owner_key(asked.owner), asked.zone)


@_answers(Find)
def _find(asked: Find, connection: Connection) -> ConversationRow | None:
    row = _found(asked.owner, asked.conversation, connection)
    return conversation_row(row) if row else None


@_answers(Holder)
def _holder(asked: Holder, connection: Connection) -> str | None:
    if not is_sound(asked.turn):
        return None
    own = conversations.c.owner == owner_key(asked.owner)
    statement = select(conversations.c.id).join(turns, turns.c.conversation == conversations.c.id)
    found: str | None = connection.scalar(statement.where(own, turns.c.id == asked.turn))
    return found


@_answers(Read)
def _read(asked: Read, connection: Connection) -> Conversation | None:
    row = _found(asked.owner, asked.conversation, connection)
    return read_conversation(connection, row) if row else None


@_answers(Look)
def _overview(asked: Look, connection: Connection) -> Overview | None:
    row = _found(asked.owner, asked.conversation, connection)
    return read_overview(connection, row) if row else None


@_answers(Page)
def _page(asked: Page, connection: Connection) -> MessagePage | None:
    row = _found(asked.owner, asked.conversation, connection)
    return read_page(connection, row, asked.wanted) if row else None


@_answers(OneMessage)
def _message(asked: OneMessage, connection: Connection) -> MessagePage | None:
    row = _found(asked.owner, asked.conversation, connection)
    return read_message(connection, row, asked.message) if row else None
