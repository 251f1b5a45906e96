"""Compaction items: only what was made here comes back, and it comes back whole."""

import asyncio
import base64
import random
import stat
from pathlib import Path

import pytest

from elbowroom.context.compaction.sealed import LONGEST_ITEM, PREFIX, NotSealedHere, Seal, SealedForAgent
from elbowroom.context.compaction.sealed import sealed_key as key_of
from elbowroom.context.transcript import Message, Summary
from elbowroom.store import open_in_memory
from elbowroom.store.lock import secret_beside

SECRET, OTHER = b"s" * 32, b"o" * 32
KEY = "0" * 32
SEAL = Seal(SECRET, "anna", "")
SUMMARY = Summary(role="user", content="<elbowroom-summary>\nIntro.\n\nThe port is 8417.\n</elbowroom-summary>")
MESSAGES: list[Message] = [SUMMARY, {"role": "assistant", "content": "Noted."}, {"role": "user", "content": "On."}]


def carried(text: str) -> list[Message]:
    """Return the messages that an item carries itself."""
    return list(SEAL.opened(text, "input[0]").messages)


def noise(length: int) -> str:
    """Return text that cannot be compressed well."""
    return base64.b64encode(random.Random(length).randbytes(length)).decode()[:length]


def test_item_names_its_entry_and_stays_small() -> None:
    """An item names the entry in which all messages are word for word, and is small however large these are."""
    large = [*MESSAGES, {"role": "user", "content": noise(100_000)}]
    text = SEAL.sealed(KEY, large)
    assert SEAL.opened(text, "input[0]").key == KEY
    assert len(text) < LONGEST_ITEM


def test_item_carries_the_messages_themselves() -> None:
    """Where the ledger no longer has the entry, small messages come back unchanged from the item alone."""
    assert carried(SEAL.sealed(KEY, MESSAGES)) == MESSAGES


@pytest.mark.parametrize("content", [noise(60_000), "x" * 2_000_000], ids=["noise", "a bomb"])
def test_item_without_its_entry_carries_the_summary_and_the_newest(content: str) -> None:
    """What is too large for an item is left out, never the summary, and no item opens to more than its bound."""
    messages = [{"role": "user", "content": content}, *MESSAGES]
    text = SEAL.sealed(KEY, messages)
    assert carried(text)[-3:] == MESSAGES
    assert len(text) < LONGEST_ITEM


@pytest.mark.parametrize("place", [0, len(PREFIX), len(PREFIX) + 20, -1])
def test_changed_item_is_refused(place: int) -> None:
    """One changed character anywhere makes an item void; the error is a 400 that names the place and what to do."""
    text = SEAL.sealed(KEY, MESSAGES)
    letter = "A" if text[place] != "A" else "B"
    changed = text[:place] + letter + text[place:][1:] if place >= 0 else text[:-5] + letter * 5
    with pytest.raises(NotSealedHere) as refusal:
        SEAL.opened(changed, "input[3].encrypted_content")
    assert refusal.value.status == 400
    assert refusal.value.param == "input[3].encrypted_content"
    assert "send the messages of the conversation" in refusal.value.message


@pytest.mark.parametrize("added", [" ", "\n", "!", "="])
def test_item_with_something_added_is_refused(added: str) -> None:
    """A letter that stands for nothing makes an item void as well, wherever it stands."""
    text = SEAL.sealed(KEY, MESSAGES)
    for place in (len(PREFIX), len(text) // 2, len(text) - 4):
        with pytest.raises(NotSealedHere):
            SEAL.opened(text[:place] + added + text[place:], "input[0]")


@pytest.mark.parametrize("value", [None, 7, "", "gAAAAAB", PREFIX, PREFIX + "ä", PREFIX + "A" * 50_000, PREFIX + "="])
def test_anything_else_is_refused_in_the_same_way(value: object) -> None:
    """What is no item of this server at all, such as one of OpenAI's, is refused without a crash."""
    with pytest.raises(NotSealedHere):
        SEAL.opened(value, "input[0]")


def test_item_belongs_to_its_owner_and_its_server() -> None:
    """Another user cannot use an item, nor can another server's secret."""
    text = SEAL.sealed(KEY, MESSAGES)
    for secret, owner in ((SECRET, "bert"), (SECRET, ""), (OTHER, "anna")):
        with pytest.raises(NotSealedHere):
            Seal(secret, owner, "").opened(text, "input[0]")


def test_item_of_an_agent_is_for_that_agent_alone() -> None:
    """What an agent has read goes to no other model; an item of a raw model goes anywhere."""
    text = Seal(SECRET, "anna", "notes").sealed(KEY, MESSAGES)
    assert Seal(SECRET, "anna", "notes").opened(text, "input[0]").key == KEY
    for other in ("", "mail"):
        with pytest.raises(SealedForAgent, match="'notes'"):
            Seal(SECRET, "anna", other).opened(text, "input[0]")
    assert Seal(SECRET, "anna", "mail").opened(SEAL.sealed(KEY, MESSAGES), "input[0]").key == KEY


def test_other_messages_have_another_key() -> None:
    """A later compaction of the same history never changes what an earlier item stands for."""
    assert key_of(KEY, MESSAGES) == key_of(KEY, list(MESSAGES)) != key_of(KEY, MESSAGES[1:])


def test_secret_stays_with_the_database(tmp_path: Path) -> None:
    """The secret is the same after a restart and readable by its owner only; part of one is replaced."""
    path = tmp_path / "data" / "elbowroom.db"
    first = secret_beside(path)
    kept = path.with_name("elbowroom.db-secret")
    assert (secret_beside(path), len(first), stat.S_IMODE(kept.stat().st_mode)) == (first, 32, 0o600)
    kept.write_bytes(first[:7])
    assert len(secret_beside(path)) == 32


def test_secret_is_in_memory_where_nothing_can_be_kept(tmp_path: Path) -> None:
    """Where no file can be written, and for a store in memory, the secret lasts as long as the process."""
    (tmp_path / "data").write_text("no folder")
    assert len(secret_beside(tmp_path / "data" / "elbowroom.db")) == 32

    async def twice() -> tuple[bytes, bytes]:
        store = open_in_memory()
        return await store.secret(), await store.secret()

    one, other = asyncio.run(twice())
    assert one == other
