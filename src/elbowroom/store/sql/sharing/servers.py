"""Servers that share a PostgreSQL database: which are there, which writes a turn, and what they ask each other.

All times are those of the database, so that the clocks of the servers may differ.
"""

import json
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    and_,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert as insert_or_update
from sqlalchemy.sql.dml import ReturningInsert

from elbowroom.context.conversation import QueuedMessage
from elbowroom.context.reuse import ReadPrompt
from elbowroom.store.base import HOUR, encoded
from elbowroom.store.sql.asking import reading, settling, writing
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import is_postgresql, selected
from elbowroom.store.sql.reading import queued
from elbowroom.store.sql.schema import (
    admission,
    agent_list,
    queue,
    read_prompts,
    server_batches,
    server_calls,
    servers,
    turns,
)
from elbowroom.store.sql.statements import bound, interrupting

LEASE_SECONDS: Final = 10.0
"""A server that has not renewed its row for so long counts as dead."""
FORGOTTEN_SECONDS: Final = HOUR
CACHED_SECONDS: Final = 24 * HOUR
"""What an engine has read longer ago it is taken to have forgotten."""
TAKEN_SECONDS: Final = LEASE_SECONDS
"""A call that is older is not answered: a server that stood still does not do what was asked of it before."""
ASKED_TOO_LONG_SECONDS: Final = 120.0
"""A call that nobody has fetched the answer of for so long is deleted."""
CHANNEL: Final = "elbowroom_servers"
"""`NOTIFY` on it names a server that has something to read."""
SWEEP_LOCK: Final = 0x656C626F77737770
"""The advisory lock of whoever looks after what dead servers have left."""
NOW: Final = cast(func.extract("epoch", func.clock_timestamp()), Float)
BEGUN: Final = cast(func.extract("epoch", func.now()), Float)
"""When the transaction began: all its statements count the same servers as dead, or what one leaves another takes."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a server is asked."""

    number: int
    caller: str
    operation: str
    given: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """How far a server has written its changes: whole batches up to `number`, and of the next one the first `place`."""

    number: int
    place: int = 0


class SqlServers:
    """The servers of a database, seen from the one with this id. All methods raise StoreUnavailable."""

    def __init__(self, database: Database, server: str) -> None:
        self.database = database
        self.id = server

    @settling
    def wake(self, connection: Connection, server: str) -> None:
        """Have a server look for what is new."""
        wake(connection, server)

    @writing
    def leave(self, connection: Connection) -> None:
        """Say that this server ends; what it has not ended counts as interrupted."""
        connection.execute(delete(servers).where(servers.c.id == self.id))
        connection.execute(delete(admission).where(admission.c.server == self.id))
        connection.execute(delete(server_batches).where(server_batches.c.server == self.id))
        connection.execute(update(queue).where(queue.c.server == self.id).values(server=""))

    @settling
    def has_left(self, connection: Connection) -> bool:
        """Tell whether `sweep` has something to do, in one statement."""
        left = (
            select(turns.c.id).where(turns.c.status == "streaming", of_dead(turns.c.server)),
            select(queue.c.id).where(queue.c.server != "", of_dead(queue.c.server)),
            select(admission.c.number).where(of_dead(admission.c.server)),
            select(server_calls.c.number).where(server_calls.c.made < NOW - ASKED_TOO_LONG_SECONDS),
            select(servers.c.id).where(servers.c.renewed < NOW - FORGOTTEN_SECONDS),
            select(read_prompts.c.conversation).where(read_prompts.c.read < NOW - CACHED_SECONDS),
            select(server_batches.c.server).where(server_batches.c.server.not_in(select(servers.c.id))),
        )
        return bool(connection.scalar(select(or_(*(each.exists() for each in left)))))

    @writing
    def sweep(self, connection: Connection) -> int:
        """Mark as interrupted what dead servers were saying; return how many turns that were.

        One server does it at a time; the others return 0.
        """
        if not connection.scalar(select(func.pg_try_advisory_xact_lock(SWEEP_LOCK))):
            return 0
        unfinished = turns.c.status == "streaming"
        left = connection.scalar(select(func.count()).where(unfinished, of_dead(turns.c.server)))
        for statement in interrupting(of_dead) if left else ():
            connection.execute(statement)
        connection.execute(update(queue).where(queue.c.server != "", of_dead(queue.c.server)).values(server=""))
        connection.execute(delete(admission).where(of_dead(admission.c.server)))
        connection.execute(delete(server_calls).where(server_calls.c.made < NOW - ASKED_TOO_LONG_SECONDS))
        connection.execute(delete(servers).where(servers.c.renewed < NOW - FORGOTTEN_SECONDS))
        connection.execute(delete(read_prompts).where(read_prompts.c.read < NOW - CACHED_SECONDS))
        connection.execute(delete(server_batches).where(server_batches.c.server.not_in(select(servers.c.id))))
        return int(left or 0)

    @reading
    def others(self, connection: Connection) -> list[str]:
        """Return the ids of the other servers that are there."""
        return list(connection.scalars(select(servers.c.id).where(_is_alive(), servers.c.id != self.id)))

    @reading
    def answering(self, connection: Connection, conversation: str) -> list[str]:
        """Return the other servers that answer a conversation now."""
        running = _running_elsewhere(self.id).where(turns.c.conversation == conversation)
        return list(connection.scalars(running.with_only_columns(turns.c.server).distinct()))

    @reading
    def answered(self, connection: Connection, conversations: Sequence[str]) -> set[str]:
        """Return those of the conversations that other servers answer now."""
        running = _running_elsewhere(self.id).where(turns.c.conversation.in_(conversations))
        return set(connection.scalars(running))

    @reading
    def writer(self, connection: Connection, turn: str) -> str | None:
        """Return the other server that writes a turn now; None for none."""
        running = _running_elsewhere(self.id).where(turns.c.id == turn)
        found: str | None = connection.scalar(running.with_only_columns(turns.c.server))
        return found

    @settling
    def ask(self, connection: Connection, server: str, operation: str, given: Mapping[str, Any]) -> int:
        """Ask a server, and return the number of the call."""
        call = insert(server_calls).values(
            server=server,
            caller=self.id,
            operation=operation,
            given=encoded(dict(given)),
            made=NOW,
            is_taken=False,
        )
        number = int(connection.execute(call.returning(server_calls.c.number)).scalar_one())
        wake(connection, server)
        return number

    @settling
    def claim(self, connection: Connection) -> list[Call]:
        """Take what this server is asked, each call once, in the order in which they were made."""
        own = server_calls.c
        is_new = own.made > NOW - TAKEN_SECONDS
        waiting = select(own.number).where(own.server == self.id, ~own.is_taken, is_new).order_by(own.number)
        taken = update(server_calls).where(own.number.in_(waiting.with_for_update(skip_locked=True)))
        columns = (own.number, own.caller, own.operation, own.given)
        rows = connection.execute(taken.values(is_taken=True).returning(*columns)).all()
        return sorted(
            (Call(row.number, row.caller, row.operation, json.loads(row.given)) for row in rows),
            key=lambda call: call.number,
        )

    @settling
    def answer(self, connection: Connection, call: Call, answer: Mapping[str, Any]) -> None:
        """Answer a call."""
        own = update(server_calls).where(server_calls.c.number == call.number)
        connection.execute(own.values(answer=encoded(dict(answer))))
        wake(connection, call.caller)

    @settling
    def answer_to(self, connection: Connection, number: int) -> tuple[bool, dict[str, Any] | None]:
        """Tell whether a server has taken a call, and what it answers; None where it has not answered yet."""
        own = server_calls.c
        row = connection.execute(select(own.is_taken, own.answer).where(own.number == number)).one_or_none()
        is_taken, answer = row or (False, None)
        return is_taken, json.loads(answer) if answer is not None else None

    @settling
    def forget(self, connection: Connection, number: int) -> None:
        """Delete a call that is over."""
        connection.execute(delete(server_calls).where(server_calls.c.number == number))

    @settling
    def has_waiting(self, connection: Connection, conversations: Sequence[str]) -> bool:
        """Tell whether messages wait in these conversations that no turn has taken, with whichever server."""
        own = queue.c
        waiting = select(own.number).where(own.conversation.in_(conversations), own.turn == "")
        return connection.execute(waiting.limit(1)).first() is not None

    @writing
    def claim_queue(
        self, connection: Connection, conversations: Sequence[str], known: Collection[str] | None = None
    ) -> list[QueuedMessage]:
        """Take the messages that wait in conversations and are with no server; return them in order.

        With `known` also those that this server has and does not know, since the answer was lost when it took them.
        None goes before an earlier one that another server has, which may give it back or die; then a turn has it until
        that is swept.
        """
        own = queue.c
        earlier = queue.alias()
        in_turn = earlier.c.turn.in_(select(turns.c.id).where(turns.c.status == "streaming"))
        is_elsewhere = and_(earlier.c.server != self.id, or_(~of_dead(earlier.c.server), in_turn))
        before = select(earlier.c.number).where(earlier.c.conversation == own.conversation, is_elsewhere)
        is_free = of_dead(own.server)
        if known is not None:
            is_free = or_(is_free, and_(own.server == self.id, own.id.not_in(known)))
        waiting = select(own.number).where(own.conversation.in_(conversations), own.turn == "", is_free)
        waiting = waiting.where(~before.where(earlier.c.number < own.number).exists())
        waiting = waiting.order_by(own.number).with_for_update(skip_locked=True)
        taken = update(queue).where(own.number.in_(waiting)).values(server=self.id)
        rows = connection.execute(taken.returning(*queue.c)).all()
        return queued(sorted(rows, key=lambda row: row.number))

    @reading
    def waiting(self, connection: Connection, conversation: str) -> list[QueuedMessage]:
        """Return the messages that wait in a conversation and no turn has taken, in order."""
        own = queue.c
        rows = select(queue).where(own.conversation == conversation, own.turn == "").order_by(own.number)
        return queued(connection.execute(rows))

    @writing
    def remove(self, connection: Connection, conversation: str, ids: Collection[str] | None) -> list[QueuedMessage]:
        """Delete messages that wait in a conversation and are with no server, of `ids` where given; return them."""
        own = queue.c
        gone = delete(queue).where(own.conversation == conversation, own.turn == "", of_dead(own.server))
        gone = gone.where(own.id.in_(ids)) if ids is not None else gone
        rows = connection.execute(gone.returning(*queue.c)).all()
        return queued(sorted(rows, key=lambda row: row.number))

    @settling
    def note_read(self, connection: Connection, conversation: str, prompt: ReadPrompt) -> None:
        """Note which model has read the last prompt of a conversation."""
        new = {"model": prompt.model, "window": prompt.window, "tokens": prompt.tokens, "read": NOW}
        row = insert_or_update(read_prompts).values(conversation=conversation, **new)
        connection.execute(row.on_conflict_do_update(index_elements=["conversation"], set_=new))

    @settling
    def last_read(self, connection: Connection, conversation: str) -> ReadPrompt | None:
        """Return the last prompt of a conversation, and how many others its model has read since."""
        own, other = read_prompts.c, read_prompts.alias().c
        others = select(func.count()).where(other.model == own.model, other.read > own.read).scalar_subquery()
        found = select(own.model, own.window, own.tokens, others).where(own.conversation == conversation)
        row = connection.execute(found).one_or_none()
        return ReadPrompt(*row) if row is not None else None

    @settling
    def agents(self, connection: Connection, known: int | None) -> tuple[int, str | None] | None:
        """Return the revision of the agents and their rows, None without a row; None where that is known already."""
        row = connection.execute(select(agent_list.c.revision, agent_list.c.rows)).one_or_none()
        revision, rows = row or (0, None)
        return (revision, rows) if revision != known else None

    @writing
    def save_agents(self, connection: Connection, known: int, rows: str) -> bool:
        """Put rows in place of those of a revision; tell whether it was the newest."""
        new = {"revision": known + 1, "rows": rows}
        row = insert_or_update(agent_list).values(number=1, **new)
        saved = row.on_conflict_do_update(index_elements=["number"], set_=new, where=agent_list.c.revision == known)
        return connection.execute(saved.returning(agent_list.c.revision)).first() is not None


def renewing(server: str) -> ReturningInsert[Any]:
    """Return the statement by which a server says that it is there; the first one brings its name.

    It returns how many seconds ago it last said so, null where it never did.
    """
    name, before = encoded(f"{socket.gethostname()}, process {os.getpid()}"), servers.alias()
    row = insert_or_update(servers).values(id=server, name=name, started=NOW, renewed=NOW)
    renewed = row.on_conflict_do_update(index_elements=[servers.c.id], set_={"renewed": NOW})
    return renewed.returning(select(NOW - before.c.renewed).where(before.c.id == server).scalar_subquery())


def note_written(connection: Connection, server: str, written: Written) -> bool:
    """Note in the transaction of a server's changes that it has written them; tell whether it had not before."""
    given = {"new_server": server, "new_number": written.number, "new_place": written.place}
    return bool(selected(connection, _NOTING, [given]))


def _noting() -> ReturningInsert[Any]:
    own = server_batches.c
    row = insert_or_update(server_batches).values({column: bound(column.name, column.type) for column in own})
    new = {"number": row.excluded.number, "place": row.excluded.place}
    is_later = tuple_(own.number, own.place) < tuple_(row.excluded.number, row.excluded.place)
    return row.on_conflict_do_update(index_elements=[own.server], set_=new, where=is_later).returning(own.number)


_NOTING: Final = _noting()


def living_servers(connection: Connection) -> list[str]:
    """Return the names of the servers that are there; only PostgreSQL can have some."""
    if not is_postgresql(connection):
        return []
    return [json.loads(name) for name in connection.scalars(select(servers.c.name).where(_is_alive()))]


def of_dead(server: ColumnElement[Any]) -> ColumnElement[bool]:
    """Tell whether what this column names is no server that is there."""
    return or_(server.is_(None), server.not_in(select(servers.c.id).where(_is_alive())))


def _is_alive() -> ColumnElement[bool]:
    return servers.c.renewed > BEGUN - LEASE_SECONDS


def _running_elsewhere(server: str) -> Any:
    """Select the conversations of turns that other servers write now."""
    own = turns.c
    alive = select(servers.c.id).where(_is_alive(), servers.c.id != server)
    return select(own.conversation).where(and_(own.status == "streaming", own.server.in_(alive)))


def wake(connection: Connection, server: str) -> None:
    """Have a server look for what is new, once the transaction is over."""
    connection.execute(select(func.pg_notify(CHANNEL, server)))
