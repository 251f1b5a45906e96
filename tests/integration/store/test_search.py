"""Searches find the same with an index, with half of one and without one, and what is deleted leaves the index."""

import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from stored_conversations import ME, OwnConversations, begun, turn, user, write_behind_conversations

from elbowroom.context.conversation import Change, ConversationBegun, Heard, ReplyBegun, ReplyGrew, TurnBegun
from elbowroom.store.sql.search import text_index, texts, trigrams

ALPHABET = [
    "a",
    "b",
    "A",
    "B",
    "ß",
    "ẞ",
    "İ",
    "é",
    "É",
    "Σ",
    "ς",
    "σ",
    "日",
    "本",
    "語",
    "😀",
    "%",
    "_",
    "!",
    '"',
    "'",
    "\\",
]
ALPHABET += ["\0", "\ud800", "\n", " ", "-", "*", "(", "\ue000", "u"]


@pytest.fixture
async def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OwnConversations]:
    """Conversations in a file whose index is only filled when a test says so."""
    monkeypatch.setattr("elbowroom.store.sql.store.SqlStore._index_soon", lambda *_: None)
    async with write_behind_conversations(tmp_path / "elbowroom.db") as conversations:
        yield conversations


async def index(kept: OwnConversations, steps: int = 1000) -> None:
    """Bring the index up to date, in so many steps at most."""
    await kept.settled()
    for _ in range(steps):
        if not await kept.sql._index.step():
            break


async def found(kept: OwnConversations, search: str) -> list[str]:
    """Return the ids of the conversations that hold a text."""
    return [row.id for row in await kept.rows(ME, search=search, limit=200)]


async def count(kept: OwnConversations, question: str) -> int:
    """Return the answer to a question in SQL."""

    def ask(connection: Connection) -> int:
        return int(connection.scalar(text(question)) or 0)

    return await kept.sql._database.read(ask)


def random_text(dice: random.Random, most: int = 40) -> str:
    """Return a text with letters of all kinds, marks of SQL and of full-text search, and what UTF-8 does not have."""
    return "".join(dice.choices(ALPHABET, k=dice.randrange(most)))


def random_talk(dice: random.Random, number: int) -> Sequence[Change]:
    """Return a conversation with texts in each place that is searched."""
    name = f"c{number}"
    parts = [{"type": "text", "text": random_text(dice)}, {"type": "image_url", "image_url": {"url": "data:,aBba"}}]
    return [
        ConversationBegun(name, ME, "", "reader", float(number)),
        Heard(name, f"{name}.1", "seed", user(random_text(dice)), float(number)),
        Heard(name, f"{name}.2", f"{name}.1", {"role": "user", "content": parts}, float(number)),
        TurnBegun(f"{name}t", name, f"{name}.2", "reader", float(number)),
        ReplyBegun(f"{name}t", f"{name}t.1", float(number)),
        *(ReplyGrew(f"{name}t.1", kind, random_text(dice)) for kind in ("text", "reasoning", "text")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_an_index_finds_what_reading_finds(
    kept: OwnConversations, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Any text, of one letter or of many, in any case, is found in the same conversations however much is indexed."""
    dice = random.Random(seed)
    monkeypatch.setattr(trigrams, "MESSAGES_A_STEP", 7)
    for number in range(8):
        kept.note(random_talk(dice, number))
    searches = [random_text(dice, most) for most in (2, 3, 4, 5, 6) for _ in range(4)]
    searches = [*filter(None, searches), "aBba", "reader", "日本語"]
    read = [await found(kept, search) for search in searches]
    assert any(read)
    for steps in (1, 1, 1000):
        await index(kept, steps)
        assert [await found(kept, search) for search in searches] == read


async def test_what_still_grows_is_found_and_indexed_when_it_is_whole(kept: OwnConversations) -> None:
    """A reply that is being said is read by searches, with all after it, until it has ended."""
    whole = turn("t", "c", "c.1", "c.2")
    kept.note([*begun("c"), *whole[:6], *begun("d", "What is a heron?")])
    await index(kept)
    assert await count(kept, "SELECT number FROM search_progress") == 1
    assert await found(kept, "let me look") == ["c"]
    assert await found(kept, "HERON") == ["d"]
    kept.note(whole[6:])
    await index(kept)
    assert await count(kept, "SELECT number FROM search_progress") == 5
    assert await found(kept, "straße") == ["c"]


async def test_deleted_messages_leave_the_index(kept: OwnConversations) -> None:
    """After a conversation is deleted, and a turn, not one of their letters is in the index or waits to leave it."""
    kept.note([*begun("c", "heron"), *turn("t", "c", "c.1", "c.2"), *begun("d", "gannet")])
    await index(kept)
    assert await count(kept, "SELECT count(*) FROM search_terms WHERE term = 'ron'") == 1
    await kept.delete(ME, "d")
    await kept.delete_turn(ME, "t")
    assert await count(kept, "SELECT count(*) FROM search_leaving") > 0
    await index(kept)
    assert await count(kept, "SELECT count(*) FROM search_leaving") == 0
    assert await count(kept, "SELECT count(*) FROM search_terms WHERE term IN ('gan', 'str', 'let')") == 0
    assert await count(kept, "SELECT count(*) FROM search_terms WHERE term = 'ron'") == 1
    assert await kept.delete(ME, "c")
    await index(kept)
    assert await count(kept, "SELECT count(*) FROM search_terms") == 0


async def test_a_text_that_is_too_long_for_the_index_is_read(
    kept: OwnConversations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found all the same, at its end too, and not where it does not hold the text."""
    monkeypatch.setattr(texts, "LONGEST_TEXT", 1000)
    kept.note([*begun("c", "x" * 2000 + "heron"), *begun("d", "y" * 2000 + "gannet")])
    await index(kept)
    assert await found(kept, "xheron") == ["c"]
    assert await found(kept, "et") == ["d"]
    assert await found(kept, "he") == ["c"]


async def test_without_full_text_search_all_is_read(kept: OwnConversations, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of SQLite that has none finds everything, also in a file that another build has indexed in part."""
    monkeypatch.setattr(trigrams, "MAKE_INDEX", "CREATE VIRTUAL TABLE search_index USING fts99(text)")
    kept.note(begun("c", "heron"))
    await index(kept)
    assert await found(kept, "eron") == ["c"]
    monkeypatch.setattr(trigrams.entries, "name", "no_such_index")
    monkeypatch.setattr(trigrams.terms, "name", "no_such_terms")
    await kept.sql._database.write(lambda sql: sql.execute(text("INSERT INTO search_progress VALUES (1)")))
    kept.note(begun("d", "heron"))
    assert await found(kept, "eron") == ["d", "c"]


async def test_what_is_deleted_where_full_text_search_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build without it that comes between two that have it leaves nothing wrong in the index of the second one."""
    monkeypatch.setattr("elbowroom.store.sql.store.SqlStore._index_soon", lambda *_: None)
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as kept:
        kept.note([*begun("c", "heron"), *begun("d", "gannet")])
        await index(kept)
    with monkeypatch.context() as patched:
        patched.setattr(trigrams.terms, "name", "no_such_terms")
        async with write_behind_conversations(path) as kept:
            assert await found(kept, "gannet") == ["d"]
            await kept.delete(ME, "d")
            kept.note(begun("e", "grebe"))
            await index(kept)
            assert await found(kept, "gannet") == []
    async with write_behind_conversations(path) as kept:
        await kept.queue()
        await index(kept)
        assert await count(kept, "SELECT count(*) FROM search_terms WHERE term = 'gan'") == 0
        assert await count(kept, "SELECT count(*) FROM search_terms WHERE term IN ('gre', 'ron')") == 2
        assert [await found(kept, name) for name in ("heron", "gannet", "grebe")] == [["c"], [], ["e"]]


async def test_an_absent_text_reads_no_message(kept: OwnConversations) -> None:
    """Where all is indexed, a text that nobody said is told from the index: the plan of the search reads no parts."""
    for number in range(3):
        kept.note(begun(f"c{number}", "What is a heron?"))
    await index(kept)
    seen: list[str] = []

    def watch(connection: Connection) -> list[str]:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_trace_callback(seen.append)
        try:
            asked = text_index.found_in_index(connection, "gannet")
            assert asked is not None
            return list(connection.scalars(asked.numbers))
        finally:
            driver.set_trace_callback(None)

    assert await kept.sql._database.read(watch) == []
    assert seen
    assert not any("message_parts" in statement for statement in seen)
