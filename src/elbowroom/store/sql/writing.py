"""Turns changes of conversations into SQL statements; a long reply grows in parts, so that little is rewritten."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any, Final, TypeGuard

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
    check,
    is_sound_id,
    left_out,
)
from elbowroom.store.message_parts import REPLY_FIELDS, Part, body, split
from elbowroom.store.sql import statements as sql
from elbowroom.store.sql.schema import LARGEST_PART
from elbowroom.store.sql.statements import values

TITLE_CHARACTERS: Final = 80
DETAILS: Final = tuple(field.name for field in fields(kinds.CompactionDetails))


@dataclass(frozen=True, slots=True)
class Tail:
    """The last part of a reply that grows: its position, -1 for none, and the length of its content."""

    turn: str
    position: int = -1
    kind: str = ""
    length: int = 0


class Plan:
    """The statements for a batch of changes, equal ones together; `tails` are of all replies that grow in it.

    `server` writes them, where several share the database.
    """

    def __init__(self, tails: Mapping[str, Tail], server: str = "") -> None:
        self._server = server
        self.groups: list[tuple[Any, list[dict[str, Any]]]] = []
        self._tails = dict(tails)
        self._forgotten: set[str] = set()
        self._used: dict[str, float] = {}
        self._used_by_turn: dict[str, float] = {}

    def add(self, changes: Sequence[KeptChange]) -> "Plan":
        """Plan these changes, and return the plan; such as cannot be kept are left out, with a warning in the log."""
        for change in changes:
            try:
                check(change)
                PLANNED[type(change)](self, change)
            except UNSOUND as error:
                left_out(change, error)
        for conversation, at in self._used.items():
            self._write(sql.USED, values(conversation=conversation, at=at))
        for turn, at in self._used_by_turn.items():
            self._write(sql.USED_BY_TURN, values(turn=turn, at=at))
        return self

    def tails_after(self) -> dict[str, Tail]:
        """Return the tails that are known after it, without those of replies that have ended."""
        return {message: tail for message, tail in self._tails.items() if message not in self._forgotten}

    def begin(self, change: kinds.ConversationBegun) -> None:
        """Write a conversation."""
        name = encoded(change.name) if change.name else ""
        given = values(
            id=change.conversation,
            owner=owner_key(change.owner),
            name=name,
            agent=encoded(change.agent),
            created=change.at,
            updated=change.at,
        )
        self._write(sql.BEGIN_CONVERSATION, given)
        if change.metadata:
            self.describe(Described(change.conversation, change.metadata))
        self._use(self._used, change.conversation, change.at)

    def hear(self, change: kinds.Heard) -> None:
        """Write a message of a client, which each conversation has once by its id."""
        message_id = f"{change.conversation}-{change.key}"
        fields, parts = split(change.message)
        heard, written, titled = self._heard()
        heard.append(
            values(
                id=message_id,
                conversation=change.conversation,
                key=change.key,
                parent=change.parent,
                fields=fields,
                at=change.at,
            )
        )
        written += (_part_values(message_id, position, part, "complete") for position, part in enumerate(parts))
        has_title = titled and titled[-1]["new_conversation"] == change.conversation
        if not has_title and (title := title_of(change.message)):
            titled.append(values(conversation=change.conversation, title=encoded(title)))
        self._use(self._used, change.conversation, change.at)

    def begin_turn(self, change: kinds.TurnBegun) -> None:
        """Write a turn."""
        given = values(
            id=change.turn,
            conversation=change.conversation,
            parent=change.parent,
            agent=encoded(change.agent),
            began=change.at,
            server=self._server,
        )
        self._write(sql.BEGIN_TURN, given)
        self._write(sql.ANSWERED_BY, values(conversation=change.conversation, agent=encoded(change.agent)))
        self._use(self._used, change.conversation, change.at)

    def begin_reply(self, change: kinds.ReplyBegun) -> None:
        """Write a reply without any part, unless it is there."""
        given = values(id=change.message, turn=change.turn, fields=REPLY_FIELDS, status="streaming", at=change.at)
        self._write(sql.ADD, given)
        self._write(sql.HAS_MORE, values(turn=change.turn, id=change.message))
        if change.message in self._tails:
            self._forgotten.add(change.message)
        else:
            self._tails[change.message] = Tail(change.turn)
        self._use(self._used_by_turn, change.turn, change.at)

    def grow(self, change: kinds.ReplyGrew) -> None:
        """Let the last part of a reply grow, or begin a new one."""
        content, tail = body(change.text), self._tails.get(change.message)
        if tail and tail.kind == change.kind and tail.length + len(content) <= LARGEST_PART:
            given = values(message=change.message, position=tail.position, content=content)
            self._write(sql.GROW_PART, given)
            self._tails[change.message] = replace(tail, length=tail.length + len(content))
        elif tail:
            self._add_to_reply(change.message, tail, Part(change.kind, content))

    def call(self, change: kinds.ReplyCalled) -> None:
        """Write a call as a part."""
        if tail := self._tails.get(change.message):
            self._add_to_reply(change.message, tail, Part("tool_call", encoded(change.call)))

    def end_reply(self, change: kinds.ReplyEnded) -> None:
        """Write how a reply has ended, and what the engine had to read again for it."""
        if change.lost is not None and (tail := self._tails.get(change.message)):
            self._add_to_reply(change.message, tail, Part("lost", encoded(change.lost)))
        self._write(sql.END_REPLY, values(message=change.message, status=change.status))
        self._write(sql.END_PARTS, values(message=change.message, status=change.status))
        self._forgotten.add(change.message)

    def add_message(self, change: kinds.Added) -> None:
        """Write a whole message of a turn; one of the queue only where no other server has taken it meanwhile."""
        given = values(turn=change.turn, status="complete")
        if change.queued:
            self._write(sql.TAKE_BACK, values(id=change.queued, server=self._server))
            given |= values(queued=change.queued, server=self._server)
        statement = sql.ADD_QUEUED if change.queued else sql.ADD
        self._write_message(statement, change.message, change.content, change.at, given)
        self._write(sql.HAS_MORE, values(turn=change.turn, id=change.message))
        self._use(self._used_by_turn, change.turn, change.at)

    def use(self, change: kinds.StepUsed) -> None:
        """Write what a step has used, and add it up."""
        used, fill = change.usage, change.fill
        counted = dict(
            zip(sql.COUNTERS, (used.input, used.output, used.cache_creation, used.cache_read), strict=True),
            turn=change.turn,
            is_counted=used.is_counted,
        )
        self._write(sql.USE, values(**counted, model=encoded(change.model), at=change.at))
        self._write(sql.ADD_USE, values(**counted, total_tokens=used.total))
        if fill:
            self._write(sql.FILL_WINDOW_OF_TURN, values(turn=change.turn, **_filled(fill)))
        self._use(self._used_by_turn, change.turn, change.at)

    def fill(self, change: kinds.Filled) -> None:
        """Write how full the window of a conversation is; that is no use of it, and leaves its place in the list."""
        self._write(sql.FILL_WINDOW, values(conversation=change.conversation, **_filled(change.fill)))

    def title(self, change: kinds.Titled) -> None:
        """Write the title that a conversation has unless a person gives it one."""
        self._write(sql.RETITLE, values(conversation=change.conversation, title=encoded(change.title)))

    def compact(self, change: kinds.CompactionNoted) -> None:
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
            self._write(sql.REUSE, given)
        else:
            self._write(sql.COMPACT, given)
            self._write(sql.COUNT_COMPACTION, values(conversation=change.conversation))
        self._use(self._used, change.conversation, change.at)

    def end_turn(self, change: kinds.TurnEnded) -> None:
        """Write how a turn has ended, which ends a reply that is still being said, too."""
        ended = values(turn=change.turn, status=change.status)
        self._write(sql.END_PARTS_OF_TURN, ended)
        self._write(sql.END_REPLIES_OF_TURN, ended)
        self._write(sql.END_TURN, values(turn=change.turn, status=change.status, key=change.key, at=change.at))
        self._forgotten.update(message for message, tail in self._tails.items() if tail.turn == change.turn)
        self._use(self._used_by_turn, change.turn, change.at)

    def put_in_queue(self, change: kinds.Queued) -> None:
        """Write a message that waits, with no server, and that it was put in the queue."""
        item = change.item
        given = values(
            id=item.id,
            conversation=item.conversation,
            message=encoded(item.message),
            mode=item.mode,
            at=item.at,
            turn=item.turn,
            server="",
        )
        self._write(sql.PUT_IN_QUEUE, given)
        receipt = values(id=item.id, conversation=item.conversation, fingerprint=item.fingerprint)
        self._write(sql.NOTE_RECEIPT, receipt)
        self._use(self._used, item.conversation, item.at)

    def take(self, change: kinds.QueueTaken) -> None:
        """Write which turn has taken these."""
        for item in change.ids:
            self._write(sql.TAKE, values(id=item, turn=change.turn, server=self._server))

    def release(self, change: Released) -> None:
        """Write that these are with no server."""
        for item in change.ids:
            self._write(sql.RELEASE, values(id=item, server=self._server))

    def drop(self, change: kinds.QueueDropped) -> None:
        """Delete these from the queue."""
        for item in change.ids:
            self._write(sql.DROP, values(id=item, server=self._server))

    def delete(self, change: Deleted) -> None:
        """Delete a conversation with all that belongs to it."""
        for statement in sql.DELETING:
            self._write(statement, values(conversation=change.conversation))
        self._tails.clear()

    def delete_turn(self, change: TurnDeleted) -> None:
        """Delete a turn with all that was said in it."""
        for statement in sql.DELETING_TURN:
            self._write(statement, values(turn=change.turn))
        self._tails.clear()

    def unhear(self, change: Unheard) -> None:
        """Delete a message of a client."""
        given = values(**asdict(change))
        for statement in sql.UNHEARING:
            self._write(statement, given)

    def describe(self, change: Described) -> None:
        """Write what a client keeps beside a conversation."""
        self._write(sql.DESCRIBE, values(conversation=change.conversation, metadata=encoded(dict(change.metadata))))

    def rename(self, change: Renamed) -> None:
        """Write the title that a person gave a conversation, or that it has none."""
        renamed = encoded(change.title) if change.title else None
        self._write(sql.RENAME, values(conversation=change.conversation, renamed=renamed))

    def edit_summary(self, change: SummaryEdited) -> None:
        """Write a summary as a person has changed it."""
        given = values(conversation=change.conversation, at=change.at, edited=encoded(change.text))
        self._write(sql.EDIT_SUMMARY, given)

    def undo(self, change: CompactionUndone) -> None:
        """Write that a compaction is taken back."""
        self._write(sql.UNDO, values(**asdict(change)))

    def pin(self, change: Pinned) -> None:
        """Write whether a message is pinned."""
        self._write(sql.PIN, values(**asdict(change)))

    def _write(self, statement: Any, given: dict[str, Any]) -> None:
        if self.groups and self.groups[-1][0] is statement:
            self.groups[-1][1].append(given)
        else:
            self.groups.append((statement, [given]))

    def _heard(self) -> tuple[list[dict[str, Any]], ...]:
        """Return the rows of the messages heard last, their parts and titles: each statement is for all of them."""
        if not self.groups or self.groups[-1][0] is not sql.TITLE:
            self.groups += [(sql.HEAR, []), (sql.ADD_PART, []), (sql.TITLE, [])]
        return tuple(rows for _, rows in self.groups[-3:])

    def _write_message(
        self, statement: Any, message_id: str, message: Message, at: float, given: dict[str, Any]
    ) -> None:
        fields, parts = split(message)
        self._write(statement, given | values(id=message_id, fields=fields, at=at))
        for position, part in enumerate(parts):
            self._write(sql.ADD_PART, _part_values(message_id, position, part, "complete"))

    def _add_to_reply(self, message: str, tail: Tail, part: Part) -> None:
        position = tail.position + 1
        self._write(sql.ADD_PART, _part_values(message, position, part, "streaming"))
        self._tails[message] = Tail(tail.turn, position, part.kind, len(part.content))

    @staticmethod
    def _use(used: dict[str, float], key: str, at: float) -> None:
        used[key] = max(at, used.get(key, at))


PLANNED: Final[dict[type[Any], Callable[[Plan, Any], None]]] = {
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


def _filled(fill: kinds.ContextFill) -> dict[str, int]:
    return dict(zip(sql.FILL, astuple(fill), strict=True))


def growing(changes: Sequence[KeptChange]) -> list[str]:
    """Return the replies that get parts in a batch: their last parts have to be known."""
    grown = (change.message for change in changes if _adds_part(change))
    return [message for message in dict.fromkeys(grown) if is_sound_id(message)]


def with_sure_tails(changes: Sequence[KeptChange], known: Iterable[str]) -> Iterator[Sequence[KeptChange]]:
    """Yield changes in order, cut where only the database can tell what the tails are after a change.

    That is after a deletion, and after the beginning of a reply that was known or has grown before.
    """
    start, seen = 0, set(known)
    for place, change in enumerate(changes, 1):
        is_cut = isinstance(change, Deleted | TurnDeleted)
        if isinstance(change, kinds.ReplyBegun) or _adds_part(change):
            is_cut = isinstance(change, kinds.ReplyBegun) and change.message in seen
            seen.add(change.message)
        if is_cut or place == len(changes):
            yield changes[start:place]
            start = place


def _adds_part(change: KeptChange) -> TypeGuard[kinds.ReplyGrew | kinds.ReplyCalled | kinds.ReplyEnded]:
    if isinstance(change, kinds.ReplyEnded):
        return change.lost is not None
    return isinstance(change, kinds.ReplyGrew | kinds.ReplyCalled)


def _part_values(message: str, position: int, part: Part, status: str) -> dict[str, Any]:
    return values(message=message, position=position, kind=part.kind, status=status, content=part.content)


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
