"""PostgreSQL goes for a moment: nothing that was said is lost, and nobody notices for longer than it takes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from chatting import eventually
from cutting_relay import CuttingRelay, relayed
from postgresql import KEEPING, PostgreSQL, new_place, shared_server, started
from server_processes import BEARER, OneServer, server_processes
from serving import Served, serve, settings_for
from several_servers import AGENT, MODEL

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.state import SHARED
from elbowroom.store.place import ServerPlace
from elbowroom.store.write_behind import Patience

NAMED = {"X-Conversation-Id": "heron"}


@pytest.fixture
def own_place() -> Iterator[tuple[PostgreSQL, ServerPlace]]:
    """A server of its own, and a database on it."""
    with started(KEEPING) as server:
        yield server, ServerPlace(server.address(server.new_database()))


async def said_in(served: Served) -> str:
    """Return the last message of the conversation."""
    async with served.http.get(f"{served.url}/v1/conversations/heron/messages") as response:
        page = await response.json()
        assert response.status == 200, page
        text: str = page["data"][-1]["message"]["content"]
        return text


async def statuses(served: Served, path: str, is_over: asyncio.Event) -> AsyncIterator[tuple[float, int]]:
    """Ask again and again until it is over, with the time of each answer."""
    while not is_over.is_set():
        async with served.http.get(f"{served.url}{path}") as response:
            await response.read()
            yield time.monotonic(), response.status
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_a_restart_is_over_when_the_database_is_there(
    tmp_path: Path, own_place: tuple[PostgreSQL, ServerPlace]
) -> None:
    """Killed for a second while an answer streams: the server stays ready, lists are back at once, no word is lost."""
    server, place = own_place
    words = [f"w{number} " for number in range(300)]
    gates = [asyncio.Event() for _ in range(3)]
    parts: list[Any] = [
        part for number, gate in enumerate(gates) for part in (*words[number * 100 :][:100], WaitFor(gate))
    ]
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        settings = settings_for(studio.base_url, agents=f'{AGENT}\n[store]\nurl = "{place.address}"\n')
        async with serve(tmp_path, settings) as served:
            store = served.app[SHARED].store
            await store.ready(60.0)
            await eventually(lambda: store.servers.counts_for > 0, "it has said that it is there")
            studio.enqueue(Script(*parts))
            body = {"model": "writer", "messages": [{"role": "user", "content": "Say."}], "stream": True}
            is_over = asyncio.Event()

            async def asked(path: str) -> list[tuple[float, int]]:
                return [each async for each in statuses(served, path, is_over)]

            async with served.http.post(served.chat_url, json=body, headers=NAMED) as answer:
                watching = [asyncio.create_task(asked(path)) for path in ("/ready", "/v1/conversations")]
                await eventually(lambda: studio.open_requests == 1, "the model is asked")
                await asyncio.to_thread(server.stop, "immediate")
                gates[0].set()
                await asyncio.sleep(1.0)
                await asyncio.to_thread(server.start)
                back = time.monotonic()
                gates[1].set()
                gates[2].set()
                await answer.read()
            async with asyncio.timeout(20):
                while not await store.conversations.settled():  # noqa: ASYNC110  # which tries again each time
                    await asyncio.sleep(0.02)
            assert time.monotonic() - back < 5.0
            is_over.set()
            ready, lists = [await each for each in watching]
            assert {status for _, status in ready} == {200}
            refused = [at for at, status in lists if status != 200]
            assert refused
            assert max(refused) - back < 2.5
            assert {status for _, status in lists} == {200, 503}
            assert await said_in(served) == "".join(words).strip() or await said_in(served) == "".join(words)


@pytest.mark.slow
async def test_what_is_unwritten_outlives_a_kill(
    tmp_path: Path, own_place: tuple[PostgreSQL, ServerPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said while the database was gone by a server that was killed then: the next one in its folder writes it, once."""
    server, place = own_place
    words = "".join(f"word{number} " for number in range(200))
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        async with server_processes(tmp_path, 1, {"lmstudio": studio.base_url}, more=AGENT, address=place.address) as (
            [one],
            _,
        ):
            held = asyncio.Event()
            studio.enqueue(Script("Begun. ", WaitFor(held), words, WaitFor(asyncio.Event())))
            telling = asyncio.create_task(told(one))
            await eventually(lambda: studio.open_requests == 1, "the model is asked")
            await eventually(lambda: bool(server.ask("SELECT 1 FROM turns", place.address.rpartition("/")[2])), "begun")
            await asyncio.to_thread(server.stop, "immediate")
            held.set()
            folder = one.folder / "data"
            await eventually(
                lambda: any(b"word199" in path.read_bytes() for path in folder.glob("unwritten-*")), "kept"
            )
            await one.kill()
            await telling
            await asyncio.to_thread(server.start)
            await one.start()
            statement = "SELECT content FROM message_parts WHERE kind = 'text' ORDER BY message, position"
            found = "".join(content for (content,) in server.ask(statement, place.address.rpartition("/")[2]))
            assert found.count(words.strip()) == 1
            assert not list(folder.glob("unwritten-*"))


async def told(one: OneServer) -> None:
    """Ask for an answer, and read it until it breaks off."""
    import aiohttp

    body = {"model": "writer", "messages": [{"role": "user", "content": "Say."}], "stream": True}
    async with aiohttp.ClientSession(headers=BEARER) as http:
        try:
            async with http.post(f"{one.url}/v1/chat/completions", json=body, headers=NAMED) as answer:
                await answer.read()
        except aiohttp.ClientError:
            pass


@pytest.mark.slow
async def test_a_list_is_not_waited_for(tmp_path: Path) -> None:
    """With a database that is slow, lists and conversations end in the documented 503, and say when to ask again."""
    async with (
        new_place() as place,
        relayed(CuttingRelay(shared_server().port)) as relay,
        SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio,
    ):
        url = place.address.replace(f":{relay.server_port}/", f":{relay.port}/")
        async with serve(
            tmp_path, settings_for(studio.base_url, agents=f'{AGENT}\n[store]\nurl = "{url}"\n')
        ) as served:
            await served.app[SHARED].store.ready(60.0)
            served.app[SHARED].store.patience = Patience(asking=0.3)
            relay.answers.clear()
            for path in ("/v1/conversations", "/v1/conversations/heron", "/api/memories"):
                async with asyncio.timeout(10), served.http.get(f"{served.url}{path}") as response:
                    assert (response.status, (await response.json())["error"]["code"]) == (503, "store_unreachable")
                    assert response.headers["Retry-After"] == "2"
            relay.answers.set()
