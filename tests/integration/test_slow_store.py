"""A store that does not answer stands in nobody's way: raw models answer at once, and nothing is lost."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, chunks_of, elbowroom_with_studio, eventually
from read_conversations import all_kept, kept_of, told
from serving import Served, text_of

from elbowroom.server.state import SHARED
from elbowroom.store.sql.database import Database

HISTORY = [
    {"role": "user", "content": "Say a number."},
    {"role": "assistant", "content": "One."},
    {"role": "user", "content": "Another one."},
]
TOLD = [("user", "Say a number."), ("assistant", "One."), ("user", "Another one."), ("assistant", "Two.")]


@contextmanager
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Let every question to the database and every change wait until the end; gives what counts those that wait."""
    goes_on, waiting = threading.Event(), []
    carry_out = Database._on

    async def held(database: Database, threads: Executor, work: Callable[[], Any]) -> Any:
        def later() -> Any:
            waiting.append(work)
            goes_on.wait(30)
            return work()

        return await carry_out(database, threads, later)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "_on", held)
        try:
            yield lambda: len(waiting)
        finally:
            goes_on.set()


async def ask(served: Served, messages: list[dict[str, str]], **headers: str) -> tuple[str | None, str]:
    """Ask a raw model for a stream; return the id of the conversation and the text."""
    body = {"model": RAW_MODEL, "messages": messages, "stream": True}
    async with asyncio.timeout(10), served.http.post(served.chat_url, json=body, headers=headers) as response:
        assert response.status == 200
        return response.headers.get("X-Conversation-Id"), text_of(chunks_of(await response.read()))


async def test_a_known_conversation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can be read or written, the next turn is answered, with the id of its conversation."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.", "Two.")
        first, _ = await ask(served, HISTORY[:1])
        with blocked(monkeypatch):
            assert await ask(served, HISTORY) == (first, "Two.")
        assert told(await kept_of(served)) == TOLD


async def test_a_store_that_opens_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has just started answers before its store is open; the turn belongs to the old conversation."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.")
        await ask(served, HISTORY[:1])
        [before] = await all_kept(served)
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Two.")
        with blocked(monkeypatch) as waiting:
            assert await ask(served, HISTORY) == (None, "Two.")
            assert waiting() == 1  # it is being opened, and nothing else was asked
        kept = await kept_of(served)
        assert kept.row.id == before.row.id
        assert told(kept) == TOLD


async def test_a_name_is_enough_while_the_store_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of a named conversation is known before the store has answered, and no second one appears."""
    named = {"X-Conversation-Id": "numbers"}
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.")
        first, _ = await ask(served, HISTORY[:1], **named)
        await kept_of(served)
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Two.")
        with blocked(monkeypatch):
            assert await ask(served, HISTORY, **named) == (first, "Two.")
        assert told(await kept_of(served)) == TOLD


async def test_no_question_stands_before_the_upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all conversations are known, a history that nobody knows asks nothing of the database either."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.", "Two.", "Two.")
        await ask(served, HISTORY[:1])
        await kept_of(served)
        index = served.app[SHARED].store.conversations.index
        await eventually(lambda: index.is_complete, "the index is not filled")
        await asyncio.sleep(0.3)  # until what was said is written
        misses = index.misses
        with blocked(monkeypatch) as waiting:
            found, said = await ask(served, [HISTORY[0], {**HISTORY[1], "content": "Edited."}, HISTORY[2]])
            assert (bool(found), said) == (True, "Two.")
            assert waiting() <= 1  # what was said is being written
        assert index.misses == misses
