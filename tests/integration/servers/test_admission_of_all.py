"""All servers share the window of a model: nobody overflows it, and nobody goes before his time."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import eventually
from patient_counting import wait_for_counts
from postgresql import shared_server
from server_processes import BEARER, OneServer, server_processes
from serving import Served
from several_servers import MODEL, several_servers

from elbowroom.demo import Overflow, Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.state import SHARED
from elbowroom.store import Together
from elbowroom.store.sharing.leases import NOT_SHARED, SHARED_AGAIN
from elbowroom.store.write_behind import Patience

Body = dict[str, Any]
Fails = Callable[[Served], AbstractContextManager[None]]
WINDOW = 2000
LEASES = "SELECT pool, server, tokens, is_granted FROM admission ORDER BY number"


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def long_question(number: int) -> list[Body]:
    """Return a history of which two fit into the window, and three do not."""
    return [{"role": "user", "content": f"Chat {number}. " + "The boat goes on over the sea. " * 70}]


async def answered(served: Served, number: int) -> str:
    """Ask a model; return why the answer ended."""
    body = {"model": f"lmstudio/{MODEL}", "messages": long_question(number), "max_tokens": 200}
    async with served.http.post(served.chat_url, json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer
        reason: str = answer["choices"][0]["finish_reason"]
        return reason


def leases_of(served: Served) -> list[tuple[Any, ...]]:
    """Return all leases in the database of a server."""
    return shared_server().ask(LEASES, database_of(served))


def database_of(served: Served) -> str:
    """Return the name of a server's database."""
    return str(served.app[SHARED].store._place).rpartition("/")[2]


def granted(served: Served) -> list[bool]:
    """Return which of the leases in the database of a server are granted, in the order of arrival."""
    return [row[3] for row in leases_of(served)]


def granted_at(address: str) -> list[bool]:
    """Return which of the leases in a database are granted, in the order of arrival."""
    return [row[3] for row in shared_server().ask(LEASES, address.rpartition("/")[2])]


async def answer_of(server: OneServer, number: int) -> str:
    """Ask a model at a server that is a process; return the answer."""
    body = {"model": f"lmstudio/{MODEL}", "messages": long_question(number), "max_tokens": 200}
    async with (
        aiohttp.ClientSession(headers=BEARER) as http,
        http.post(f"{server.url}/v1/chat/completions", json=body) as response,
    ):
        answer = await response.json()
        assert response.status == 200, answer
        return str(answer["choices"][0]["message"]["content"]).strip()


@pytest.mark.slow
async def test_no_window_is_held_twice(tmp_path: Path) -> None:
    """Twelve chats at three servers, of which two fit at once, are all answered, and the engine is never too full."""
    pool = Overflow(shared_pool=True)
    words = "A boat left the harbour. " * 20
    async with several_servers(
        tmp_path, 3, window=WINDOW, overflow=pool, on_request=lambda _: words, tokens_per_second=1200
    ) as (servers, studio):
        reasons = await asyncio.gather(*(answered(servers[number % 3], number) for number in range(12)))
        assert reasons == ["stop"] * 12
        assert all(chat.fitted for chat in studio.chats)
        assert len(studio.chats) == 12
        await eventually(lambda: leases_of(servers[0]) == [], "leases are left")


@pytest.mark.slow
async def test_the_first_to_come_is_the_first_to_be_answered(tmp_path: Path) -> None:
    """A request that waits at one server goes before one that came later at the server which has the model."""
    held = [asyncio.Event(), asyncio.Event()]
    async with several_servers(tmp_path, 2, window=1400) as (servers, studio):
        one, other = servers
        studio.enqueue(Script("First. ", WaitFor(held[0])), Script("Second. ", WaitFor(held[1])), "Third.")
        first = asyncio.create_task(answered(one, 1))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        second = asyncio.create_task(answered(other, 2))
        await eventually(lambda: [row[3] for row in leases_of(one)] == [True, False], "the second one waits")
        waiting = [served.app[SHARED].admission.waiting(("lmstudio", MODEL)) for served in servers]
        assert waiting == [0, 1]
        third = asyncio.create_task(answered(one, 3))
        await asyncio.sleep(0.3)
        assert len(studio.chats) == 1
        held[0].set()
        await first
        await eventually(lambda: len(studio.chats) == 2, "the second one is asked")
        assert "Chat 2" in str(studio.chats[1].body)
        held[1].set()
        assert [await second, await third] == ["stop", "stop"]
        await eventually(lambda: leases_of(one) == [], "leases are left")


@pytest.mark.slow
async def test_who_leaves_gives_back(tmp_path: Path) -> None:
    """A client that leaves while it waits, or while it is answered, leaves no lease."""
    async with several_servers(tmp_path, 2, window=1400) as (servers, studio):
        studio.enqueue(Script("First. ", WaitFor(asyncio.Event())))
        first = asyncio.create_task(answered(servers[0], 1))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        second = asyncio.create_task(answered(servers[1], 2))
        await eventually(lambda: [row[3] for row in leases_of(servers[0])] == [True, False], "the second one waits")
        second.cancel()
        await eventually(lambda: [row[3] for row in leases_of(servers[0])] == [True], "a lease is left")
        first.cancel()
        await eventually(lambda: leases_of(servers[0]) == [], "a lease is left")


@contextmanager
def out_of_reach(served: Served) -> Iterator[None]:
    """Cut all connections to a server's database, and let nobody connect."""
    name, ask = database_of(served), shared_server().ask
    ask(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    try:
        yield
    finally:
        ask(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@contextmanager
def hanging(served: Served) -> Iterator[None]:
    """Let all connections to a server's database hang."""
    asked = f"SELECT pid FROM pg_stat_activity WHERE datname = '{database_of(served)}'"
    pids = [pid for (pid,) in shared_server().ask(asked)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [out_of_reach, hanging])
async def test_without_the_database_each_server_goes_by_its_own_requests(
    tmp_path: Path, fails: Fails, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a database that has gone or hangs; what is held without it counts when it is back."""
    monkeypatch.setattr("elbowroom.store.sharing.leases.HELD_SECONDS", 0.5)
    monkeypatch.setattr("elbowroom.store.sharing.leases.LOOKED_SECONDS", 0.1)
    monkeypatch.setattr("elbowroom.store.sql.sharing.listener.AGAIN_SECONDS", 0.1)
    caplog.set_level("INFO")
    held = [asyncio.Event(), asyncio.Event()]
    async with several_servers(tmp_path, 2, window=1400) as (servers, studio):
        one, other = servers
        for served in servers:
            served.app[SHARED].store.patience = Patience(asking=60.0, again=0.3)
        studio.enqueue(Script("First. ", WaitFor(held[0])), Script("Second. ", WaitFor(held[1])), "Third.")
        first = asyncio.create_task(answered(one, 1))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        second = asyncio.create_task(answered(other, 2))
        await eventually(lambda: granted(one) == [True, False], "the second one waits")
        with fails(one):
            await eventually(lambda: studio.open_requests == 2, "the second one is asked", seconds=10.0)
            assert NOT_SHARED in caplog.text
        await eventually(lambda: granted(one) == [True, True], "what is held is known", seconds=20.0)
        await eventually(lambda: SHARED_AGAIN in caplog.text, "nobody says that it is back")
        held[0].set()
        assert await first == "stop"
        third = asyncio.create_task(answered(one, 3))
        await eventually(lambda: granted(one) == [True, False], "the third one waits")
        held[1].set()
        assert [await second, await third] == ["stop", "stop"]
        await eventually(lambda: leases_of(one) == [], "leases are left")


@pytest.mark.long
async def test_who_was_taken_for_dead_holds_nothing_when_it_wakes(tmp_path: Path) -> None:
    """A server that stands still for 20 s loses its leases; when it wakes it ends its answer, and is let in anew."""
    held = [asyncio.Event(), asyncio.Event()]
    async with (
        SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=1400)]) as studio,
        AsyncExitStack() as stack,
    ):
        running = server_processes(tmp_path, 2, {"lmstudio": studio.base_url})
        (one, other), address = await stack.enter_async_context(running)
        studio.enqueue(Script("First. ", WaitFor(held[0])), Script("Second. ", WaitFor(held[1])), "Third.")
        first = asyncio.create_task(answer_of(one, 1))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        one.freeze()
        second = asyncio.create_task(answer_of(other, 2))
        await eventually(lambda: studio.open_requests == 2, "what it held comes back", seconds=15.0)
        await asyncio.sleep(20.0 - 15.0)
        assert granted_at(address) == [True]
        one.thaw()
        with pytest.raises(AssertionError, match="server_stood_still"):
            await first
        await eventually(lambda: studio.open_requests == 1, "it has let its request go")
        await eventually(lambda: granted_at(address) == [True], "it has let its lease go")
        third = asyncio.create_task(answer_of(one, 3))
        await eventually(lambda: granted_at(address) == [True, False], "the third one waits")
        held[1].set()
        assert [await second, await third] == ["Second.", "Third."]
        await eventually(lambda: granted_at(address) == [], "leases are left")
        statuses = shared_server().ask("SELECT status FROM turns ORDER BY began", address.rpartition("/")[2])
        assert statuses == [("interrupted",), ("complete",), ("complete",)]


@pytest.mark.long
async def test_what_a_dead_server_held_comes_back(tmp_path: Path) -> None:
    """A server that does not say any more that it is there holds nothing after fifteen seconds."""
    async with several_servers(tmp_path, 2, window=1400) as (servers, studio):
        one, other = servers
        studio.enqueue(Script("First. ", WaitFor(asyncio.Event())))
        first = asyncio.create_task(answered(one, 1))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        servers_of_one = one.app[SHARED].store.servers
        assert isinstance(servers_of_one, Together)
        assert servers_of_one._listener is not None
        await asyncio.to_thread(servers_of_one._listener.stop)
        async with asyncio.timeout(15.0):
            assert await answered(other, 2) == "stop"
        first.cancel()
