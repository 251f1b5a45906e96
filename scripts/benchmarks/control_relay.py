"""The control: the plainest aiohttp relay there is, and so the floor of what this stack costs.

It reads the request's body, sends it on, and copies the answer with one write per read.
`control_relay.py PORT UPSTREAM_URL` listens on 127.0.0.1.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

UPSTREAM = web.AppKey("UPSTREAM", str)
SESSION = web.AppKey("SESSION", ClientSession)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def relay(request: web.Request) -> web.StreamResponse:
    """Pass one chat request on and its answer back, byte for byte."""
    app = request.app
    body = await request.read()
    headers = {"Content-Type": request.content_type}
    async with app[SESSION].post(app[UPSTREAM] + request.path, data=body, headers=headers) as answer:
        response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
        await response.write_eof()
        return response


async def health(request: web.Request) -> web.Response:
    """Say that the relay listens."""
    return web.json_response({"status": "ok"})


async def session(app: web.Application) -> AsyncIterator[None]:
    """Keep one client session, without limits of its own, for as long as the relay runs."""
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None)) as opened:
        app[SESSION] = opened
        yield


def application(upstream: str, chat: Handler = relay) -> web.Application:
    """Return the relay in front of one upstream; `chat` is what it does with chat requests."""
    app = web.Application(client_max_size=64 * 2**20)
    app[UPSTREAM] = upstream
    app.cleanup_ctx.append(session)
    app.router.add_get("/health", health)
    app.router.add_post("/v1/chat/completions", chat)
    return app


def main(chat: Handler = relay) -> None:
    """Serve until the process is ended; the port and the upstream's address come from the command line."""
    port, upstream = sys.argv[1:]
    web.run_app(application(upstream, chat), host="127.0.0.1", port=int(port), access_log=None, print=None)


if __name__ == "__main__":
    main()
