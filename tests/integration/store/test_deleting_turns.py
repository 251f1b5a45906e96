"""One turn of a conversation in each kind of store: whose it is, and how it is deleted."""

import store_fixtures
from stored_conversations import ME, messages_of, turn, turn_messages, user, whole

from elbowroom.context.conversation import Conversations, Heard, Known, ReplyBegun, ReplyGrew, TurnBegun

conversations = store_fixtures.conversations


async def test_a_turn_belongs_to_its_conversation(conversations: Conversations) -> None:
    """It is found for its owner alone, as soon as it has begun."""
    conversations.note(whole("c"))
    conversations.note([TurnBegun("t", "c", "c.2", "reader", 1.0)])
    for held in ("c-t", "t"):
        assert await conversations.holder(ME, held) == "c"
        assert await conversations.holder("another", held) is None
    for odd in ("", "\0", "\ud800", "x" * 100_000, "nobody"):
        assert await conversations.holder(ME, odd) is None
        assert not await conversations.delete_turn(ME, odd)


async def test_a_deleted_turn_is_gone(conversations: Conversations) -> None:
    """What was said in it cannot be read, found or put back, and all else of its conversation stays."""
    conversations.note(whole("c"))
    conversations.note([Heard("c", "c.3", "c.2", user("And then?"), 1.0)])
    conversations.note(turn("u", "c", "c.3", "c.4"))
    assert not await conversations.delete_turn("another", "u")
    assert await conversations.delete_turn(ME, "u")
    assert await messages_of(conversations, "c") == [
        user("What is in the note?"),
        *turn_messages("c-t"),
        user("And then?"),
    ]
    assert await conversations.holder(ME, "u") is None
    assert await conversations.turns("c", ["c.4"]) == []
    assert await conversations.look_up(ME, "", ["c.1", "c.2", "c.3", "c.4"]) == Known(
        "c", frozenset({"c.1", "c.2", "c.3"})
    )
    assert not await conversations.delete_turn(ME, "u")


async def test_what_is_said_in_a_deleted_turn_is_lost(conversations: Conversations) -> None:
    """Nothing of it comes back, and what is said elsewhere at the same time is kept."""
    conversations.note(whole("c"))
    conversations.note(
        [TurnBegun("u", "c", "c.2", "reader", 1.0), ReplyBegun("u", "u.1", 1.0), ReplyGrew("u.1", "text", "One")]
    )
    assert await conversations.delete_turn(ME, "u")
    conversations.note([ReplyGrew("u.1", "text", " two"), *turn("v", "c", "c.2", "c.5")])
    assert (await messages_of(conversations, "c"))[4:] == turn_messages("v")
