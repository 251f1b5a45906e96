"""Keeps what can start programs from web pages that may otherwise call."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final

from aiohttp import hdrs, web

from elbowroom.errors import Forbidden
from elbowroom.server.guard import SITE, is_own

Answer = Callable[[web.Request], Awaitable[web.Response]]
SAME_SITE: Final = "same-origin"


def for_own_page(answer: Answer) -> Answer:
    """Refuse requests of web pages that elbowroom has not served itself; programs name no origin and pass.

    Settings name programs to start and addresses to send keys to: whoever may chat may not change them for that.
    """

    @wraps(answer)
    async def checked(request: web.Request) -> web.Response:
        origins = request.headers.getall(hdrs.ORIGIN, [])
        if request.headers.get(SITE) != SAME_SITE and not all(is_own(origin, request) for origin in origins):
            raise Forbidden(
                f"Web pages from {origins[0]!r} may not see or change settings and logs, only elbowroom's own may. "
                "Where a proxy stands in front of it, let the proxy pass the Host header on."
            )
        return await answer(request)

    return checked
