"""A load balancer as small as can be: it sends each request to the next server that says it is ready."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web
from server_processes import OneServer

LOOK_EVERY: Final = 0.1
OWN: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})
"""Headers of one connection, which a proxy does not pass on."""


class Balancer:
    """It repeats nothing: a request that a server refuses or drops is a failure that the client sees."""

    def __init__(self, servers: Sequence[OneServer], http: aiohttp.ClientSession) -> None:
        self._servers = servers
        self._http = http
        self._turns = itertools.count()
        self.ready = list(servers)

    async def look(self) -> None:
        """Look again and again which servers are ready."""
        while True:
            told = await asyncio.gather(*(server.is_ready(self._http) for server in self._servers))
            self.ready = [server for server, is_ready in zip(self._servers, told, strict=True) if is_ready]
            await asyncio.sleep(LOOK_EVERY)

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Send a request to the next ready server, and its answer back piece by piece."""
        server = self.ready[next(self._turns) % len(self.ready)]
        headers = {name: value for name, value in request.headers.items() if name.lower() not in OWN}
        asked = self._http.request(
            request.method, f"{server.url}{request.path_qs}", headers=headers, data=await request.read()
        )
        async with asked as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in OWN}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response


@asynccontextmanager
async def balanced(servers: Sequence[OneServer]) -> AsyncIterator[str]:
    """Run a balancer in front of servers; yields its address."""
    async with aiohttp.ClientSession() as http:
        balancer = Balancer(servers, http)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", balancer.pass_on)
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        looking = asyncio.create_task(balancer.look())
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
            await runner.cleanup()
