"""The control relay with a fault: it loses a token now and then. The bench has to notice.

`faulty_relay.py PORT UPSTREAM_URL` listens on 127.0.0.1.
"""

from aiohttp import web
from control_relay import SESSION, UPSTREAM, main


async def relay(request: web.Request) -> web.Response:
    """Pass a chat request on, and its answer back without one of the words."""
    url = request.app[UPSTREAM] + request.path
    async with request.app[SESSION].post(url, data=await request.read()) as answer:
        whole = await answer.read()
        return web.Response(body=whole.replace(b" slowly", b""), content_type=answer.content_type)


if __name__ == "__main__":
    main(relay)
