"""Compaction items: what a client keeps in place of a conversation, sealed so that nobody can make or change one.

An item names an entry of the ledger, which has the messages word for word. It carries the messages as well, or
as many of them as a few kilobytes hold, the summary first, for the time when the ledger no longer has the entry.
"""

import hashlib
import hmac
import json
import zlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from elbowroom.context.canonical import json_form
from elbowroom.context.compaction.division import is_summary_message, marked
from elbowroom.context.ledger import KEY_BYTES
from elbowroom.context.outputs import utf8
from elbowroom.context.transcript import Message, kept_form, out_of_kept_form, text_of, with_content
from elbowroom.errors import RequestError

PREFIX: Final = "elbowroom-compaction-1."
"""How every item begins; another form of items has another number."""
CODE_BYTES: Final = 32
MOST_CARRIED: Final = 8_000
"""Bytes that the messages in an item take at most, compressed."""
MOST_OPENED: Final = 2**20
"""Bytes that an item may have once it is decompressed."""
LONGEST_ITEM: Final = 16_000
LONGEST_SUMMARY, LONGEST_TEXT = 12_000, 3_000
"""Characters of a summary, and of another message, that an item carries where it cannot carry all: the beginning."""


class NotSealedHere(RequestError):
    """An item was not made here, was changed, or was made for somebody else."""

    code = "invalid_compaction"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} is no compaction that this server has made for you: it was changed or cut, or another server, "
            "another user or an earlier data folder has it. Leave it out and send the messages of the conversation "
            "in its place; the next compaction makes a new one.",
            param=where,
        )


class SealedForAgent(RequestError):
    """An item of an agent was sent to somebody else, who would learn what only the agent has read."""

    code = "invalid_compaction"

    def __init__(self, where: str, agent: str) -> None:
        super().__init__(
            f"{where} is a compaction of a conversation with the agent {agent!r} and holds what that agent has read. "
            f"Name {agent!r} as the model, or leave the item out and send the messages of the conversation in its "
            "place.",
            param=where,
        )


class Reference(NamedTuple):
    """What an item says: the key of its entry, and the messages that it carries."""

    key: str
    messages: tuple[Message, ...]


def sealed_key(chain_key: str, messages: Sequence[Message]) -> str:
    """Return the ledger's key for messages that stand for a conversation; other messages have another key."""
    hashed = hashlib.blake2b(b"sealed" + bytes.fromhex(chain_key), digest_size=KEY_BYTES)
    hashed.update(json_form(list(messages)).encode())
    return hashed.hexdigest()


@dataclass(frozen=True, slots=True)
class Seal:
    """Makes and opens the items of one owner with one agent, by the `secret` of a server.

    An item of an agent is for that agent alone; an item of a raw model, whose `agent` is empty, for any model.
    """

    secret: bytes
    owner: str
    agent: str

    def sealed(self, key: str, messages: Sequence[Message]) -> str:
        """Return an item for the entry with this key and these messages."""
        carried = list(map(kept_form, _carried(messages)))
        payload = zlib.compress(_json({"key": key, "agent": self.agent, "messages": carried, "marked": True}))
        return PREFIX + urlsafe_b64encode(self._code(payload) + payload).decode("ascii")

    def opened(self, text: Any, where: str) -> Reference:
        """Return what an item says; `where` is its place in the request. Raises RequestError for one not to be used."""
        payload = self._authentic(text)
        if payload is None:
            raise NotSealedHere(where)
        said = json.loads(zlib.decompressobj().decompress(payload, MOST_OPENED))
        if said["agent"] not in ("", self.agent):
            raise SealedForAgent(where, said["agent"])
        kept = tuple(map(out_of_kept_form, said["messages"]))
        return Reference(said["key"], kept if "marked" in said else marked(kept))

    def _authentic(self, text: Any) -> bytes | None:
        """Return the payload of an item whose code is right; None for any other value."""
        if not isinstance(text, str) or not text.startswith(PREFIX) or len(text) > LONGEST_ITEM:
            return None
        try:
            whole = b64decode(text.removeprefix(PREFIX).encode("ascii"), b"-_", validate=True)
        except ValueError:
            return None
        code, payload = whole[:CODE_BYTES], whole[CODE_BYTES:]
        return payload if hmac.compare_digest(code, self._code(payload)) else None

    def _code(self, payload: bytes) -> bytes:
        """Return the authentication code; what stands before the payload has one length, whatever the owner's name."""
        head = PREFIX.encode("ascii") + hashlib.sha256(utf8(self.owner)).digest()
        return hmac.digest(self.secret, head + payload, hashlib.sha256)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=dict).encode("ascii")


def _fits(messages: Sequence[Message]) -> bool:
    plain = _json(list(messages))
    return len(plain) <= MOST_OPENED // 2 and len(zlib.compress(plain)) <= MOST_CARRIED


def _carried(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that an item carries: all, or the beginning of each, the summary and the newest of them."""
    if _fits(messages):
        return list(messages)
    told = [short for message in messages if (short := _short(message))["content"]]
    summaries = [place for place, message in enumerate(told) if is_summary_message(message)]
    chosen: set[int] = set()
    for place in [*summaries[-1:], *reversed(range(len(told)))]:
        if not _fits([told[at] for at in sorted({*chosen, place})]):
            break
        chosen.add(place)
    return [told[place] for place in sorted(chosen)]


def _short(message: Message) -> Message:
    """Return a message as a text of bounded length, without its calls; results are told by the user."""
    role = message.get("role")
    if is_summary_message(message):
        return with_content(message, text_of(message)[:LONGEST_SUMMARY])
    return {"role": "user" if role == "tool" else role, "content": text_of(message)[:LONGEST_TEXT]}
