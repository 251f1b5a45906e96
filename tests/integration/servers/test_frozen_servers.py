"""A server stands still, as a machine does that sleeps: others go on with what it did, and it does nothing of it."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import eventually
from postgresql import shared_server
from scripted_pruner import is_prune_order, valid_plan
from server_processes import BEARER, OneServer, server_processes
from several_servers import MODEL

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor

Body = dict[str, Any]
GONE_SECONDS = 15.0
AGENT = f'[[agents]]\nid = "writer"\nmodel = "{MODEL}"\n[compaction]\nbackground = false\n'
NAMED = {"X-Conversation-Id": "heron"}


async def say(server: OneServer, messages: list[Body]) -> tuple[int, str]:
    """Ask for an answer that streams; return the status, and all that came."""
    body = {"model": "writer", "messages": messages, "stream": True}
    async with aiohttp.ClientSession(headers=BEARER | NAMED) as http:
        async with http.post(f"{server.url}/v1/chat/completions", json=body) as answer:
            return answer.status, (await answer.read()).decode()


async def until_dead(address: str) -> None:
    """Wait until a server has not said for ten seconds that it is there."""
    old = "SELECT 1 FROM servers WHERE renewed < extract(epoch FROM clock_timestamp()) - 10.5"
    await eventually(lambda: bool(shared_server().ask(old, address.rpartition("/")[2])), "it counts as dead")


@pytest.mark.timeout(120)
async def test_who_compacts_and_stands_still_is_not_waited_for(tmp_path: Path) -> None:
    """Another server compacts the same conversation within 15 s, and its compaction stays when the first one wakes."""
    held = asyncio.Event()
    orders: list[Body] = []

    def says(body: Body) -> Script | str:
        if not is_prune_order(body):
            return "Well."
        orders.append(body)
        return Script(WaitFor(held), valid_plan(body)) if len(orders) == 1 else valid_plan(body)

    history = [
        {"role": role, "content": f"Part {number}: " + "herons stand in the shallows and wait. " * 18}
        for number in range(10)
        for role in ("user", "assistant")
    ]
    question = [*history, {"role": "user", "content": "And now?"}]
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=2048)], on_request=says) as studio:
        async with server_processes(tmp_path, 2, {"lmstudio": studio.base_url}, more=AGENT) as ([one, other], address):
            asking = asyncio.create_task(say(one, question))
            await eventually(lambda: len(orders) == 1, "it compacts")
            one.freeze()
            began = time.monotonic()
            status, said = await say(other, question)
            assert (status, '"Well"' in said) == (200, True), said
            assert time.monotonic() - began < GONE_SECONDS
            entries = "SELECT key, messages FROM ledger_entries ORDER BY key"
            kept = shared_server().ask(entries, address.rpartition("/")[2])
            held.set()
            before = len(studio.chats)
            one.thaw()
            _, said = await asyncio.wait_for(asking, 30)
            assert "server_stood_still" in said
            assert len(studio.chats) == before
            assert set(kept) <= set(shared_server().ask(entries, address.rpartition("/")[2]))


@pytest.mark.timeout(120)
async def test_who_streams_and_stands_still_ends_when_it_wakes(tmp_path: Path) -> None:
    """What was said before is kept, nothing is said after, and a message that waited there goes to another one once."""
    held, queued = asyncio.Event(), "And the egrets?"
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        async with server_processes(tmp_path, 2, {"lmstudio": studio.base_url}, more=AGENT) as ([one, other], address):
            studio.enqueue(Script("Before. ", WaitFor(held), "After."), "Egrets.", "More egrets.")
            asking = asyncio.create_task(say(one, [{"role": "user", "content": "Herons?"}]))
            parts = "SELECT content FROM message_parts WHERE kind = 'text' AND content LIKE 'Before%'"
            database = address.rpartition("/")[2]
            await eventually(lambda: bool(shared_server().ask(parts, database)), "it streams")
            async with aiohttp.ClientSession(headers=BEARER) as http:
                path = f"{one.url}/v1/conversations/heron/queue"
                async with http.post(path, json={"content": queued}) as response:
                    assert response.status < 300
            one.freeze()
            await until_dead(address)
            await asyncio.sleep(0.1)
            status, _ = await say(
                other, [{"role": "user", "content": "Herons?"}, {"role": "user", "content": "Go on."}]
            )
            assert status == 200
            held.set()
            before = len(studio.chats)
            one.thaw()
            _, said = await asyncio.wait_for(asking, 30)
            assert "server_stood_still" in said
            assert "After." not in said
            assert len(studio.chats) == before
            assert sum(queued in str(chat.body["messages"]) for chat in studio.chats) == 1
