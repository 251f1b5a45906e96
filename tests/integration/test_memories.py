"""What agents remember, as people list and delete it: over HTTP and on the command line."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from chatting import AGENT, chat_body, elbowroom_with_studio, stream_bytes
from command_line import run
from serving import Served, serve, settings_for

from elbowroom.demo import Script, SimulatedLMStudio, ToolCall
from elbowroom.server.state import SHARED

REMEMBERS = f"""{AGENT}tools = ["save_memory", "search_memory"]
[[agents]]
id = "critic"
model = "qwen2.5-7b-instruct"
[memory]
enabled = true
"""
PLANTS, HARBOUR = "The plants are watered on Mondays.", "The user lives by the harbour."


@asynccontextmanager
async def remembering(folder: Path) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both, with two memories of one agent and one of another, and one of a user with a name."""
    async with elbowroom_with_studio(folder, agents=REMEMBERS) as (served, studio):
        memories = served.app[SHARED].store.memories
        await memories.save("", "writer", PLANTS, 1_700_000_000)
        await memories.save("", "writer", HARBOUR, 1_800_000_000)
        await memories.save("", "critic", "The user likes short\nsentences.", 1_750_000_000)
        await memories.save("ada", "writer", "Ada rows.", 1_750_000_000)
        yield served, studio


async def listed(served: Served, query: str = "", **headers: str) -> list[dict[str, Any]]:
    """Return the memories that the route lists."""
    async with served.http.get(f"{served.url}/api/memories{query}", headers=headers) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        assert answer["object"] == "list"
        data: list[dict[str, Any]] = answer["data"]
        return data


async def deleted(served: Served, memory_id: str, query: str = "", **headers: str) -> int:
    """Ask for a memory to be deleted and return the status."""
    url = f"{served.url}/api/memories/{memory_id}{query}"
    async with served.http.delete(url, headers=headers) as response:
        answer = await response.json()
        if response.status == 200:
            assert answer == {"id": memory_id, "object": "memory.deleted", "deleted": True}
        return response.status


async def test_memories_are_listed(tmp_path: Path) -> None:
    """All agents of the settings, or the one that is named, the newest first; only the caller's own."""
    async with remembering(tmp_path) as (served, _):
        rows = await listed(served)
        assert [(row["agent"], row["text"]) for row in rows] == [
            ("writer", HARBOUR),
            ("critic", "The user likes short\nsentences."),
            ("writer", PLANTS),
        ]
        assert rows[0] == {**rows[0], "object": "memory", "saved": 1_800_000_000}
        assert [row["text"] for row in await listed(served, "?agent=writer")] == [HARBOUR, PLANTS]
        assert [row["text"] for row in await listed(served, **{"X-Elbowroom-User": "ada"})] == ["Ada rows."]


async def test_a_memory_is_deleted(tmp_path: Path) -> None:
    """It is gone at once, a second time there is none, and nobody deletes what another has."""
    async with remembering(tmp_path) as (served, _):
        [first, second, _] = await listed(served)
        [of_ada] = await listed(served, **{"X-Elbowroom-User": "ada"})
    async with serve(tmp_path, (tmp_path / "settings.toml").read_text()) as served:
        assert await deleted(served, of_ada["id"]) == 404
        assert await deleted(served, first["id"], "?agent=critic") == 404
        assert await deleted(served, first["id"]) == 200
        assert await deleted(served, first["id"]) == 404
        assert await deleted(served, second["id"], "?agent=critic") == 200
        assert [row["text"] for row in await listed(served)] == [PLANTS]
        assert await listed(served, **{"X-Elbowroom-User": "ada"}) == [of_ada]


async def test_memories_of_an_agent_that_was_removed(tmp_path: Path) -> None:
    """Who names the agent still finds and deletes what it has left."""
    async with remembering(tmp_path) as (served, _):
        async with served.http.delete(f"{served.url}/api/agents/critic") as response:
            assert response.status == 204
        assert {row["agent"] for row in await listed(served)} == {"writer"}
        [left] = await listed(served, "?agent=critic")
        assert await deleted(served, left["id"], "?agent=critic") == 200


async def test_what_is_deleted_is_no_longer_told(tmp_path: Path) -> None:
    """The model does not read it any more in the next answer of the same conversation."""
    async with remembering(tmp_path) as (served, studio):
        body = chat_body("Hello")
        studio.enqueue("Hi.", "Yes.")
        await stream_bytes(served, body)
        assert HARBOUR in str(studio.chats[-1].body["messages"])
        [found] = [row for row in await listed(served) if row["text"] == HARBOUR]
        assert await deleted(served, found["id"]) == 200
        said = [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Are you there?"}]
        await stream_bytes(served, {**body, "messages": [*body["messages"], *said]})
        assert HARBOUR not in str(studio.chats[-1].body["messages"])
        assert PLANTS in str(studio.chats[-1].body["messages"])


async def test_pages_of_others_and_unnamed_users_are_refused(tmp_path: Path) -> None:
    """A web page from elsewhere sees and deletes nothing; nor does a caller without name among several users."""
    async with remembering(tmp_path) as (served, _):
        [row, *_] = await listed(served)
        from_elsewhere = {"Origin": "http://localhost:1"}
        async with served.http.get(f"{served.url}/api/memories", headers=from_elsewhere) as response:
            assert response.status == 403
        assert await deleted(served, row["id"], **from_elsewhere) == 403
        await listed(served, **{"X-Elbowroom-User": "ada"})
        assert await deleted(served, row["id"]) == 403


async def command(folder: Path, *arguments: str, port: int = 1, **variables: str) -> tuple[int, str, str]:
    """Run the command with the settings and the data of a folder; return exit code, output and errors."""
    place = ["--config", str(folder / "settings.toml"), "--port", str(port)]
    words = [*arguments[:1], *place, *arguments[1:]]
    variables = {"ELBOWROOM_DATA_DIR": str(folder), "PYTHONUTF8": "1", **variables}
    done = await asyncio.to_thread(run, folder, "memories", *words, **variables)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
async def test_the_command(tmp_path: Path, is_running: bool) -> None:
    """It lists and deletes while the server runs, and in the store itself while none does."""
    async with remembering(tmp_path) as (served, _):
        if is_running:
            await list_and_delete(tmp_path, served.port)
    if not is_running:
        await list_and_delete(tmp_path, 1)
    async with serve(tmp_path, (tmp_path / "settings.toml").read_text()) as served:
        assert [row["text"] for row in await listed(served, "?agent=writer")] == [PLANTS]


async def list_and_delete(folder: Path, port: int) -> None:
    """List all, those of one agent and those of a user, and delete one."""
    code, told, errors = await command(folder, "list", port=port)
    assert (code, errors) == (0, "")
    first, second, third = told.splitlines()
    memory_id = first.split()[0]
    assert first == f"{memory_id}  writer  2027-01-15  {HARBOUR}"
    assert second.endswith("  critic  2025-06-15  The user likes short sentences.")
    assert third.endswith(f"  writer  2023-11-14  {PLANTS}")
    assert (await command(folder, "list", "--agent", "critic", port=port))[1] == f"{second}\n"
    code, told, _ = await command(folder, "list", "--json", port=port)
    assert json.loads(told.splitlines()[0])["text"] == HARBOUR
    assert await command(folder, "delete", memory_id, port=port) == (0, "Deleted.\n", "")
    code, told, errors = await command(folder, "delete", memory_id, port=port)
    assert (code, told) == (1, "")
    assert errors.startswith(f"elbowroom: There is no memory '{memory_id}'. `elbowroom memories list` shows")
    assert (await command(folder, "list", "--user", "ada", port=port))[1].endswith("  Ada rows.\n")


async def test_the_command_without_a_database(tmp_path: Path) -> None:
    """Nothing is remembered where nothing was ever kept, and no database is made for the question."""
    (tmp_path / "settings.toml").write_text(settings_for("http://127.0.0.1:9", agents=REMEMBERS))
    assert await command(tmp_path, "list") == (0, "", "Nothing is remembered.\n")
    code, _, errors = await command(tmp_path, "delete", "k3vx9dqmaz2h")
    assert (code, "There is no memory 'k3vx9dqmaz2h'" in errors) == (1, True)
    assert not [name for name in os.listdir(tmp_path) if ".db" in name]


async def test_a_memory_that_an_agent_has_saved(tmp_path: Path) -> None:
    """What the model saves with its tool stands in the list."""
    async with elbowroom_with_studio(tmp_path, agents=REMEMBERS) as (served, studio):
        studio.enqueue(Script(ToolCall("save_memory", {"text": PLANTS})), "Done.")
        await stream_bytes(served, chat_body())
        assert [row["text"] for row in await listed(served)] == [PLANTS]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"error": "Unexpected endpoint or method. (GET /api/memories)"}),
        (404, {"error": "not found"}),
        (200, {"data": None}),
        (200, {"object": "list", "data": None}),
        (200, []),
    ],
)
async def test_another_program_at_the_port_is_told(tmp_path: Path, status: int, body: Any) -> None:
    """LM Studio answers whatever it does not know with 200: nothing is said to be deleted or not remembered there."""
    (tmp_path / "settings.toml").write_text(settings_for("http://127.0.0.1:9", agents=REMEMBERS))

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as other:
        for words in (["list"], ["delete", "k3vx9dqmaz2h"]):
            code, told, errors = await command(tmp_path, *words, port=other.port or 0)
            assert (code, told) == (1, "")
            address = f"http://127.0.0.1:{other.port}"
            assert errors == f"elbowroom: What listens at {address} is no elbowroom. Choose its port with --port.\n"


async def test_a_server_with_another_token_is_told(tmp_path: Path) -> None:
    """The sentence says what to name, as that of `elbowroom status` does."""
    settings = settings_for("http://127.0.0.1:9", agents=REMEMBERS, server='token = "env:THEIRS"')
    async with serve(tmp_path, settings, environ={"THEIRS": "secret"}) as served:
        code, _, errors = await command(tmp_path, "list", port=served.port, THEIRS="another")
    assert code == 1
    assert "asks for another token than these settings have" in errors


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
async def test_names_that_cannot_be_sent_are_refused(tmp_path: Path, is_running: bool) -> None:
    """What is no text, or several lines, is told in a sentence, whether the server runs or not."""
    async with remembering(tmp_path) as (served, _):
        port = served.port if is_running else 1
        for words in (["list", "--agent", os.fsdecode(b"\xff")], ["delete", "a\nb"]):
            code, told, errors = await command(tmp_path, *words, port=port)
            assert (code, told) == (1, "")
            assert "has to be a name in one line." in errors


async def test_a_memory_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Control characters that a model was talked into saving are shown escaped; as JSON they are escaped anyway."""
    async with remembering(tmp_path) as (served, _):
        await served.app[SHARED].store.memories.save("eve", "writer", "Look:\x1b]0;owned\x07\x1b[2J \u202eback", 1)
        _, told, _ = await command(tmp_path, "list", "--user", "eve", port=served.port)
        assert told.endswith("  Look:\\x1b]0;owned\\x07\\x1b[2J \\u202eback\n")
