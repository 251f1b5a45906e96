"""Turns changes of conversations into SQL statements; a long reply grows in parts, so that little is rewritten."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from itertools import chain, groupby
from typing import Any, Final

from elbowroom.context import conversation as kinds
from elbowroom.context.canonical import FILE_TEMPLATE, question_in
from elbowroom.context.ledger import REUSED
from elbowroom.context.transcript import Message, is_text, parts_of, text_in, text_of
from elbowroom.store.base import encoded, owner_key
from elbowroom.store.changes import (
    UNSOUND,
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
    left_out,
)
from elbowroom.store.message_parts import REPLY_FIELDS, body, split
from elbowroom.store.sql import statements as sql
from elbowroom.store.sql.statements import values

TITLE_CHARACTERS: Final = 80
DETAILS: Final = tuple(field.name for field in fields(kinds.CompactionDetails))
Values = dict[str, Any]
Statements = Iterator[tuple[Any, Values]]
"""Statements, each with the values of one row."""


@dataclass(slots=True)
class Plan:
    """The statements for changes, in `groups` with the values of all rows that each is for.

    `server` writes them, where several share the database.
    """

    server: str = ""
    groups: list[tuple[Any, list[Values]]] = field(default_factory=list)
    _titled: str = ""
    _used: tuple[str, float] | None = None

    def add(self, changes: Sequence[KeptChange]) -> "Plan":
        """Plan these changes, and return the plan; such as cannot be kept are left out, with a warning in the log.

        Of messages that are heard one after the other each statement is for all, and what is used is noted at the end.
        """
        used: dict[Any, dict[Any, Values]] = {sql.USED: {}, sql.USED_BY_TURN: {}}
        for kind, alike in groupby(changes, type):
            self._titled, self._used = "", None
            heard: dict[Any, list[Values]] = {}
            for statement, row in chain.from_iterable(map(self._planned, alike)):
                if statement in used:
                    used[statement][tuple(row.values())] = row
                elif kind is kinds.Heard:
                    heard.setdefault(statement, []).append(row)
                elif self.groups and self.groups[-1][0] is statement:
                    self.groups[-1][1].append(row)
                else:
                    self.groups.append((statement, [row]))
            self.groups += heard.items()
        for statement, last in used.items():
            if last:
                self.groups.append((statement, list(last.values())))
        return self

    def _planned(self, change: KeptChange) -> Sequence[tuple[Any, Values]]:
        try:
            return list(PLANNED[type(change)](self, change))
        except UNSOUND as error:
            left_out(change, error)
            return ()

    def begin(self, change: kinds.ConversationBegun) -> Statements:
        """Write a conversation."""
        yield (
            sql.BEGIN_CONVERSATION,
            values(
                id=change.conversation,
                owner=owner_key(change.owner),
                name=encoded(change.name) if change.name else "",
                agent=encoded(change.agent),
                created=change.at,
                updated=change.at,
            ),
        )
        if change.metadata:
            yield from self.describe(Described(change.conversation, change.metadata))
        yield sql.USED, values(conversation=change.conversation, at=change.at)

    def hear(self, change: kinds.Heard) -> Statements:
        """Write a message of a client, which each conversation has once by its id."""
        message_id = f"{change.conversation}-{change.key}"
        given = {"id": message_id, "conversation": change.conversation, "key": change.key, "parent": change.parent}
        yield from _message(sql.HEAR, message_id, change.message, given | {"at": change.at})
        if self._titled != change.conversation and (title := title_of(change.message)):
            self._titled = change.conversation
            yield sql.TITLE, values(conversation=change.conversation, title=encoded(title))
        if self._used != (change.conversation, change.at):
            self._used = change.conversation, change.at
            yield sql.USED, values(conversation=change.conversation, at=change.at)

    def begin_turn(self, change: kinds.TurnBegun) -> Statements:
        """Write a turn."""
        agent = encoded(change.agent)
        given = values(id=change.turn, parent=change.parent, began=change.at, server=self.server)
        answered = values(conversation=change.conversation, agent=agent)
        yield sql.BEGIN_TURN, given | answered
        yield sql.ANSWERED_BY, answered
        yield sql.USED, values(conversation=change.conversation, at=change.at)

    def begin_reply(self, change: kinds.ReplyBegun) -> Statements:
        """Write a reply without any part, unless it is there."""
        given = values(id=change.message, turn=change.turn, fields=REPLY_FIELDS, status="streaming", at=change.at)
        yield sql.ADD, given
        yield sql.HAS_MORE, values(turn=change.turn, id=change.message)
        yield sql.USED_BY_TURN, values(turn=change.turn, at=change.at)

    def grow(self, change: kinds.ReplyGrew) -> Statements:
        """Write more of the text of a reply, or of its reasoning."""
        yield sql.SAY, values(message=change.message, kind=change.kind, status="streaming", content=body(change.text))

    def call(self, change: kinds.ReplyCalled) -> Statements:
        """Write a call as a part."""
        content = encoded(change.call)
        yield sql.SAY, values(message=change.message, kind="tool_call", status="streaming", content=content)

    def end_reply(self, change: kinds.ReplyEnded) -> Statements:
        """Write how a reply has ended, and what the engine had to read again for it."""
        ended = values(message=change.message, status=change.status)
        if change.lost is not None:
            yield sql.SAY, ended | values(kind="lost", content=encoded(change.lost))
        yield sql.END_REPLY, ended
        yield sql.END_PARTS, ended

    def add_message(self, change: kinds.Added) -> Statements:
        """Write a whole message of a turn; one of the queue only where no other server has taken it meanwhile."""
        statement, given = sql.ADD, {"id": change.message, "turn": change.turn, "status": "complete", "at": change.at}
        if change.queued:
            yield sql.TAKE_BACK, values(id=change.queued, server=self.server)
            statement, given = sql.ADD_QUEUED, given | {"queued": change.queued, "server": self.server}
        yield from _message(statement, change.message, change.content, given)
        yield sql.HAS_MORE, values(turn=change.turn, id=change.message)
        yield sql.USED_BY_TURN, values(turn=change.turn, at=change.at)

    def use(self, change: kinds.StepUsed) -> Statements:
        """Write what a step has used, and add it up."""
        used = change.usage
        counts = dict(zip(sql.COUNTERS, (used.input, used.output, used.cache_creation, used.cache_read), strict=True))
        counted = values(turn=change.turn, is_counted=used.is_counted, **counts)
        yield sql.USE, counted | values(model=encoded(change.model), at=change.at)
        yield sql.ADD_USE, counted
        if change.fill:
            filled = dict(zip(sql.FILL, astuple(change.fill), strict=True))
            yield sql.FILL_WINDOW_OF_TURN, values(turn=change.turn, **filled)
        yield sql.USED_BY_TURN, values(turn=change.turn, at=change.at)

    def fill(self, change: kinds.Filled) -> Statements:
        """Write how full the window of a conversation is; that is no use of it, and leaves its place in the list."""
        filled = dict(zip(sql.FILL, astuple(change.fill), strict=True))
        yield sql.FILL_WINDOW, values(conversation=change.conversation, **filled)

    def title(self, change: kinds.Titled) -> Statements:
        """Write the title that a conversation has unless a person gives it one."""
        yield sql.RETITLE, values(conversation=change.conversation, title=encoded(change.title))

    def compact(self, change: kinds.CompactionNoted) -> Statements:
        """Write a compaction, and count it."""
        given = values(
            conversation=change.conversation,
            before=change.before,
            after=change.after,
            rung=change.rung,
            at=change.at,
            **_details(change.details),
        )
        if change.rung == REUSED:
            yield sql.REUSE, given
        else:
            yield sql.COMPACT, given
            yield sql.COUNT_COMPACTION, values(conversation=change.conversation)
        yield sql.USED, values(conversation=change.conversation, at=change.at)

    def end_turn(self, change: kinds.TurnEnded) -> Statements:
        """Write how a turn has ended, which ends a reply that is still being said, too."""
        ended = values(turn=change.turn, status=change.status)
        yield sql.END_PARTS_OF_TURN, ended
        yield sql.END_REPLIES_OF_TURN, ended
        yield sql.END_TURN, ended | values(key=change.key, at=change.at)
        yield sql.USED_BY_TURN, values(turn=change.turn, at=change.at)

    def put_in_queue(self, change: kinds.Queued) -> Statements:
        """Write a message that waits, with no server, and that it was put in the queue."""
        item = change.item
        named = values(id=item.id, conversation=item.conversation)
        given = values(message=encoded(item.message), mode=item.mode, at=item.at, turn=item.turn, server="")
        yield sql.PUT_IN_QUEUE, named | given
        yield sql.NOTE_RECEIPT, named | values(fingerprint=item.fingerprint)
        yield sql.USED, values(conversation=item.conversation, at=item.at)

    def take(self, change: kinds.QueueTaken) -> Statements:
        """Write which turn has taken these."""
        for item in change.ids:
            yield sql.TAKE, values(id=item, turn=change.turn, server=self.server)

    def release(self, change: Released) -> Statements:
        """Write that these are with no server."""
        for item in change.ids:
            yield sql.RELEASE, values(id=item, server=self.server)

    def drop(self, change: kinds.QueueDropped) -> Statements:
        """Delete these from the queue."""
        for item in change.ids:
            yield sql.DROP, values(id=item, server=self.server)

    def delete(self, change: Deleted) -> Statements:
        """Delete a conversation with all that belongs to it."""
        for statement in sql.DELETING:
            yield statement, values(conversation=change.conversation)

    def delete_turn(self, change: TurnDeleted) -> Statements:
        """Delete a turn with all that was said in it."""
        for statement in sql.DELETING_TURN:
            yield statement, values(turn=change.turn)

    def unhear(self, change: Unheard) -> Statements:
        """Delete a message of a client."""
        for statement in sql.UNHEARING:
            yield statement, values(**asdict(change))

    def describe(self, change: Described) -> Statements:
        """Write what a client keeps beside a conversation."""
        yield sql.DESCRIBE, values(conversation=change.conversation, metadata=encoded(dict(change.metadata)))

    def rename(self, change: Renamed) -> Statements:
        """Write the title that a person gave a conversation, or that it has none."""
        renamed = encoded(change.title) if change.title else None
        yield sql.RENAME, values(conversation=change.conversation, renamed=renamed)

    def edit_summary(self, change: SummaryEdited) -> Statements:
        """Write a summary as a person has changed it."""
        yield sql.EDIT_SUMMARY, values(conversation=change.conversation, at=change.at, edited=encoded(change.text))

    def undo(self, change: CompactionUndone) -> Statements:
        """Write that a compaction is taken back."""
        yield sql.UNDO, values(**asdict(change))

    def pin(self, change: Pinned) -> Statements:
        """Write whether a message is pinned."""
        yield sql.PIN, values(**asdict(change))


PLANNED: Final[dict[type[Any], Callable[[Plan, Any], Statements]]] = {
    kinds.ConversationBegun: Plan.begin,
    kinds.Heard: Plan.hear,
    kinds.TurnBegun: Plan.begin_turn,
    kinds.ReplyBegun: Plan.begin_reply,
    kinds.ReplyGrew: Plan.grow,
    kinds.ReplyCalled: Plan.call,
    kinds.ReplyEnded: Plan.end_reply,
    kinds.Added: Plan.add_message,
    kinds.StepUsed: Plan.use,
    kinds.Filled: Plan.fill,
    kinds.Titled: Plan.title,
    kinds.CompactionNoted: Plan.compact,
    kinds.TurnEnded: Plan.end_turn,
    kinds.Queued: Plan.put_in_queue,
    kinds.QueueTaken: Plan.take,
    kinds.QueueDropped: Plan.drop,
    Deleted: Plan.delete,
    TurnDeleted: Plan.delete_turn,
    Unheard: Plan.unhear,
    Described: Plan.describe,
    Renamed: Plan.rename,
    SummaryEdited: Plan.edit_summary,
    CompactionUndone: Plan.undo,
    Pinned: Plan.pin,
    Released: Plan.release,
}
"""How each kind of change is planned."""


def _message(statement: Any, message_id: str, message: Message, given: Values) -> Statements:
    """Write a whole message with its parts."""
    fields, parts = split(message)
    yield statement, values(fields=fields, **given)
    for position, part in enumerate(parts):
        placed = values(message=message_id, position=position, kind=part.kind, status="complete", content=part.content)
        yield sql.ADD_PART, placed


def _details(details: kinds.CompactionDetails | None) -> dict[str, Any]:
    """Return the columns of a compaction that not every one has."""
    if details is None:
        return dict.fromkeys(DETAILS)
    focus = encoded(details.focus) if details.focus else None
    return asdict(details) | {"summary": encoded(details.summary), "focus": focus}


def title_of(message: Message) -> str:
    """Return the beginning of a question, in one line; empty for other messages and such that hold no text.

    Files that a client puts before a question are none of its words.
    """
    if message.get("role") != "user":
        return ""
    content = message.get("content")
    if not isinstance(content, str):
        parts = parts_of(content)
        first = text_in(parts[0]) if parts and is_text(parts[0]) else ""
        is_enough = len(first) >= TITLE_CHARACTERS * 4 and not first.startswith(FILE_TEMPLATE)
        content = first if is_enough else text_of(message)  # which copies all parts
    said = question_in(content)
    return " ".join(said[: TITLE_CHARACTERS * 4].split())[:TITLE_CHARACTERS].rstrip()
