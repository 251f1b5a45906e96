"""Other programs search, recall and read a person's conversations by the Model Context Protocol, and change nothing."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from chatting import AGENT_WITHOUT_CACHE, RAW_MODEL
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent
from serving import Served, serve, settings_for
from small_window import Message, history, small_window

from elbowroom.errors import ElbowroomError
from elbowroom.status.asking import Place
from elbowroom.status.mcp import called as call_there

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


SECRET = "The harbour office keeps the spare key in locker K-4417-QX, behind the blue tarpaulin."
TOKEN = "a-token-of-the-tests"


def with_secret() -> list[Message]:
    """Return a history whose first answer says something that no summary keeps."""
    messages = history(34)
    messages[2] = {"role": "assistant", "content": SECRET}
    return messages


async def chatted(served: Served, user: str = "", **headers: str) -> None:
    """Have a conversation that is compacted on the way."""
    told = {"X-Conversation-Id": "ferry", **({"X-Elbowroom-User": user} if user else {}), **headers}
    body = {"model": RAW_MODEL, "messages": with_secret()}
    async with served.http.post(served.chat_url, json=body, headers=told) as response:
        assert response.status == 200


@asynccontextmanager
async def by_http(served: Served, **headers: str) -> AsyncIterator[ClientSession]:
    """Speak the protocol over HTTP with the official client."""
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        streamable_http_client(f"{served.url}/mcp", http_client=http) as (reading, writing, *_),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def by_pipes(served: Served) -> AsyncIterator[ClientSession]:
    """Speak the protocol with `elbowroom mcp`, by the official client."""
    arguments = ["-m", "elbowroom", "mcp", "--config", str(served.settings), "--port", str(served.port)]
    environ = {**os.environ, "ELBOWROOM_TOKEN": os.environ.get("ELBOWROOM_TOKEN", "")}
    program = StdioServerParameters(command=sys.executable, args=arguments, env=environ)
    async with stdio_client(program) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        yield session


async def called(session: ClientSession, name: str, **arguments: Any) -> str:
    """Return the text of a call's result."""
    result = await session.call_tool(name, arguments)
    [content] = result.content
    assert isinstance(content, TextContent)
    return f"{'Error: ' if result.is_error else ''}{content.text}"


async def check(session: ClientSession) -> None:
    """Search, recall and read as a program would that knows nothing yet."""
    tools = (await session.list_tools()).tools
    assert [tool.name for tool in tools] == ["search_conversations", "recall", "read_conversation"]
    assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
    found = await called(session, "search_conversations", query="blue tarpaulin")
    conversation = found.split("[conversation ")[1].split(",")[0]
    assert SECRET in found
    assert SECRET in await called(session, "search_conversations", query="tarpaulin locker office")
    assert SECRET in await called(session, "recall", conversation=conversation, query="spare keys")
    assert SECRET in await called(session, "read_conversation", conversation="ferry", message=3, limit=1)
    assert "crossing 33" in await called(session, "read_conversation", conversation=conversation)
    assert (await called(session, "recall", conversation="none", query="x")).startswith("Error: There is no")
    assert (await called(session, "recall", query="x")).startswith("Error: ")
    assert (await called(session, "delete_conversation")).startswith("Error: There is no tool")


async def test_by_http(tmp_path: Path) -> None:
    """The official client finds, recalls and reads what was said, and gets words for what is wrong."""
    async with small_window(tmp_path, window=4096, agents=AGENT_WITHOUT_CACHE) as (served, _):
        await chatted(served)
        async with by_http(served) as session:
            await check(session)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_by_pipes(tmp_path: Path) -> None:
    """`elbowroom mcp` does the same on standard input and output."""
    async with small_window(tmp_path, window=4096, agents=AGENT_WITHOUT_CACHE) as (served, _):
        await chatted(served)
        async with by_pipes(served) as session:
            await check(session)


def test_where_no_server_runs() -> None:
    """What `elbowroom mcp` returns for a call says what to do."""
    with pytest.raises(ElbowroomError, match="Start it with"):
        call_there(Place("127.0.0.1", 9), "search_conversations", {})


async def test_whose_conversations(tmp_path: Path) -> None:
    """A person finds their own conversations alone, and nothing of a temporary chat."""
    async with small_window(tmp_path, window=4096, agents=AGENT_WITHOUT_CACHE) as (served, _):
        await chatted(served, user="ana")
        await chatted(served, **{"X-Elbowroom-Temporary": "1"})
        async with by_http(served, **{"X-Elbowroom-User": "ana"}) as session:
            assert SECRET in await called(session, "search_conversations", query="tarpaulin")
        async with by_http(served, **{"X-Elbowroom-User": "ben"}) as session:
            assert SECRET not in await called(session, "search_conversations", query="tarpaulin")
            assert "There is no" in await called(session, "read_conversation", conversation="ferry")


async def test_the_token_is_asked_for(tmp_path: Path) -> None:
    """Without the token nothing is answered, as everywhere; and pages of other sites are refused."""
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    settings = settings_for("http://127.0.0.1:9", server='token = "env:ELBOWROOM_TEST_TOKEN"')
    async with serve(tmp_path, settings, environ={"ELBOWROOM_TEST_TOKEN": TOKEN}) as served:
        for path in ("/mcp", "/api/recall/search_conversations"):
            async with served.http.post(f"{served.url}{path}", json=ask, headers=accept) as response:
                assert response.status == 401
        told = {"Authorization": f"Bearer {TOKEN}"}
        async with by_http(served, **told) as session:
            assert (await session.list_tools()).tools
        evil = {**accept, **told, "Origin": "https://evil.example"}
        async with served.http.post(f"{served.url}/mcp", json=ask, headers=evil) as response:
            assert response.status == 403
