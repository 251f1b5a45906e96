"""Agents in the database: whoever changes one at any server changes it for all, with the next request."""

import asyncio
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from postgresql import new_place, shared_server
from serving import Served
from several_servers import MODEL, several_servers

from elbowroom.settings.live import LiveSettings
from elbowroom.settings.model import StoreSettings

IN_DATABASE = 'agents = "database"'


async def call(served: Served, method: str, path: str, status: int, body: Any = None) -> Any:
    """Return what a route answers with this status."""
    async with served.http.request(method, f"{served.url}{path}", json=body) as response:
        assert response.status == status, await response.text()
        return await response.json() if response.content_type == "application/json" else None


async def ids(served: Served) -> list[str]:
    """Return the ids of the agents of a server."""
    return [agent["id"] for agent in (await call(served, "GET", "/api/agents", 200))["data"]]


@pytest.mark.slow
async def test_an_agent_that_one_server_changes_all_have(tmp_path: Path) -> None:
    """Added, changed and removed at one, it is so at the other with its next request; no settings file changes."""
    async with several_servers(tmp_path, store=IN_DATABASE) as ((one, other), studio):
        files = [served.settings.read_bytes() for served in (one, other)]
        assert await ids(one) == await ids(other) == ["writer"]
        await call(one, "POST", "/api/agents", 201, {"id": "reader", "model": MODEL})
        studio.enqueue("From the reader.")
        answer = await other.chat("reader")
        assert answer["choices"][0]["message"]["content"] == "From the reader."
        await call(other, "PATCH", "/api/agents/reader", 200, {"instructions": "Be brief."})
        await one.chat("reader")
        assert "Be brief." in str(studio.chats[-1].body["messages"])
        await call(one, "PATCH", "/api/settings", 200, {"compaction": {"pruning_agent": "reader"}})
        refused = await call(one, "DELETE", "/api/agents/reader", 409)
        assert refused["error"]["code"] == "agent_in_use"
        await call(one, "PATCH", "/api/settings", 200, {"compaction": {"pruning_agent": None}})
        await call(other, "DELETE", "/api/agents/writer", 204)
        assert await ids(one) == await ids(other) == ["reader"]
        assert b"reader" not in one.settings.read_bytes()
        assert [b"writer" in served.settings.read_bytes() for served in (one, other)] == [True, True]
        assert other.settings.read_bytes() == files[1]


@pytest.mark.slow
async def test_changes_at_the_same_moment_are_all_made(tmp_path: Path) -> None:
    """Servers that add agents at once lose none of them."""
    async with several_servers(tmp_path, 3, store=IN_DATABASE) as (servers, _):
        added = [f"agent-{number}" for number in range(6)]
        rows = [{"id": name, "model": MODEL} for name in added]
        await asyncio.gather(
            *(call(servers[number % 3], "POST", "/api/agents", 201, row) for number, row in enumerate(rows))
        )
        for served in servers:
            assert sorted(await ids(served)) == [*added, "writer"]


async def test_without_the_database_the_last_agents_answer(tmp_path: Path) -> None:
    """Where it refuses, a server has the agents that it saw last, and says that none can be changed."""
    async with several_servers(tmp_path, 1, store=IN_DATABASE) as ((one,), studio):
        await call(one, "POST", "/api/agents", 201, {"id": "reader", "model": MODEL})
        url = tomllib.loads(one.settings.read_text())["store"]["url"]
        name = url.rpartition("/")[2]
        shared_server().ask("ALTER TABLE agent_list RENAME TO gone", name)
        studio.enqueue("Still here.")
        assert (await one.chat("reader"))["choices"][0]["message"]["content"] == "Still here."
        answer = await call(one, "DELETE", "/api/agents/reader", 500)
        assert answer["error"]["code"] == "settings_not_saved"
        shared_server().ask("ALTER TABLE gone RENAME TO agent_list", name)
        assert await ids(one) == ["writer", "reader"]


def test_a_file_cannot_keep_agents_for_several_servers(tmp_path: Path) -> None:
    """`store.agents = "database"` does not count without a PostgreSQL database: that is told, and nothing is kept."""
    path = tmp_path / "settings.toml"
    path.write_text(f"[store]\n{IN_DATABASE}\n")
    live = LiveSettings(path, {}, {})
    assert (live.started.store.agents, live.started.store.conversations) == (StoreSettings().agents, False)
    [(key, told)] = live.wrong
    assert key == "store.agents"
    assert re.search(r"store\.agents = 'database' is not accepted; it takes .*PostgreSQL", told)
    assert any(told in warning for warning in live.warnings)


@pytest.mark.slow
async def test_commands_say_where_the_agents_are(tmp_path: Path) -> None:
    """`config show` and `doctor` look at the settings file, and tell that others may be in force."""
    async with new_place() as place:
        settings = tmp_path / "settings.toml"
        nobody = '[[providers]]\nid = "lmstudio"\nkind = "lmstudio"\nbase_url = "http://127.0.0.1:9"\n'
        settings.write_text(f'[store]\nurl = "{place.address}"\nagents = "database"\n{nobody}')
        for command in (("config", "show"), ("doctor",)):
            told = await asyncio.to_thread(run, tmp_path, *command, "--config", str(settings))
            assert "The agents are in the database" in told.stdout + told.stderr, command
