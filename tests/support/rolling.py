"""Servers that are restarted one after another in the back of a load balancer, while clients ask."""

import asyncio
import itertools
from collections.abc import Sequence

import aiohttp
from chatting import MODEL
from server_processes import BEARER, OneServer
from serving import parse_frames, text_of

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel

WORDS = "".join(f"word{number} " for number in range(30))


def studio_for_clients() -> SimulatedLMStudio:
    """Return an LM Studio whose answers take a second."""
    model = SimulatedModel(MODEL, loaded_context_length=32_768, max_context_length=32_768, parallel=16)
    return SimulatedLMStudio([model], tokens_per_second=30, on_request=lambda _: Script(WORDS))


class Clients:
    """Clients that ask one question after another; `failed` is what did not end well, in words."""

    def __init__(self, url: str) -> None:
        self.answered = 0
        self.failed: list[str] = []
        self._url = url
        self._numbers = itertools.count()
        self._has_ended = asyncio.Event()

    async def ask_on(self) -> None:
        """Ask until `end` is called."""
        async with aiohttp.ClientSession(headers=BEARER) as http:
            while not self._has_ended.is_set():
                await self._ask(http, {"X-Conversation-Id": f"chat {next(self._numbers)}"})

    async def _ask(self, http: aiohttp.ClientSession, headers: dict[str, str]) -> None:
        body = {"model": f"studio/{MODEL}", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
        try:
            async with http.post(f"{self._url}/v1/chat/completions", json=body, headers=headers) as response:
                frames = await response.read()
                if response.status != 200 or text_of(parse_frames(frames)) != WORDS:
                    self.failed.append(f"{response.status}: {frames.decode()[-300:]}")
        except aiohttp.ClientError as error:
            self.failed.append(repr(error))
        self.answered += 1

    def end(self) -> None:
        """Let each client finish what it has asked, and ask no more."""
        self._has_ended.set()


async def restart_each(servers: Sequence[OneServer]) -> list[int]:
    """Stop and start one server after another, and return their exit codes."""
    codes = []
    for server in servers:
        codes.append(await server.stop())
        await server.start()
        await asyncio.sleep(0.3)  # as long as the balancer takes to see it
    return codes


async def restarted_under_load(url: str, servers: Sequence[OneServer], clients: int = 6) -> Clients:
    """Restart each server while clients ask, and check that nothing failed and nothing was left to others."""
    asking = Clients(url)
    tasks = [asyncio.create_task(asking.ask_on()) for _ in range(clients)]
    before = [server.said().count(" in, ") for server in servers]
    assert await restart_each(servers) == [0] * len(servers), [server.said() for server in servers]
    asking.end()
    await asyncio.gather(*tasks)
    assert asking.failed == []
    assert asking.answered > clients
    assert all(server.said().count(" in, ") > count for server, count in zip(servers, before, strict=True))
    return asking
