"""The ledger: earlier compactions, found again by a hash chain over the client's own messages."""

import hashlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from typing import Final, NamedTuple, Protocol

from elbowroom.caches import HISTORIES
from elbowroom.context.canonical import VERSION, OpenCalls, form_of, json_form
from elbowroom.context.transcript import SYSTEM_ROLES, Message, calls_of, is_text, parts_of, text_in
from elbowroom.tokens.anchoring import digest_of

KEY_BYTES = 16
RAW: Final = "/"
"""What the names of raw models have, behind their provider, and no agent's id."""
SHORTENED: Final = "shortened results"
"""The rung of an entry whose messages are the client's, one for one, some of them shortened."""
PRUNED: Final = "pruned"  # the rung of an entry in which only results of tools are shorter
UNCHANGED: Final = "unchanged"  # the rung of an entry that a client wanted though nothing could be made shorter
NOTED: Final = "noted"
"""The rung of an entry that has what came back unasked with one message, and of one that has what must not."""
UNDONE: Final = "undone"
"""The rung of an entry without messages, whose compaction a person has taken back."""
REUSED: Final = "reused"
"""The rung of a compaction that another conversation with the same beginning has made."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The keys of a conversation: `keys[i]` stands for the first i + 1 messages that are not system messages.

    `ends[i]` is the index in the client's list right after that message: `keys[i]` covers `messages[:ends[i]]`. `seed`
    is the key before the first message; it depends on the owner, and on the agent where one answers, so that no two of
    them share a key. All raw models share theirs: any of them goes on where another one has answered.
    """

    keys: tuple[str, ...]
    ends: tuple[int, ...]
    seed: str
    _open_calls: OpenCalls = field(repr=False, compare=False)

    @classmethod
    def of(cls, owner: str, agent: str, messages: Sequence[Message], *, of_one_model: bool = False) -> "Chain":
        """Return the chain of a history, from which our own notices have been removed already.

        `agent` is an agent's id, the name of a raw model, or empty until somebody has answered. With `of_one_model` a
        raw model has a seed of its own, as in conversations that were begun before all of them shared one.
        """
        seed, open_calls, history = (
            seed_of(owner, agent, of_one_model=of_one_model),
            OpenCalls(),
            HISTORIES.of(messages),
        )
        keys: list[str] = history.known((cls, seed))  # empty where a message is the system's
        spoken = 0
        for message, known in zip(history.messages, keys, strict=False):
            if known:
                _follow(open_calls, spoken, message)
                spoken += 1
        key = bytes.fromhex(next(filter(None, reversed(keys)), seed))
        for message in history.messages[len(keys) :]:
            if is_system(message):
                keys.append("")
                continue
            key = _next(key, message, open_calls)
            _follow(open_calls, spoken, message)
            spoken += 1
            keys.append(key.hex())
        history.keep((cls, seed), keys)
        return cls(tuple(filter(None, keys)), tuple(compress(count(1), keys)), seed, open_calls)

    @classmethod
    def new_in(cls, owner: str, agent: str, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages at the end of a history for which no key has been made yet."""
        history = HISTORIES.of(messages)
        return history.messages[len(history.known((cls, seed_of(owner, agent)))) :]

    def followed_by(self, message: Message) -> str:
        """Return the key that the chain would end with if this message came next."""
        last = self.keys[-1] if self.keys else self.seed
        return _next(bytes.fromhex(last), message, self._open_calls).hex()

    def continued_by(self, messages: Sequence[Message], message: Message) -> str:
        """Return the key that the chain would end with if this message continued the last one, an answer.

        Clients that let an answer be continued append the new text to the old and send both as one message. Where the
        last message is no answer, or one with calls, the new one follows it.
        """
        last = messages[self.ends[-1] - 1] if self.ends else {}
        if last.get("role") != "assistant" or calls_of(last):
            return self.followed_by(message)
        before = self.keys[-2] if len(self.keys) > 1 else self.seed
        return _next(bytes.fromhex(before), _continued(last, message), self._open_calls).hex()


@dataclass(frozen=True, slots=True)
class Written:
    """How messages that are kept were made: for which window, the prompt's size before and after, and by which rung."""

    window: int
    before: int
    after: int
    rung: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One compaction: `messages` stand in place of all messages that `key` covers, but for system messages.

    `window`, `before` and `after` are tokens: the window it was made for, and the whole prompt. `rung` is how it was
    made, `created` when, in Unix seconds. No system message is in `messages`: those may change from turn to turn.
    """

    key: str
    messages: tuple[Message, ...]
    window: int
    before: int
    after: int
    rung: str
    created: float

    @property
    def written(self) -> Written:
        """Return how its messages were made."""
        return Written(self.window, self.before, self.after, self.rung)


class Archived(NamedTuple):
    """A message as the client sent it, as a node in the tree of all messages.

    `parent` is the key before it, the chain's seed for the first. A system message hangs beside the chain, on the
    message that it follows; several in a row hang one on another.
    """

    key: str
    parent: str
    message: Message


class LedgerRows(Protocol):
    """Where entries are kept."""

    async def keys(self) -> Collection[str]:
        """Return the keys of all entries."""

    def keys_now(self) -> Collection[str] | None:
        """Return the keys of all entries without waiting; None while the store is being opened."""

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, in any order."""

    async def save(self, entry: Entry, made_from: Sequence[Message]) -> None:
        """Keep an entry; the outputs of tools that these messages refer to are kept as long as it is."""


def seed_of(owner: str, agent: str, *, of_one_model: bool = False) -> str:
    """Return the key before the first message of a chain."""
    named = RAW if RAW in agent and not of_one_model else agent
    return hashlib.blake2b(json_form([VERSION, owner, named]).encode(), digest_size=KEY_BYTES).hexdigest()


def archive_of(chain: Chain, messages: Sequence[Message]) -> list[Archived]:
    """Return every message of a history as a node of the tree, system messages too."""
    history = HISTORIES.of(messages)
    nodes: list[Archived] = history.known((archive_of, chain.seed))
    spoken = bisect_right(chain.ends, len(nodes))
    key = chain.keys[spoken - 1] if spoken else chain.seed
    for message in history.messages[len(nodes) :]:
        if is_system(message):
            nodes.append(_beside(nodes[-1].key if nodes else key, message))
        else:
            nodes.append(Archived(chain.keys[spoken], key, message))
            key, spoken = chain.keys[spoken], spoken + 1
    history.keep((archive_of, chain.seed), nodes)
    return nodes


def _beside(key: str, message: Message) -> Archived:
    """Return the node of a system message, which hangs on the message before it by that one's key."""
    hashed = hashlib.blake2b(bytes.fromhex(key) + b"s" + json_form(message).encode(), digest_size=KEY_BYTES)
    return Archived(hashed.hexdigest(), key, message)


def is_system(message: Message) -> bool:
    """Tell whether a message is the system's or the developer's; these are outside the chain."""
    role = message.get("role")
    return isinstance(role, str) and role in SYSTEM_ROLES


def _next(key: bytes, message: Message, open_calls: OpenCalls) -> bytes:
    """Return the key after a message; the keys before it have one length, so that nothing can imitate them."""
    answered = open_calls.answered_by(message) if message.get("role") == "tool" else None
    kind, text = form_of(message, answered)
    return digest_of(text, after=key + kind)


def _follow(open_calls: OpenCalls, number: int, message: Message) -> None:
    """Note the calls that a message opens, and the call that it answers."""
    if message.get("role") == "tool":
        if (answered := open_calls.answered_by(message)) is not None:
            open_calls.close(answered)
    elif message.get("tool_calls"):
        open_calls.add(number, message)


def _continued(answer: Message, more: Message) -> Message:
    """Return an answer with the text that continues it appended, and the calls that came with that."""
    old, new = parts_of(answer.get("content")), parts_of(more.get("content"))
    if old and new and is_text(old[-1]) and is_text(new[0]):
        old, new = old[:-1], [{"type": "text", "text": text_in(old[-1]) + text_in(new[0])}, *new[1:]]
    return {**more, "role": "assistant", "content": old + new}


def systems_of(messages: Iterable[Message]) -> list[Message]:
    """Return the system messages, without those that repeat an earlier one."""
    found: dict[str, Message] = {}
    for message in filter(is_system, messages):
        found.setdefault(json_form(message), message)
    return list(found.values())
