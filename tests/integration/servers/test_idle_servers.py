"""What servers ask of the database while nobody asks anything of them, and how soon they hear of each other."""

import asyncio
import os
import random
import re
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from chatting import eventually
from postgresql import HASTY, PostgreSQL, started
from server_processes import starved
from serving import Served, serve, settings_for
from several_servers import AGENT, MODEL, several_servers

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.state import SHARED
from elbowroom.store.sharing.servers import LOOKED_SECONDS
from elbowroom.store.sql.store import CALM_SECONDS

STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)")
MOST_A_SECOND = 5.0
MOST_SECONDS = 0.5
ROUNDS = 8
COUNTED_SECONDS = 6.0
"""Long enough for all that is done every three seconds."""


def statements(server: PostgreSQL) -> list[str]:
    """Return the statements that a server was sent until now."""
    return STATEMENT.findall((server.folder / "log").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("agents", [pytest.param("file", marks=pytest.mark.long), "database"])
async def test_idle_servers_ask_little(tmp_path: Path, agents: str) -> None:
    """Each of three sends the database five statements a second at most, with what opens and ends transactions."""
    with started((*HASTY, "log_statement=all")) as server:
        address = server.address(server.new_database())
        async with (
            SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio,
            AsyncExitStack() as stack,
        ):
            of_store = f'[store]\nurl = "{address}"\nagents = "{agents}"\n'
            settings = settings_for(studio.base_url, agents=of_store if agents == "database" else AGENT + of_store)
            for number in range(3):
                (own := tmp_path / str(number)).mkdir()
                served = await stack.enter_async_context(serve(own, settings))
                store = served.app[SHARED].store
                await store.ready(60.0)
                await eventually(lambda: store.servers.counts_for > 0, "it has said that it is there")  # noqa: B023
            await asyncio.sleep(CALM_SECONDS + 1.0)  # until the last of them has kept house
            before = len(statements(server))
            await asyncio.sleep(COUNTED_SECONDS)
            sent = statements(server)[before:]
    found = Counter(re.sub(r"\s+", " ", statement)[:90] for statement in sent)
    told = "\n".join(f"{count} {statement}" for statement, count in found.most_common())
    sys.stdout.write(f"{len(sent) / COUNTED_SECONDS / 3:.1f} statements a second of each\n{told}\n")
    assert len(sent) <= 3 * COUNTED_SECONDS * MOST_A_SECOND, told


@pytest.mark.slow
@pytest.mark.parametrize("misses", ["nothing", "every wake-up"])
async def test_a_cancel_elsewhere_takes_half_a_second_at_most(
    tmp_path: Path, misses: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the request at another server to the end of the answer, and to its own end, also where nobody is woken."""
    if misses != "nothing":
        monkeypatch.setattr("elbowroom.store.sql.sharing.servers.wake", lambda *_: None)
    took = []
    async with several_servers(tmp_path, 3) as (servers, studio):
        studio.on_request = lambda _: Script("Once upon a time, ", WaitFor(asyncio.Event()))
        for number in range(ROUNDS):
            one, other = random.sample(servers, 2)
            body = {"model": "writer", "messages": [{"role": "user", "content": "Tell."}], "stream": True}
            named = {"X-Conversation-Id": f"story {number}"}
            async with one.http.post(one.chat_url, json=body, headers=named) as stream:
                while b"Once" not in await stream.content.readline():
                    pass
                await asyncio.sleep(random.uniform(0.0, LOOKED_SECONDS))
                began, waited = time.monotonic(), starved(os.getpid())
                cancelling = asyncio.create_task(cancel(other, f"story {number}"))
                await stream.read()
                took.append(time.monotonic() - began - (starved(os.getpid()) - waited))
                assert await cancelling == 1
                took.append(time.monotonic() - began - (starved(os.getpid()) - waited))
    sys.stdout.write(
        f"{misses} missed: {max(took[::2]):.3f} s to the end of an answer, {max(took):.3f} s to that of all\n"
    )
    assert max(took) <= MOST_SECONDS


async def cancel(served: Served, name: str) -> int:
    """Cancel a conversation; return how many answers that ended."""
    async with served.http.post(f"{served.url}/v1/conversations/{name}/cancel", json={}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return int(answer["cancelled"])
