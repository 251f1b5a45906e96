"""A whole elbowroom on PostgreSQL: what was said is there after a restart, and a database that is down stops nobody."""

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, eventually
from command_line import run
from examined import examined
from patient_counting import wait_for_counts
from postgresql import PostgreSQL, new_place, own_folder, shared_server
from read_conversations import conversations_of
from scripted_pruner import is_prune_order, valid_plan
from serving import Served, parse_frames, serve, settings_for, text_of
from small_window import ANSWER, ask_whole, history

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel
from elbowroom.server.state import SHARED
from elbowroom.store.write_behind import Patience

PASSWORD = "open-sesame-7f3a"
UNREACHABLE = "its database server cannot be reached"
NAMED = {"X-Conversation-Id": "ferry"}


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def says(body: dict[str, Any]) -> Script | str:
    """Answer an order of a compaction, and all else with one sentence."""
    return valid_plan(body) if is_prune_order(body) else ANSWER


@asynccontextmanager
async def serving(folder: Path, url: str, environ: dict[str, str] | None = None) -> AsyncIterator[Served]:
    """Run elbowroom with a small window and its store at this address."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=1000)], on_request=says) as studio:
        settings = settings_for(studio.base_url, agents=f'{AGENT}\n[store]\nurl = "{url}"\n')
        async with serve(folder, settings, environ=environ) as served:
            yield served
            await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")


async def ask(served: Served, messages: list[dict[str, Any]]) -> bytes:
    """Ask the agent for a stream in the named conversation."""
    body = {"model": "writer", "messages": messages, "stream": True}
    async with served.http.post(served.chat_url, json=body, headers=NAMED) as response:
        assert response.status == 200
        return await response.read()


async def shown(served: Served, path: str) -> Any:
    """Return what a route of conversations shows."""
    async with served.http.get(f"{served.url}/v1/conversations{path}") as response:
        assert response.status == 200, await response.text()
        return await response.json()


def files_in(folder: Path) -> dict[str, str]:
    """Return what is written in each file of a folder and those in it."""
    return {str(path): path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
async def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Chat, compaction and search; the next server has the same conversation, and no file of a database is made."""
    async with new_place() as place:
        async with serving(tmp_path, place.address) as served:
            await ask(served, history(12))
            assert await conversations_of(served).settled()
            before = await shown(served, "/ferry")
            assert before["compactions"]
            [found] = (await shown(served, "?q=ninth%20PIER"))["data"]
            assert found["id"] == before["id"]
        async with serving(tmp_path, place.address) as served:
            assert await shown(served, "/ferry") == before
            told = (await shown(served, "/ferry/messages?limit=200"))["data"]
            answered = {"role": "assistant", "content": ANSWER}
            await ask(served, [*history(12), answered, {"role": "user", "content": "When?"}])
            assert await conversations_of(served).settled()
            after = (await shown(served, "/ferry/messages?limit=200"))["data"]
            assert after[: len(told)] == told
            assert len(after) == len(told) + 2
            assert len((await shown(served, "?q=when"))["data"]) == 1
    assert not any("elbowroom.db" in name for name in files_in(tmp_path))


@pytest.mark.slow
@pytest.mark.fault("PostgreSQL gone", ("first",), "answered; its words are written later")
async def test_a_database_that_is_down_at_the_start(tmp_path: Path) -> None:
    """Chats are answered from memory and say so once; what was said is written once the server is there."""
    with own_folder() as folder:
        server = PostgreSQL(folder)
        server.make()
        async with serving(tmp_path, server.address("postgres")) as served:
            served.app[SHARED].store.patience = Patience(asking=60.0, again=0.05)
            await served.app[SHARED].store.ledger.keys()  # until it has been tried
            stream = await ask(served, [{"role": "user", "content": "Before."}])
            assert text_of(parse_frames(stream)).endswith(ANSWER)
            assert UNREACHABLE in stream.decode()
            assert (await shown(served, "/ferry"))["id"]
            server.start()
            try:
                conversations = conversations_of(served)
                for _ in range(200):
                    await served.app[SHARED].store.ledger.keys()
                    if await conversations.settled():
                        break
                kept = "SELECT count(*) FROM message_parts WHERE content LIKE '%Before.%'"
                assert server.ask(kept) == [(1,)]
            finally:
                await served.app[SHARED].store.aclose()
                server.stop("immediate")


@pytest.mark.slow
async def test_what_a_database_that_is_down_may_keep_is_not_called_unknown(tmp_path: Path) -> None:
    """Lists and what is not in memory are answered with 503 and when to ask again, and as ever once it is there."""
    unknown = ("/conversations/gone", "/responses/resp_0123456789abcdef01234567", "/tool_outputs/out_0123456789abcdef")
    with own_folder() as folder:
        server = PostgreSQL(folder)
        server.make()
        async with serving(tmp_path, server.address("postgres")) as served:
            served.app[SHARED].store.patience = Patience(asking=60.0, again=0.05)
            await ask(served, [{"role": "user", "content": "Before."}])
            paths = (
                "/v1/conversations",
                "/v1/conversations?q=word",
                "/api/memories",
                *(f"/v1{path}" for path in unknown),
            )
            for path in paths:
                async with served.http.get(f"{served.url}{path}") as response:
                    error = (await response.json())["error"]
                    assert (response.status, error["code"]) == (503, "store_unreachable"), path
                    assert int(response.headers["Retry-After"]) > 0
            assert (await shown(served, "/ferry"))["id"]
            server.start()
            try:
                for _ in range(200):
                    await served.app[SHARED].store.ledger.keys()
                    if await conversations_of(served).settled():
                        break
                for path in paths:
                    async with served.http.get(f"{served.url}{path}") as response:
                        assert response.status == (404 if path.removeprefix("/v1") in unknown else 200), path
            finally:
                await served.app[SHARED].store.aclose()
                server.stop("immediate")


async def test_a_refused_password_is_told_everywhere_and_shown_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Doctor and chat say that the server refuses it; `config check` takes it; no page, log or metric has it."""
    caplog.set_level(logging.DEBUG)
    server, user = shared_server(), f"guest_{os.getpid()}"
    rules = Path(server.data) / "pg_hba.conf"
    written = rules.read_text()
    server.ask(f"CREATE ROLE {user} LOGIN PASSWORD 'another'")
    rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{written}")
    server.ask("SELECT pg_reload_conf()")
    url, environ = server.address("postgres", f"{user}:env:DATABASE_PASSWORD"), {"DATABASE_PASSWORD": PASSWORD}
    try:
        async with serving(tmp_path, url, environ) as served:
            await served.app[SHARED].store.ledger.keys()  # until it has been tried
            said = [(await ask(served, [{"role": "user", "content": "Before."}])).decode()]
            assert "refuses the user's name or password" in said[0]
            for path in ("/metrics", "/api/doctor", "/api/settings", "/api/logs", "/health", "/v1/conversations"):
                async with served.http.get(f"{served.url}{path}") as response:
                    said.append(await response.text())
            status, body = await ask_whole(served, {"model": "writer", "messages": [{"role": "user", "content": "Hi"}]})
            assert status == 200
            findings = await examined(tmp_path, served.settings.read_text(), environ=environ)
        [judged] = [found for found in findings if found.check == "database"]
        assert judged.severity == "fail"
        assert "password authentication failed" in judged.what
        done = run(tmp_path, "config", "check", "--config", str(tmp_path / "settings.toml"), **environ)
        assert done.returncode == 0
        said += [json.dumps(body), str(findings), caplog.text, done.stdout, done.stderr]
        said += files_in(tmp_path).values()
        assert not [text for text in said if PASSWORD in text]
    finally:
        rules.write_text(written)
        server.ask("SELECT pg_reload_conf()")
        server.ask(f"DROP ROLE {user}")
