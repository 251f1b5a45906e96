"""Pages of messages: read alone they are the same as cut from all that is kept, whatever happens between two pages."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import store_fixtures
from stored_conversations import AGENT, ME, begun, moments, said, turn, user, write_behind_conversations

from elbowroom.context.branch import ConversationTree, never_shown
from elbowroom.context.conversation import (
    Change,
    Conversation,
    ConversationBegun,
    Heard,
    KeptMessage,
    PageWanted,
    ReplyBegun,
    ReplyGrew,
    TurnBegun,
    TurnEnded,
)
from elbowroom.store.questions import Conversations

conversations = store_fixtures.conversations
LIMITS = (pytest.param(1, marks=pytest.mark.long), 2, 200)


def expected(kept: Conversation, wanted: PageWanted) -> list[KeptMessage]:
    """Return all messages that pages of this kind go through."""
    hidden = never_shown(kept.messages)
    chosen = ConversationTree.of(kept.messages).latest() if wanted.is_latest else kept.messages
    return [message for message in chosen if wanted.with_hidden or message.id not in hidden]


async def walked(conversations: Conversations, wanted: PageWanted) -> list[KeptMessage]:
    """Return the messages of all pages, in order."""
    found: list[KeptMessage] = []
    while True:
        page = await conversations.page(ME, "c", wanted)
        assert page is not None
        assert page.is_known
        assert len(page.messages) <= wanted.limit
        found = [*page.messages, *found] if wanted.is_backward else [*found, *page.messages]
        if not page.has_more:
            return found
        assert len(page.messages) == wanted.limit
        cursor = page.messages[0 if wanted.is_backward else -1].id
        wanted = PageWanted(wanted.limit, cursor, wanted.is_backward, wanted.is_latest, wanted.with_hidden)


def every_kind(limit: int) -> Iterator[PageWanted]:
    """Yield each way to walk."""
    for bits in range(8):
        yield PageWanted(limit, "", bool(bits & 1), bool(bits & 2), bool(bits & 4))


def system(key: str, parent: str) -> Heard:
    """Return a system message."""
    return Heard("c", key, parent, {"role": "system", "content": key}, next(moments))


def interrupted(turn_id: str, parent: str, key: str = "") -> list[Change]:
    """Return a turn that was cut; without a key it is still being said."""
    changes: list[Change] = [
        TurnBegun(turn_id, "c", parent, AGENT, next(moments)),
        ReplyBegun(turn_id, f"{turn_id}.1", next(moments)),
        ReplyGrew(f"{turn_id}.1", "text", f"begun {turn_id}"),
    ]
    return [*changes, TurnEnded(turn_id, "interrupted", key, next(moments))] if key else changes


def random_talk(seed: int) -> list[Change]:
    """Return a conversation with branches, edits, cut answers and system messages that take each other's place."""
    dice = random.Random(seed)
    changes: list[Change] = [ConversationBegun("c", ME, "", AGENT, next(moments)), system("s0", "seed")]
    keys = ["seed"]
    for number in range(1, dice.randrange(4, 9)):
        parent = dice.choice(keys) if dice.random() < 0.25 else keys[-1]
        said, key = Heard("c", f"u{number}", parent, user(f"question {number}"), next(moments)), f"a{number}"
        changes.append(said)
        keys.append(said.key)
        if dice.random() < 0.3:
            changes.append(system(f"s{number}", dice.choice([*keys[-3:], "s0"])))
        if dice.random() < 0.3:
            changes += interrupted(f"cut{number}", said.key, dice.choice(["", f"cut-key{number}"]))
        if dice.random() < 0.8:
            changes += turn(f"t{number}", "c", said.key, key)
            keys.append(key)
        elif dice.random() < 0.5:  # the client sends an answer of its own, perhaps one that a turn has given
            answer = {"role": "assistant", "content": "mine"}
            changes.append(Heard("c", dice.choice([key, *keys[-1:]]), said.key, answer, next(moments)))
    return changes


@pytest.mark.parametrize("limit", LIMITS)
async def test_pages_are_cut_from_all(conversations: Conversations, limit: int) -> None:
    """Forward and backward, of the latest branch and of all, with and without what was hidden: each message once."""
    await said(conversations, random_talk(limit), at_once=1000)
    kept = await conversations.read(ME, "c")
    assert kept is not None
    for wanted in every_kind(limit):
        assert await walked(conversations, wanted) == expected(kept, wanted), wanted


def chat(first: int, last: int) -> list[Change]:
    """Return questions with their answers, all said at the same moment."""
    changes: list[Change] = [ConversationBegun("c", ME, "", AGENT, 1.0)] if first == 0 else []
    for number in range(first, last):
        parent = f"a{number - 1}" if number else "seed"
        changes.append(Heard("c", f"u{number}", parent, user(f"question {number}"), 1.0))
        changes += [TurnBegun(f"t{number}", "c", f"u{number}", AGENT, 1.0), ReplyBegun(f"t{number}", f"r{number}", 1.0)]
        changes += [ReplyGrew(f"r{number}", "text", "yes"), TurnEnded(f"t{number}", "complete", f"a{number}", 1.0)]
    return changes


@pytest.mark.parametrize("is_latest", [True, False])
@pytest.mark.parametrize("is_backward", [True, False])
async def test_a_conversation_that_grows_between_pages(
    conversations: Conversations, is_latest: bool, is_backward: bool
) -> None:
    """Forward each message comes once, also those that come in meanwhile; backward each that was there at first."""
    conversations.note(chat(0, 4))
    met: list[str] = []
    size, has_more = 4, True
    while has_more:
        page = await conversations.page(ME, "c", PageWanted(3, met[-1] if met else "", is_backward, is_latest))
        assert page is not None
        met += [kept.id for kept in (page.messages[::-1] if is_backward else page.messages)]
        has_more = page.has_more
        if size < 7:
            conversations.note(chat(size, size + 1))
            size += 1
    asked = [f"c-u{number}" for number in (reversed(range(4)) if is_backward else range(7))]
    assert [one for one in met if one.startswith("c-u")] == asked
    assert len(met) == len(set(met)) == 2 * len(asked)


async def test_what_is_deleted_between_pages(conversations: Conversations) -> None:
    """A page after a deletion lacks what was deleted and nothing else; a cursor that was deleted is unknown."""
    conversations.note(chat(0, 4))
    page = await conversations.page(ME, "c", PageWanted(2, "", is_backward=True))
    assert page is not None
    assert [kept.id for kept in page.messages] == ["c-u3", "r3"]
    assert await conversations.delete_turn(ME, "t3")
    page = await conversations.page(ME, "c", PageWanted(2, "c-u3", is_backward=True))
    assert page is not None
    assert [kept.id for kept in page.messages] == ["c-u2", "r2"]
    page = await conversations.page(ME, "c", PageWanted(2, "r3", is_backward=True))
    assert page is not None
    assert (page.is_known, page.messages) == (False, ())
    assert await conversations.delete(ME, "c")
    assert await conversations.page(ME, "c", PageWanted(2)) is None
    assert await conversations.overview(ME, "c") is None
    assert await conversations.message(ME, "c", "c-u2") is None


async def test_what_a_conversation_is(conversations: Conversations) -> None:
    """Its row and the number of its messages are told without them, and one of them without the others."""
    conversations.note([*begun("c"), *turn("t", "c", "c.1", "c.2")])
    whole, found = await conversations.read(ME, "c"), await conversations.overview(ME, "c")
    assert whole is not None
    assert found is not None
    assert (found.row, found.compactions, found.message_count) == (whole.row, whole.compactions, 4)
    for kept in whole.messages:
        page = await conversations.message(ME, "c", kept.id)
        assert page is not None
        assert page.messages == (kept,)
        assert bool(page.hidden) == (kept.id in never_shown(whole.messages))
    page = await conversations.message(ME, "c", "nothing")
    assert page is not None
    assert not page.messages


async def test_a_thousand_system_messages_in_a_row(tmp_path: Path) -> None:
    """However many a client sends, with or without an answer, they are read, and so is all that comes after them."""
    changes = begun("c")
    for number in range(1010):
        changes.append(system(f"s{number}", f"s{number - 1}" if number else "c.1"))
    changes.append(Heard("c", "c.2", "c.1", user("And now?"), next(moments)))
    async with write_behind_conversations(tmp_path / "elbowroom.db") as kept:
        await said(kept, changes, len(changes))
        page = await kept.page(ME, "c", PageWanted(2000))
        assert page is not None
        assert [message.key for message in page.messages] == ["c.1", *(f"s{number}" for number in range(1010)), "c.2"]
        assert not kept._store.is_failing


async def test_a_cursor_that_no_database_takes(conversations: Conversations) -> None:
    """A text that is no id is a cursor that is not known, and no message."""
    await said(conversations, begun("c"))
    for unsound in ("\ud800", "a\0b"):
        page = await conversations.page(ME, "c", PageWanted(1, unsound))
        assert page is not None
        assert not page.is_known
        one = await conversations.message(ME, "c", unsound)
        assert one is not None
        assert one.messages == ()


async def test_a_ring_that_another_program_has_made(tmp_path: Path) -> None:
    """Turns that come one after another in a ring, which no client can send, do not keep a reader for ever."""
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as kept:
        changes = [*begun("c"), *turn("one", "c", "k2", "k1"), *turn("two", "c", "k1", "k2")]
        await said(kept, [*changes, *turn("end", "c", "c.1", "c.2")], 99)
        assert await kept.settled()
        page = await asyncio.wait_for(kept.page(ME, "c", PageWanted(9, "one.1")), 60)
        assert page is not None
        assert not page.is_known
