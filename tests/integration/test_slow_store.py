"""A store that does not answer stands in nobody's way: raw models answer at once, and nothing is lost."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from chatting import RAW_MODEL, chunks_of, elbowroom_with_studio, eventually, said_until
from ledger_files import query
from read_conversations import kept_of, once_kept, told
from serving import Served, text_of
from spread_variants import spread

from elbowroom.agents.conversations import recording
from elbowroom.agents.conversations.recording import MISSED, OPENED, QUIET_SECONDS
from elbowroom.agents.conversations.recording import OPENING as OPENING_STORE
from elbowroom.demo import Script, WaitFor
from elbowroom.server.state import SHARED
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.database import Database
from elbowroom.store.write_behind import Patience

OPENING = "The database of conversations is still being opened, so what is kept cannot be told yet. Ask again in 2 s."
ROUTES = (
    ("GET", "/v1/conversations"),
    ("GET", "/v1/conversations?q=number"),
    ("GET", "/v1/conversations/{id}"),
    ("GET", "/v1/conversations/{id}/messages"),
    ("GET", "/v1/conversations/{id}/messages/unknown"),
    ("GET", "/v1/conversations/{id}/export"),
    ("GET", "/v1/conversations/{id}/queue"),
    ("POST", "/v1/conversations/{id}/cancel"),
    ("DELETE", "/v1/conversations/{id}"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/responses"),
    ("GET", "/v1/tool_outputs/unknown"),
    ("GET", "/api/memories"),
    ("DELETE", "/api/memories/unknown"),
)
"""What tells of something that is kept."""

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
    carry_out = Database.do

    async def held(database: Database, work: Callable[[], Any], threads: Executor | None = None) -> Any:
        def later() -> Any:
            waiting.append(work)
            goes_on.wait(30)
            return work()

        return await carry_out(database, later, threads)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "do", held)
        try:
            yield lambda: len(waiting)
        finally:
            goes_on.set()


async def ask(
    served: Served, messages: list[dict[str, str]], *, model: str = RAW_MODEL, **headers: str
) -> tuple[str | None, str]:
    """Ask a model for a stream; return the id of the conversation and the text."""
    conversation, stream = await stream_of(served, messages, model=model, **headers)
    return conversation, text_of(chunks_of(stream))


async def stream_of(
    served: Served, messages: list[dict[str, str]], *, model: str, **headers: str
) -> tuple[str | None, bytes]:
    """Ask a model for a stream; return the id of the conversation and all bytes, with the status lines."""
    body = {"model": model, "messages": messages, "stream": True}
    async with asyncio.timeout(10), served.http.post(served.chat_url, json=body, headers=headers) as response:
        assert response.status == 200
        return response.headers.get("X-Conversation-Id"), await response.read()


async def broken_off(served: Served, messages: list[dict[str, str]], said: str, *, model: str, **headers: str) -> None:
    """Ask a model for a stream, and leave once this was said."""
    body = {"model": model, "messages": messages, "stream": True}
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        assert await said_until(response, len(said)) == said


def as_a_crash_leaves_it(path: Path, turn: str) -> None:
    """Let a turn in a closed file be one that was still streaming when its process ended."""
    query(path, "UPDATE turns SET key = '', status = 'streaming', has_more = 0 WHERE id = ?", [turn])
    query(path, "UPDATE messages SET status = 'streaming' WHERE turn = ?", [turn])


async def test_a_known_conversation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can be read or written, the next turn is answered, with the id of its conversation."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.", "Two.")
        first, _ = await ask(served, HISTORY[:1])
        with blocked(monkeypatch):
            assert await ask(served, HISTORY) == (first, "Two.")
        assert told(await kept_of(served)) == TOLD


@pytest.mark.slow
@pytest.mark.fault("store opens late", "first", "what a crash has broken off is waited for, and read by the model")
@pytest.mark.parametrize(("model", "name"), spread([RAW_MODEL, "writer"], ["", "numbers"]))
async def test_an_answer_that_broke_off_is_read_once_the_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, name: str
) -> None:
    """Right after a start whoever may have a past waits for it, however long opening takes, and is told so."""
    headers = {"X-Conversation-Id": name} if name else {}
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.", Script("Two and", WaitFor(asyncio.Event())))
        await ask(served, HISTORY[:1], model=model, **headers)
        await broken_off(served, HISTORY, "Two and", model=model, **headers)
        before = await once_kept(served, lambda kept: len(kept.messages) == 4)
    as_a_crash_leaves_it(tmp_path / "elbowroom.db", before.messages[-1].turn)
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Three.")
        served.app[SHARED].store.patience = Patience(first_words=0.05, opening=0.05)
        going_on = [*HISTORY, {"role": "user", "content": "Go on."}]
        with blocked(monkeypatch) as waiting:
            asking = asyncio.create_task(stream_of(served, going_on, model=model, **headers))
            await eventually(lambda: waiting() == 1, "it is not being opened")
            done, _ = await asyncio.wait([asking], timeout=2 * QUIET_SECONDS)
            assert not done
            assert not studio.chats
        _, stream = await asking
        said = [stream.index(text.encode()) for text in (OPENING_STORE, OPENED, "Three")]
        assert said == sorted(said)
        sent = [one["content"] for one in studio.chats[-1].body["messages"] if one["role"] != "system"]
        assert sent == ["Say a number.", "One.", "Another one.", "Two and", "Go on."]
        kept = await kept_of(served)
        assert kept.row.id == before.row.id
        assert told(kept) == [*TOLD[:3], ("assistant", "Two and"), ("user", "Go on."), ("assistant", "Three.")]


@pytest.mark.parametrize("model", [RAW_MODEL, "writer"])
async def test_of_a_short_wait_nobody_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """A store that opens within the blink of an eye, as at every start, leaves no line in the answer."""
    monkeypatch.setattr(recording, "QUIET_SECONDS", 10.0)
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Two.")
        with blocked(monkeypatch) as waiting:
            asking = asyncio.create_task(stream_of(served, HISTORY, model=model))
            await eventually(lambda: waiting() == 1, "it is not being opened")
            done, _ = await asyncio.wait([asking], timeout=0.05)
            assert not done
        _, stream = await asking
        assert text_of(chunks_of(stream)) == "Two."
        assert b"database" not in stream


@pytest.mark.slow
@pytest.mark.parametrize("model", [RAW_MODEL, "writer"])
async def test_what_may_be_missing_is_told_where_the_store_does_not_open_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """An answer is not held for ever: in the end it goes on with what the client has sent, and says what that lacks."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Two.")
        shared = served.app[SHARED]
        shared.store.patience = Patience(first_words=0.05, opening=0.05)
        shared.recording._patience = 0.1
        with blocked(monkeypatch):
            _, stream = await stream_of(served, HISTORY, model=model)
        assert stream.index(MISSED.encode()) < stream.index(b"Two")


async def test_a_first_question_waits_for_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can have no past, so it is answered before the store is open, in a conversation of its own."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.")
        served.app[SHARED].store.patience = Patience(first_words=0.05)
        with blocked(monkeypatch) as waiting:
            conversation, text = await ask(served, HISTORY[:1])
            assert (bool(conversation), text) == (True, "One.")
            assert waiting() == 1  # it is being opened, and nothing else was asked
        assert told(await kept_of(served)) == TOLD[:2]


async def test_a_name_is_enough_while_the_store_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of a named conversation is known before the store has answered, and no second one appears."""
    named = {"X-Conversation-Id": "numbers"}
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.")
        first, _ = await ask(served, HISTORY[:1], **named)
        await kept_of(served)
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Two.")
        shared = served.app[SHARED]
        shared.store.patience = Patience(first_words=0.05)
        with blocked(monkeypatch):
            asking = asyncio.create_task(ask(served, HISTORY, **named))
            await eventually(lambda: shared.running.of("", str(first)), "nobody knows that it is answered")
        assert (await asking)[0] == first
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


@pytest.mark.fault("question while the store opens", ("first", "stop"), "waited for, else 503 with Retry-After")
async def test_nothing_false_is_told_while_the_store_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is no empty list and was not deleted: whoever asks waits, reads why, and asks again."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.")
        conversation, _ = await ask(served, HISTORY[:1])

    async def tell(served: Served, method: str, route: str) -> ClientResponse:
        body = {"model": RAW_MODEL, "input": "a", "previous_response_id": "resp_1"} if "responses" in route else {}
        url, sent = served.url + route.format(id=conversation), body if method == "POST" else None
        async with served.http.request(method, url, json=sent) as response:
            await response.read()
            return response

    async with elbowroom_with_studio(tmp_path) as (served, _):
        served.app[SHARED].store.patience = Patience(opening=0.01, asking=0.01)
        with blocked(monkeypatch):
            for method, route in ROUTES:
                response = await tell(served, method, route)
                assert (response.status, response.headers.get("Retry-After")) == (503, "2"), route
                told = (await response.json())["error"]
                assert (told["code"], told["message"]) == ("store_opening", OPENING)
        served.app[SHARED].store.patience = Patience()
        assert [(await tell(served, method, route)).status for method, route in ROUTES[:3]] == [200, 200, 200]
        assert (await tell(served, *ROUTES[8])).status == 200
        assert (await tell(served, *ROUTES[2])).status == 404


async def test_a_store_that_cannot_be_opened_is_not_waited_for(tmp_path: Path) -> None:
    """Then what was said since the start is all that can be told, and it is told at once."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        store = served.app[SHARED].store
        store._begin = _fails
        studio.enqueue("One.")
        conversation, _ = await ask(served, HISTORY[:1])
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            assert [row["id"] for row in (await response.json())["data"]] == [conversation]


async def _fails() -> SqlStore:
    raise StoreUnavailable("there is no room for a database")


@pytest.mark.fault("store opens late", "first", "the first words wait for it")
async def test_the_first_words_wait_until_they_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after a start nothing is shown that is not written in time: the file is opened while the model begins."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.")
        with blocked(monkeypatch) as waiting:
            asking = asyncio.create_task(ask(served, HISTORY[:1]))
            await eventually(waiting, "the store is not opened")
            await eventually(lambda: studio.chats and not studio.open_requests, "the model has not answered")
            done, _ = await asyncio.wait([asking], timeout=0.1)
            assert not done
        await asking
        store = served.app[SHARED].store
        await eventually(lambda: store.lag == 0.0, "what was shown is not written soon")
