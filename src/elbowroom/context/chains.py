"""Remembers by digests what came and went last: the chains of histories, and the prompts that models were sent.

Of the next turn's history only the new messages are hashed, and its prompt shows what an engine cannot reuse.
"""

import marshal
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.caches import Recent
from elbowroom.context.ledger import Chain, is_system, seed_of
from elbowroom.context.transcript import Message, calls_of

MOST_BYTES: Final = 4 * 2**20
MESSAGE_BYTES: Final = 500
"""What a message takes beside its text: its object, its key in the chain, its places in lists."""
LETTER_BYTES: Final = 2
"""A letter takes one byte in most languages of Europe, and two in nearly all others."""
BACK: Final = 32
"""How many new messages a history may have at its end and still be recognised."""
BY_VALUE: Final = 2
"""The version of marshal that writes equal values alike, and the numbers 1, 1.0 and True as three values."""

Mark = tuple[str, int, int]
"""The seed of a history's chain, its length, and the hash of its last message's text."""


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A history and its chain, of about `size` bytes.

    `nested` are those of the messages that hold more than texts, written as bytes, by their places.
    """

    messages: list[Message]
    chain: Chain
    nested: tuple[tuple[int, bytes], ...] = ()
    size: int = 0

    def begins(self, messages: Sequence[Message], length: int) -> bool:
        """Tell whether the first `length` messages are the same here and there, to the type of every number."""
        if list(messages[:length]) != self.messages[:length]:
            return False
        return all(place >= length or _written(messages[place]) == written for place, written in self.nested)

    def cut_to(self, length: int) -> "Known | None":
        """Return the history with so many of its messages, all or all but the last; None where that has calls."""
        if length == len(self.messages):
            return self
        if (chain := self.chain.without_last(self.messages)) is None:
            return None
        nested = tuple((place, written) for place, written in self.nested if place < length)
        return Known(
            self.messages[:length], chain, nested, self.size - _size(self.messages[length:], self.nested[len(nested) :])
        )

    def grown_to(self, messages: Sequence[Message]) -> "Known":
        """Return a longer history that begins with this one. Raises ValueError where it holds what is no JSON."""
        known = len(self.messages)
        new = [
            (place, _written(messages[place])) for place in range(known, len(messages)) if _is_nested(messages[place])
        ]
        chain = self.chain.extended(known, messages)
        return Known(list(messages), chain, (*self.nested, *new), self.size + _size(messages[known:], new))


class Chains:
    """The chains of the histories used last, `most_bytes` of them with their messages; any thread may ask."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: OrderedDict[Mark, Known] = OrderedDict()
        self._by_mark: dict[Mark, Mark] = {}
        self._lock = threading.Lock()
        self.size = 0
        """About how many bytes all of them take."""

    def __len__(self) -> int:
        return len(self._known)

    def of(self, owner: str, agent: str, messages: Sequence[Message]) -> Chain:
        """Return what `Chain.of` returns."""
        seed = seed_of(owner, agent)
        with self._lock:
            begun = self._taken_out(seed, messages) or Known([], Chain.of(owner, agent, ()))
        try:
            known = begun.grown_to(messages)
        except ValueError:
            return Chain.of(owner, agent, messages)
        with self._lock:
            self._put_in(seed, known)
        return known.chain

    def _taken_out(self, seed: str, messages: Sequence[Message]) -> Known | None:
        """Return the history with which these messages begin, all but the last few of them; it is known no longer."""
        for length in range(len(messages), max(0, len(messages) - BACK), -1):
            mark = self._by_mark.get(_mark(seed, messages, length))
            if mark is None or not self._known[mark].begins(messages, length):
                continue
            if (known := self._known[mark].cut_to(length)) is not None:
                self._forget(mark)
                return known
        return None

    def _put_in(self, seed: str, known: Known) -> None:
        if not known.messages or known.size > self._most_bytes:
            return
        own = _mark(seed, known.messages, len(known.messages))
        self._forget(own)
        self._known[own] = known
        self._by_mark |= dict.fromkeys(_marks(seed, known.messages), own)
        self.size += known.size
        while self.size > self._most_bytes:
            self._forget(next(iter(self._known)))

    def _forget(self, mark: Mark) -> None:
        if (known := self._known.pop(mark, None)) is None:
            return
        self.size -= known.size
        for other in _marks(mark[0], known.messages):
            if self._by_mark.get(other) == mark:
                del self._by_mark[other]


def _marks(seed: str, messages: Sequence[Message]) -> list[Mark]:
    """Return the marks by which a history is found, also where its last message comes changed or not at all."""
    return [_mark(seed, messages, length) for length in (len(messages), len(messages) - 1) if length]


def _mark(seed: str, messages: Sequence[Message], length: int) -> Mark:
    content = messages[length - 1].get("content")
    return seed, length, hash(content) if isinstance(content, str) else 0


def _is_nested(message: Message) -> bool:
    return not all(value is None or type(value) is str for value in message.values())


def _written(message: Message) -> bytes:
    """Return the bytes of a message. Raises ValueError where it holds what is no JSON."""
    return marshal.dumps(dict(message), BY_VALUE)


def _size(messages: Sequence[Message], nested: Sequence[tuple[int, bytes]]) -> int:
    """Return about how many bytes messages take that end a history, with the `nested` among them."""
    letters = sum(len(content) for message in messages if isinstance(content := message.get("content"), str))
    return MESSAGE_BYTES * len(messages) + LETTER_BYTES * letters + sum(2 * len(written) for _, written in nested)


PROMPTS_KEPT: Final = 512
LEAST_LOST: Final = 32
"""Tokens. What is less comes from the ends of prompts, which templates write in another way once more follows."""


@dataclass(frozen=True, slots=True)
class Talk:
    """The keys by which a conversation's prompts are kept, and those by which the last one is sought, surest first."""

    kept: Sequence[Hashable]
    sought: Sequence[Hashable]


@dataclass(frozen=True, slots=True, eq=False)
class SentPrompt:
    """A prompt as digests, and what the engine has in its cache after it.

    `model` is named after its provider, and `window` is that of the loaded instance. `messages` has one digest for
    each message; the first is the system message where it `has_system`. `compacted` changes where messages are ours and
    no longer the client's. `number` counts the prompts of the model, `loads` how often it was loaded anew, and `tokens`
    is the size of this one.
    """

    model: str
    window: int | None
    tools: int
    arguments: int
    messages: "array[int]"
    has_system: bool
    compacted: Hashable
    number: int = 0
    loads: int = 0
    tokens: int = 0

    @classmethod
    def of(
        cls,
        model: str,
        window: int | None,
        body: Mapping[str, Any],
        arguments: Mapping[str, Any],
        compacted: Hashable = None,
        tokens: int = 0,
    ) -> "SentPrompt":
        """Return the digests of a request's body, whose template gets these arguments."""
        messages = body["messages"]
        return cls(
            model,
            window,
            _digest_of([*(body.get("tools") or ())]),
            _digest_of(sorted(arguments.items())),
            array("q", map(_digest, messages)),
            bool(messages) and is_system(messages[0]),
            compacted,
            tokens=tokens,
        )

    def shared_with(self, before: "SentPrompt") -> int:
        """Return with how many messages both prompts begin alike."""
        most = min(len(self.messages), len(before.messages))
        if self.messages[:most] == before.messages[:most]:
            return most
        return next(at for at in range(most) if self.messages[at] != before.messages[at])

    def continues(self, before: "SentPrompt") -> bool:
        """Tell whether the engine can go on where it was after the other prompt."""
        return self.begins_as(before) and self.shared_with(before) == len(before.messages)

    def begins_as(self, before: "SentPrompt") -> bool:
        """Tell whether model and tools are the same, which stand before all messages.

        Most arguments change only the end of a prompt.
        """
        return self.is_in_load_of(before) and (self.model, self.tools) == (before.model, before.tools)

    def is_in_load_of(self, before: "SentPrompt") -> bool:
        """Tell whether the model was not loaded anew since, which is known only for the same model."""
        return (self.window, self.loads) == (before.window, before.loads)


class SentPrompts:
    """The last prompts of the conversations used last, and of each model; for one event loop."""

    def __init__(self) -> None:
        self._of_talks = Recent[Hashable, SentPrompt]("sent_prompts", PROMPTS_KEPT)
        self._last: dict[str, SentPrompt] = {}
        self._numbers: Counter[str] = Counter()
        self._loads: Counter[str] = Counter()

    def keep(self, talk: Talk, prompt: SentPrompt) -> "Kept":
        """Remember a prompt that the engine has read; return it with its number, and what was read before."""
        self.passed(prompt.model)
        now = replace(prompt, number=self._numbers[prompt.model], loads=self._loads[prompt.model])
        before = next((found for key in talk.sought if (found := self._of_talks.get(key)) is not None), None)
        last = self._last.get(now.model)
        self._last[now.model] = now
        for key in talk.kept:
            self._of_talks.put(key, now)
        return Kept(now, before, last if last is not None and last.number == now.number - 1 else None)

    def passed(self, model: str) -> None:
        """Note that the model has read a prompt of another kind."""
        self._numbers[model] += 1

    def loaded_anew(self, model: str) -> None:
        """Note that the model was loaded, and has nothing in its cache."""
        self._loads[model] += 1


@dataclass(frozen=True, slots=True)
class Kept:
    """A prompt with the one before it in its conversation, and the one before it in its model, where they are known."""

    now: SentPrompt
    before: SentPrompt | None
    last: SentPrompt | None

    @property
    def others(self) -> int:
        """Return how many other prompts the model has read since the one before."""
        is_same = self.before is not None and self.before.model == self.now.model
        return self.now.number - self.before.number - 1 if self.before is not None and is_same else 0

    def may_lack(self, cached: int | None, slots: int) -> bool:
        """Tell whether the engine may have had to read again something of the prompt before.

        `cached` are the tokens that it says it had not to read, None where it does not say; in `slots` it keeps the
        prompts of as many conversations.
        """
        if self.before is None:
            return False
        if cached is not None:
            return min(self.before.tokens, self.now.tokens) - cached >= LEAST_LOST
        return self.others >= slots or not self.now.continues(self.before)


def talk_of(owner: str, name: str, conversation: str, messages: Sequence[Message]) -> Talk:
    """Return the keys of a conversation: what it began with, and its id, which several histories may share.

    Where the client gives it a `name`, that is sure of the beginning; else the id is surer. Many chats begin with the
    same words, so a new one is sought by its id alone.
    """
    opening = next((_digest(message) for message in messages if message.get("role") == "user"), 0)
    by_opening: list[Hashable] = [(owner, name, opening)]
    by_id: list[Hashable] = [(owner, conversation)] if conversation else []
    if not any(message.get("role") == "assistant" for message in messages):
        return Talk(by_opening + by_id, by_id)
    return Talk(by_opening + by_id, by_opening + by_id if name else by_id + by_opening)


def _digest(message: Message) -> int:
    """Return a digest of what a template shows of a message, whatever the order of its fields; thoughts come and go."""
    content, calls = message.get("content") or "", calls_of(message)
    said = content if isinstance(content, str) else _digest_of(content)
    made = _digest_of([call.get("function") for call in calls]) if calls else 0
    return hash((message.get("role"), said, message.get("tool_call_id"), made))


def _digest_of(value: Any) -> int:
    """Return a digest of a JSON value; 0 for one that is nested too deeply."""
    try:
        return hash(marshal.dumps(value, BY_VALUE))
    except ValueError:
        return 0
