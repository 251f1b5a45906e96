"""`/ready`: 200 while a load balancer should send requests here, 503 with the reason while it should not."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from chatting import MODEL, RAW_MODEL, eventually
from command_line import PATIENCE, running
from pytest_aiohttp.plugin import AiohttpClient
from raw_http import ask, request_bytes
from serving import elbowroom, parse_frames, serve, settings_for, text_of

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.state import SHARED

NOBODY = "http://127.0.0.1:9"


async def test_a_server_is_ready_once_its_store_is_open(tmp_path: Path, aiohttp_client: AiohttpClient) -> None:
    """Until then it is not, though it runs; upstreams that are down do not count."""
    app = elbowroom(tmp_path, settings_for(NOBODY))
    served = await aiohttp_client(app)
    async with served.get("/ready") as response:
        assert (response.status, await response.json()) == (503, {"status": "store opening"})
    await app[SHARED].store.ready(PATIENCE)
    async with served.get("/ready") as response:
        assert (response.status, await response.json()) == (200, {"status": "ready"})


async def test_a_store_that_cannot_be_opened(tmp_path: Path, aiohttp_client: AiohttpClient) -> None:
    """The server answers chats all the same, but another one keeps what is said."""
    (tmp_path / "elbowroom.db").mkdir()
    app = elbowroom(tmp_path, settings_for(NOBODY))
    served = await aiohttp_client(app)
    await app[SHARED].store.ready(PATIENCE)
    async with served.get("/ready") as response:
        assert (response.status, await response.json()) == (503, {"status": "store failing"})
    async with served.get("/health") as response:
        assert response.status == 200


async def test_anybody_may_ask(tmp_path: Path) -> None:
    """A load balancer needs no token and no known host name, and learns one word."""
    (tmp_path / "token").write_text("server-secret", encoding="utf-8")
    async with serve(tmp_path, settings_for(NOBODY, server='token = "file:token"')) as served:
        await served.app[SHARED].store.ready(PATIENCE)
        reply = await ask(served.port, request_bytes("GET /ready HTTP/1.1", "Host: 10.0.0.7"))
    assert (reply.status, json.loads(reply.body)) == (200, {"status": "ready"})


async def test_a_server_that_leaves_parts_with_its_clients(tmp_path: Path) -> None:
    """During its notice it still answers, each time with `Connection: close`, while `/ready` is a 503."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            await served.app[SHARED].store.ready(PATIENCE)
            served.app[SHARED].running.leave()
            async with served.http.get(f"{served.url}/ready") as response:
                assert (response.status, await response.json()) == (503, {"status": "stopping"})
            body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Hello"}]}
            for stream in (False, True):
                async with served.http.post(served.chat_url, json={**body, "stream": stream}) as response:
                    assert (response.status, response.headers["Connection"]) == (200, "close")
                    assert await response.read()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals for other processes")
async def test_a_notice_before_the_stop(tmp_path: Path) -> None:
    """The program answers what comes during its notice; answers then have the time of `drain_seconds`."""
    release = asyncio.Event()
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=8192)]) as studio:
        studio.enqueue(Script("words ", WaitFor(release), "and the end"))
        settings = tmp_path / "settings.toml"
        server = "stop_notice_seconds = 1\ndrain_seconds = 60"
        settings.write_text(settings_for(studio.base_url, server=server), encoding="utf-8")
        variables = {"ELBOWROOM_DATA_DIR": str(tmp_path / "data")}
        async with running(tmp_path, "serve", "--config", str(settings), variables=variables) as program:
            address = await program.address()
            async with aiohttp.ClientSession() as http:
                program.process.send_signal(signal.SIGTERM)
                await program.line_with("Stopping in 1 s; requests are taken until then.")
                body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
                async with http.post(f"{address}/v1/chat/completions", json=body) as response:
                    assert response.status == 200
                    await program.line_with("Stopping: 1 answer may go on for 60 s.")
                    async with http.get(f"{address}/v1/models") as refused:
                        assert refused.status == 503
                    release.set()
                    assert text_of(parse_frames(await response.read())) == "words and the end"
            assert await program.ended() == 0
        await eventually(lambda: studio.open_requests == 0, "a request is left open upstream")
