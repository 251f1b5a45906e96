"""A prompt as items that know what they are: whose message each one is, and what it stands for.

Every change returns another prompt, so that nobody's place in it moves. Messages without their items come from two
sides only: out of the ledger, whose entries have no keys (`Prompt.pinned`, `stands_for`), and back from a compaction,
which hands on the very objects that it was given (`Prompt.places`). Only there is an item recognised by its message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from elbowroom.context.compaction import is_summary_message, smallest, with_whole_answer
from elbowroom.context.ledger import Chain, is_system, systems_of
from elbowroom.context.outputs import is_shortened, is_stub
from elbowroom.context.seam import CONTINUE, GO_ON_AT_THE_END, LONGEST_END, THINK_ON
from elbowroom.context.transcript import Message, Transcript, text_of
from elbowroom.context.unasked import note_in, with_note, without_note

Origin = Literal["client", "put back", "own", "piece", "kept", "summary", "recalled"]
"""Where a message comes from: the client; an earlier turn of which the client has only the words; this run; an answer
that was stopped, of which it is what stays; a compaction of this turn, word for word or as its summary; the ledger."""
UNTOUCHED: Final = ("client", "put back")


class Item(NamedTuple):
    """A message of a prompt. `key` is that of the client's message in the chain which it stands for, "" for others.

    All that was put back for an answer has its key, all that an entry of the ledger holds the key of that entry.
    `whole` is the message before it was shortened, None where it was not. `told` are the messages that a summary stands
    for, as far as they are known. `note` is what came back unasked with the message, at its end.
    """

    message: Message
    key: str = ""
    origin: Origin = "client"
    whole: Message | None = None
    is_pinned: bool = False
    note: str = ""
    told: tuple[Message, ...] = ()

    def saying(self, message: Message) -> "Item":
        """Return the item with another form of its message; itself where that is the same."""
        if message == self.message:
            return self
        return self._replace(message=message, whole=self.message if self.whole is None else self.whole)

    def noted(self, note: str) -> "Item":
        """Return the item with a note at the end of its message."""
        return self._replace(message=with_note(self.message, note), note=note)

    @property
    def is_as_sent(self) -> bool:
        """Tell whether no compaction has taken it in, and nothing of it was shortened."""
        return self.origin in UNTOUCHED and self.whole is None

    @property
    def stands_for(self) -> tuple[Message, ...]:
        """Return the messages that it stands for: its own, whole, or those that a summary tells of, as far as known."""
        if self.told or is_summary_message(self.message):
            return self.told
        return (self.message if self.whole is None else self.whole,)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The conversation before the model's next words. A compaction of it lasts for all later steps of the turn.

    `base` is what the turn has begun with, in place of the client's messages, and `appended` what the run has added to
    those, as it came. The text of a stopped answer stands at the end; a compaction may take in its beginning,
    `taken_in` characters of it, and leaves its end word for word; `order` tells the model to go on with it.
    `has_taken_in_own` says that a summary holds what no client has sent, `has_steps` that the run has added messages
    once. `changes` counts how often other messages have taken the place of what was here.
    """

    items: tuple[Item, ...] = ()
    base: tuple[Item, ...] = ()
    appended: tuple[Message, ...] = ()
    order: tuple[Message, ...] = ()
    taken_in: int = 0
    has_taken_in_own: bool = False
    has_steps: bool = False
    changes: int = 0

    @classmethod
    def of(cls, messages: Sequence[Message], chain: Chain | None = None) -> "Prompt":
        """Return the prompt of a client's messages, without keys where it is part of no conversation."""
        items = items_of(messages, chain)
        return cls(items, items)

    @property
    def messages(self) -> list[Message]:
        """Return the conversation, with what stays of a stopped answer at its end."""
        return [item.message for item in self.items]

    @property
    def of_client(self) -> tuple[Item, ...]:
        """Return what stands for the client's messages, without those that the run has added."""
        return tuple(item for item in self.items if item.origin not in ("own", "piece"))

    @property
    def transcript(self) -> Transcript:
        """Return the messages in their groups, of which those are pinned whose first message is.

        Groups of calls know their results as they were before they were shortened, summaries what they stand for.
        """
        transcript = Transcript.of(self.messages)
        if not any(item.is_pinned or item.note or item.whole or item.told for item in self.items):
            return transcript
        groups, at = [], 0
        for group in transcript.groups:
            items = self.items[at : at + len(group.messages)]
            has_shortened = any(item.told or (item.whole is not None and is_result(item.message)) for item in items)
            whole = tuple(message for item in items for message in item.stands_for) if has_shortened else ()
            groups.append(replace(group, is_pinned=items[0].is_pinned, note=items[0].note, unshortened=whole))
            at += len(group.messages)
        return Transcript(tuple(groups))

    @property
    def is_stopped(self) -> bool:
        """Tell whether an answer was stopped and has to go on."""
        return bool(self.order)

    def smallest(self) -> list[Message]:
        """Return the part of the conversation that no compaction can free."""
        return smallest(self.transcript)

    def beginning_with(self, base: tuple[Item, ...]) -> "Prompt":
        """Return the prompt that begins with these items, followed by what the run has added."""
        begun = Prompt(base, base, changes=self.changes + 1)
        return begun.extended(self.appended) if self.appended else begun

    def noted(self, notes: Mapping[str, str]) -> "Prompt":
        """Return the prompt with these notes at the end of the person's messages with these keys, each once."""

        def each(item: Item) -> Item:
            is_meant = item.key in notes and not item.note and item.message.get("role") == "user"
            return item.noted(notes[item.key]) if is_meant and item.origin in ("client", "kept") else item

        if not notes:
            return self
        return replace(self, items=tuple(map(each, self.items)), base=tuple(map(each, self.base)))

    def extended(self, appended: Sequence[Message]) -> "Prompt":
        """Return the prompt with the messages that the run has added to the client's until now.

        Where they are no longer those of the steps before, they follow what the turn has begun with.
        """
        known, new = len(self.appended), list(appended)
        if not (known or new or self.order):
            return self
        if tuple(new[:known]) == self.appended:
            items, taken = self._before_pieces, self.taken_in
            has_taken_in_own = self.has_taken_in_own
            new = [_without_beginning(message, taken) for message in new[known : known + 1]] + new[known + 1 :]
        else:
            items, has_taken_in_own = self.base, False
        return Prompt(
            items=(*items, *(Item(message, origin="own") for message in new)),
            base=self.base,
            appended=tuple(appended),
            has_taken_in_own=has_taken_in_own,
            has_steps=self.has_steps or bool(appended),
            changes=self.changes,
        )

    def stopped(self, said: str) -> "Prompt":
        """Return the prompt with a stopped answer at its end, to be continued."""
        piece = Item({"role": "assistant", "content": said[self.taken_in :]}, origin="piece")
        return replace(self, items=(*self._before_pieces, piece), order=_ordered(CONTINUE))

    def insisting(self) -> "Prompt":
        """Return the prompt that orders more firmly to go on with the answer, since the model has begun it anew."""
        end = "".join(str(item.message["content"]) for item in self.items if item.origin == "piece")[-LONGEST_END:]
        return replace(self, order=_ordered(GO_ON_AT_THE_END.format(end=end)))

    def thinking_on(self, thoughts: str) -> "Prompt":
        """Return the prompt after which the model thinks on, as it was stopped before its first word."""
        return replace(self, order=_ordered(THINK_ON.format(thoughts=thoughts)) if thoughts.strip() else ())

    def shortened(self, messages: Sequence[Message]) -> "Prompt":
        """Return the prompt with these forms of its messages, one for each."""
        items = tuple(item.saying(message) for item, message in zip(self.items, messages, strict=True))
        return replace(self, items=items, changes=self.changes + 1)

    def summarised(
        self, messages: Sequence[Message], tail: int, parts: Sequence[tuple[Message, Message]] = ()
    ) -> "Prompt":
        """Return the prompt with a compaction's messages, whose last `tail` stand as they stood before.

        `parts` are messages of which only a part stays, each with that part. The summary may speak of all that stands
        before the tail, so that it goes into the ledger with it.
        """
        first = len(messages) - tail
        places = self.places(messages, parts)
        gone = (item for place, item in enumerate(self.items) if place not in places and not is_system(item.message))
        told = tuple(message for item in gone for message in item.stands_for)
        items = tuple(
            Item(message, origin="summary", told=told)
            if place is None
            else self._kept(place, message, is_covered=at < first)
            for at, (message, place) in enumerate(zip(messages, places, strict=True))
        )
        taken = _length_of_pieces(self.items) - _length_of_pieces(items)
        return replace(
            self,
            items=items,
            taken_in=self.taken_in + taken,
            has_taken_in_own=self.has_taken_in_own or taken > 0 or _own(items) < _own(self.items),
            changes=self.changes + 1,
        )

    def _kept(self, place: int, message: Message, *, is_covered: bool) -> Item:
        item = self.items[place].saying(message)
        stays_so = not is_covered or item.origin in ("summary", "recalled", "piece")
        return item if stays_so else item._replace(origin="kept")

    def places(self, messages: Sequence[Message], parts: Sequence[tuple[Message, Message]] = ()) -> list[int | None]:
        """Return which item each message of a compaction is, None for what the compaction has written.

        A compaction keeps the objects that it was given, but for those of which only a part stays. Where the same one
        was given twice, the later stays longer.
        """
        known: dict[int, list[int]] = {}
        for place, item in enumerate(self.items):
            known.setdefault(id(item.message), []).append(place)
        wholes = {id(part): whole for whole, part in parts}
        places: list[int | None] = []
        for message in reversed(messages):
            left = known.get(id(wholes.get(id(message), message)))
            places.append(left.pop() if left else None)
        return places[::-1]

    def pinned(self, said: Mapping[str, Message]) -> "Prompt":
        """Return the prompt in which the messages with these keys are pinned, and what stands for them.

        `said` are the client's messages by their keys. Of an answer in several steps each step that says something is.
        """
        if not said and not any(item.is_pinned for item in self.items):
            return self
        return replace(self, items=tuple(item._replace(is_pinned=_is_pinned(item, said)) for item in self.items))

    def followed_by(self, reply: Message) -> "Prompt":
        """Return the whole conversation with this reply at its end, which no client has sent yet.

        A summary may hold the reply's beginning: then only its end is here. A reply that continues a message of the
        client is joined to it. The reply is not added where it is empty, or is here already with the results of its
        calls, since the next step has said nothing.
        """
        items = self._before_pieces
        whole = replace(self, items=items, order=(), taken_in=0, changes=0)
        has_calls = bool(reply.get("tool_calls"))
        if (has_calls and self._has_taken(reply)) or not (reply.get("content") or has_calls):
            return whole
        if self.taken_in:
            end = Item(reply, origin="own").saying(_without_beginning(reply, self.taken_in))
            return replace(whole, items=(*items, end))
        if items and self._is_continued(items[-1]):
            said = {**reply, "content": f"{items[-1].message['content']}{reply.get('content') or ''}"}
            return replace(whole, items=(*items[:-1], Item(said, origin="own")), has_taken_in_own=True)
        return replace(whole, items=(*items, Item(reply, origin="own")))

    @property
    def has_more_than_requests(self) -> bool:
        """Tell whether more than requests and summaries stands before the last message."""
        before = (item.message for item in self.items[:-1])
        return any(each.get("role") != "user" and not is_system(each) for each in before)

    def with_whole_answer(self) -> "Prompt | None":
        """Return the prompt with all of the answer that ends it, where only the end of that is here; else None."""
        last = self.items[-1] if self.items else None
        if last is None or last.whole is None or not _is_plain_answer(last.message):
            return None
        before = (
            item._replace(message=with_whole_answer(item.message)) if is_summary_message(item.message) else item
            for item in self.items[:-1]
        )
        return replace(self, items=(*before, last._replace(message=last.whole, whole=None)), changes=self.changes + 1)

    def without_known(self, text: str) -> str:
        """Return what of the text of a reply came after it was last stopped: what the prompt does not have."""
        return text[self.taken_in + _length_of_pieces(self.items) :]

    def expecting(self, message: Message) -> "Prompt":
        """Return the prompt with the message at its end that a person may send next."""
        return replace(self, items=(*self.items, Item(message, origin="own")))

    def sent(self, messages: Sequence[Message] | None = None) -> list[Message]:
        """Return messages of the prompt, by default all, as the model gets them: joined, followed by the order."""
        return [*self.joined(messages), *self.order]

    def joined(self, messages: Sequence[Message] | None = None) -> list[Message]:
        """Return messages of the prompt, by default all, with a stopped answer joined to the message that it continues.

        That is one of the client, if any.
        """
        said = self.messages if messages is None else list(messages)
        if len(said) < 2 or not self.items or self.items[-1].origin != "piece":
            return said
        last, place = len(self.items) - 1, self.places(said)[-2:]
        if place != [last - 1, last] or not self._is_continued(self.items[-2]):
            return said
        *whole, before, after = said
        return [*whole, {**before, "content": before["content"] + after["content"]}]

    def _is_continued(self, item: Item) -> bool:
        """Tell whether an item before the answer is the client's last message, which the answer is to continue."""
        if self.appended or self.taken_in or not self.base or item.origin not in ("client", "kept"):
            return False
        return (item.whole or item.message) == self.base[-1].message and _is_plain_answer(item.message)

    def _has_taken(self, reply: Message) -> bool:
        """Tell whether the run has gone on after this reply."""
        calls = {call["id"] for call in reply.get("tool_calls") or ()}
        known = {call.get("id") for message in self.appended for call in message.get("tool_calls") or ()}
        return not calls.isdisjoint(known)

    @property
    def _before_pieces(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.origin != "piece")

    def entry(self) -> tuple[str, list[Message]]:
        """Return the key of the beginning that an entry of the ledger stands for, and the messages of that entry.

        It covers as little as possible: messages that are as the client has sent them at the end stay the client's, who
        may edit them or ask again, and the entry is found all the same. A summary may speak of what a compaction has
        kept before these: that is covered. Where a system message stands so that no entry can bring it back to its
        place, the entry covers all, and `recalled` puts that message first.
        """
        base, now = self.base, self.of_client
        staying = 0
        while staying < min(len(base), len(now)) and now[-1 - staying].is_as_sent:
            staying += 1
        for left in range(staying, -1, -1):
            end, head = len(base) - left, len(now) - left
            after = base[end] if left else None
            splits_group = after is not None and after.message.get("role") == "tool"
            if splits_group or not end or not (key := base[end - 1].key) or (after is not None and after.key == key):
                continue
            before = [item.message for item in now[:head]]
            spoken = [message for message in before if not is_system(message)]
            if _among_systems(base[:end], spoken) == before:
                return key, spoken
        last = next((item.key for item in reversed(base) if item.key), "")
        return last, [item.message for item in now if not is_system(item.message)]


def items_of(messages: Sequence[Message], chain: Chain | None = None) -> tuple[Item, ...]:
    """Return the items of a client's messages; system messages have no key."""
    if chain is None:
        return tuple(map(Item, messages))
    keys = iter(chain.keys)
    return tuple(Item(message, "" if is_system(message) else next(keys)) for message in messages)


def recalled(items: Sequence[Item], key: str, messages: Sequence[Message]) -> tuple[Item, ...]:
    """Return a conversation with an entry of the ledger in place of all up to the message with this key.

    The entry's `messages` stand among the system messages or behind them, and the rest follows as it is. Results that
    the entry has shortened are known whole by the ids of their calls, and a summary knows what it stands for.
    """
    end = max(at for at, item in enumerate(items, 1) if item.key == key)
    said = _among_systems(items[:end], messages)
    gone = (item for item in items[:end] if not is_system(item.message) and item.message not in messages)
    told = tuple(message for item in gone for message in item.stands_for)
    whole = {str(each.get("tool_call_id")): each for each in (item.message for item in items[:end]) if is_result(each)}
    return (
        *(
            Item(
                message,
                key,
                "recalled",
                whole.get(str(message.get("tool_call_id")))
                if is_result(message) and is_stub(text_of(message))
                else None,
                note=note_in(message),
                told=told if is_summary_message(message) else (),
            )
            for message in said
        ),
        *items[end:],
    )


def _among_systems(items: Sequence[Item], messages: Sequence[Message]) -> list[Message]:
    """Return the messages that stand for a beginning of a conversation with its system messages.

    These keep their places where each message is one of the client's, whole or shortened, so that an engine need not
    read on from there anew. A compaction has put them first, each once.
    """
    spoken = [item.message for item in items if not is_system(item.message)]
    if len(messages) == len(spoken) and all(map(_is_in_place, messages, spoken)):
        staying = iter(messages)
        return [item.message if is_system(item.message) else next(staying) for item in items]
    return [*systems_of(item.message for item in items), *messages]


def _is_in_place(message: Message, said: Message) -> bool:
    is_same_result = is_result(message) and message.get("tool_call_id") == said.get("tool_call_id")
    return is_same_result or stands_for(message, said)


def is_result(message: Message) -> bool:
    """Tell whether a message is the result of a call."""
    return message.get("role") == "tool"


def stands_for(message: Message, said: Message) -> bool:
    """Tell whether a message out of the ledger is one of the client's: whole, shortened, noted, or of an answer."""
    if message == said or is_shortened(message, said) or without_note(message) == said:
        return True
    words = text_of(message).strip()
    return message.get("role") == said.get("role") == "assistant" and bool(words) and words in text_of(said)


def _length_of_pieces(items: Sequence[Item]) -> int:
    return sum(len(item.message["content"]) for item in items if item.origin == "piece")


def _own(items: Sequence[Item]) -> int:
    return sum(item.origin == "own" for item in items)


def _is_pinned(item: Item, said: Mapping[str, Message]) -> bool:
    if item.origin == "recalled":
        return any(stands_for(item.message, pin) for pin in said.values())
    speaks = item.message.get("role") == "assistant" and bool(text_of(item.message).strip())
    return item.key in said and (item.origin != "put back" or speaks)


def _ordered(text: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": text},)


def _without_beginning(message: Message, length: int) -> Message:
    content = message.get("content")
    if not length or message.get("role") != "assistant" or not isinstance(content, str):
        return message
    return {**message, "content": content[length:]}


def _is_plain_answer(message: Message) -> bool:
    return (
        message.get("role") == "assistant" and isinstance(message.get("content"), str) and not message.get("tool_calls")
    )
