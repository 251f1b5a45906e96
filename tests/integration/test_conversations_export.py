"""`/v1/conversations/{id}/export`: a conversation as a file, however long, odd, or slowly read it is."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from chatting import eventually
from kept_conversations import BEGUN
from noted_conversations import Noted, milk
from serving import Served, serve, settings_for

from elbowroom.server.state import SHARED, Timing
from elbowroom.store.questions import Conversations

NOBODY = "http://127.0.0.1:9"
IN_MEMORY = '[store]\nurl = "sqlite+aiosqlite:///:memory:"'
FOR_EVER = "[store]\nretention_days = 0"
FIRST = f"conv_{1:024x}"
LONG = "conv_long"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom with nothing upstream; who does not read is cut off soon."""
    async with serve(tmp_path, settings_for(NOBODY, agents=IN_MEMORY), timing=Timing(write=0.3)) as served:
        yield served


def store_of(served: Served) -> Conversations:
    """Return where its conversations are kept."""
    return served.app[SHARED].store.conversations


def export_url(served: Served, conversation: str = FIRST, form: str = "json") -> str:
    """Return the address of an export."""
    return f"{served.url}/v1/conversations/{conversation}/export?format={form}"


async def test_json(served: Served) -> None:
    """Everything is in it: all branches, to the letter, and which of them is the latest."""
    await milk(store_of(served), name="chat-7")
    async with served.http.get(export_url(served)) as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        exported = await response.json()
    async with served.http.get(f"{served.url}/v1/conversations/{FIRST}") as response:
        shown = await response.json()
    async with served.http.get(f"{served.url}/v1/conversations/{FIRST}/messages?branch=all") as response:
        messages = (await response.json())["data"]
    assert exported["object"] == "conversation.export"
    assert exported["version"] == 1
    assert {**exported["conversation"], "compactions": exported["compactions"]} == {
        key: value for key, value in shown.items() if key not in ("message_count", "queue_length", "works_ahead")
    }
    assert exported["messages"] == messages
    assert exported["latest"] == [messages[0]["id"], messages[4]["id"]]
    assert exported["branch_ends"] == [messages[3]["id"], messages[4]["id"]]


async def test_json_without_a_format(served: Served) -> None:
    """JSON is what is answered where no format is named."""
    await milk(store_of(served))
    async with served.http.get(f"{served.url}/v1/conversations/{FIRST}/export") as response:
        assert response.content_type == "application/json"


async def test_markdown(served: Served) -> None:
    """It can be read: title, the latest branch, and that its answer was interrupted."""
    await milk(store_of(served))
    async with served.http.get(export_url(served, form="markdown")) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/markdown; charset=utf-8"
        text = await response.text()
    assert text.startswith("# What is in list 1?\n")
    assert "- Messages: 2 of 5; the others are in other branches\n" in text
    assert re.findall("^##.*|^>.*", text, re.MULTILINE) == [
        "## 1. User",
        "> What is in list 1?",
        "## 2. writer (interrupted)",
        "> Milk and bread",
    ]


@pytest.mark.parametrize("form", ["json", "markdown"])
@pytest.mark.parametrize("content", ["\ud800 half \udc00", "NUL \0", "\u2028", "", "🥛" * 1000, "\r"])
async def test_odd_texts(served: Served, content: str, form: str) -> None:
    """Whatever was said, the file is UTF-8; JSON gives it back to the letter."""
    noted = Noted(store_of(served), FIRST).begin()
    noted.ask(content)
    await noted.keep()
    async with served.http.get(export_url(served, form=form)) as response:
        text = (await response.read()).decode()
    if form == "json":
        assert [kept["message"]["content"] for kept in json.loads(text)["messages"]] == [content]
    else:
        assert "## 1. User" in text


@pytest.mark.parametrize(
    ("asked", "ascii_name", "name"),
    [
        ("What is in my list?", "2025-10-09 What is in my list", "2025-10-09 What is in my list"),
        ("Übung für Zoë", "2025-10-09 Ubung fur Zoe", "2025-10-09 Übung für Zoë"),
        ("牛奶 ☕", f"2025-10-09 {FIRST}", "2025-10-09 牛奶"),
        ("../../etc/passwd", "2025-10-09 etc passwd", "2025-10-09 etc passwd"),
        ('a"; filename=evil.exe\r\nX: y', "2025-10-09 a filename evil exe X y", "2025-10-09 a filename evil exe X y"),
        ("☕", f"2025-10-09 {FIRST}", f"2025-10-09 {FIRST}"),
        ("\ud800", f"2025-10-09 {FIRST}", f"2025-10-09 {FIRST}"),
        ("  CON", "2025-10-09 CON", "2025-10-09 CON"),
    ],
)
async def test_name_of_the_file(served: Served, asked: str, ascii_name: str, name: str) -> None:
    """It is saved under a name that every system takes, in ASCII for programs that read no more."""
    noted = Noted(store_of(served), FIRST).begin()
    noted.ask(asked)
    await noted.keep()
    async with served.http.get(export_url(served, form="markdown")) as response:
        header = response.headers["Content-Disposition"]
    assert header.isascii()
    found = re.fullmatch(r'attachment; filename="([^"]*)"; filename\*=UTF-8\'\'([\w.%-]*)', header)
    assert found
    assert (found[1], unquote(found[2])) == (f"{ascii_name}.md", f"{name}.md")


async def test_long_titles_are_cut(served: Served) -> None:
    """No file system refuses the name for its length."""
    noted = Noted(store_of(served), FIRST).begin()
    noted.ask("牛" * 500)
    await noted.keep()
    async with served.http.get(export_url(served)) as response:
        name = unquote(response.headers["Content-Disposition"].rpartition("''")[2])
    assert len(name.encode()) <= 255
    assert name.startswith("2025-10-09 牛牛牛")


async def test_heads_alone(served: Served) -> None:
    """HEAD gives the headers without the file, and the connection can be used on."""
    await milk(store_of(served))
    for _ in range(2):
        async with served.http.head(export_url(served)) as response:
            assert response.status == 200
            assert response.headers["Content-Disposition"].startswith("attachment;")
            assert await response.read() == b""
    async with served.http.get(f"{served.url}/health") as response:
        assert response.status == 200


async def long_conversation(served: Served, exchanges: int, words: int = 1) -> None:
    """Keep one with two messages for each exchange."""
    noted = Noted(store_of(served), LONG, at=BEGUN).begin()
    for number in range(exchanges):
        noted.ask(f"Question {number}?")
        noted.answer(f"Answer {number}. " * words)
    await noted.keep()


EXPORTS = ["/export?format=json", "/export?format=markdown"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exchanges", "paths"),
    [(700, EXPORTS), pytest.param(6000, [*EXPORTS, "/messages?branch=latest"], marks=pytest.mark.long)],
    ids=["some", "many"],
)
async def test_a_long_conversation_holds_nobody_up(tmp_path: Path, exchanges: int, paths: list[str]) -> None:
    """While many messages are read from the file, others are answered, again and again."""
    answered = 0

    async def ask_for_health(served: Served) -> None:
        nonlocal answered
        while True:
            async with served.http.get(f"{served.url}/health") as response:
                assert response.status == 200
            answered += 1

    async with serve(tmp_path, settings_for(NOBODY, agents=FOR_EVER)) as served, asyncio.TaskGroup() as group:
        await long_conversation(served, exchanges)
        asking = group.create_task(ask_for_health(served))
        for path in paths:
            before = answered
            async with served.http.get(f"{served.url}/v1/conversations/{LONG}{path}") as response:
                assert response.status == 200
                await response.read()
            assert answered - before >= 3, path
        asking.cancel()


@pytest.mark.slow
async def test_a_client_that_stops_reading(served: Served) -> None:
    """It is cut off instead of being waited for, and what it did not get does not look whole."""
    await long_conversation(served, 100, words=20_000)
    request = f"GET /v1/conversations/{LONG}/export HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
    writer.write(request.encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert connections()
    await eventually(lambda: not connections(), "the export is waited for", seconds=20)
    received = b""
    with suppress(ConnectionResetError):
        while more := await reader.read(2**20):
            received += more
    assert not received.endswith(b"0\r\n\r\n")
    writer.close()


def connections() -> list[asyncio.Task[Any]]:
    """Return the tasks that serve a connection each."""
    coroutines = ((task, task.get_coro()) for task in asyncio.all_tasks())
    return [task for task, coroutine in coroutines if getattr(coroutine, "__qualname__", "") == "RequestHandler.start"]
