"""A relay between a client and the engine that passes everything on and keeps what was asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import ClientResponse, ClientSession, ClientTimeout, hdrs, web

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDict

LARGEST_BODY: Final = 256 * 1024 * 1024  # bytes
ONE_HOP: Final = {"connection", "host", "keep-alive", "transfer-encoding"}
ADDED_BY_CLIENT: Final = {hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the client sent it, its body to the byte; `answer` has what has come back so far."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    answer: bytearray = field(default_factory=bytearray)

    @property
    def is_chat(self) -> bool:
        """Tell whether it asks for a chat completion."""
        return self.method == "POST" and self.path.endswith("/chat/completions")

    def json(self) -> Any:
        """Return the parsed body."""
        return json.loads(self.body)


class RecordingRelay:
    """Listens on 127.0.0.1 and passes requests to `upstream`, answers back as they come.

    A client that leaves takes its upstream request with it. Unlike the engine's own record of prompts, this
    one is complete when requests arrive at the same time. `own_answers` are JSON values for paths that the relay
    answers itself.
    """

    def __init__(self, upstream: str, own_answers: Mapping[str, Any] | None = None) -> None:
        self._own_answers = own_answers or {}
        self.requests: list[Request] = []
        self.base_url = ""
        self._upstream = upstream
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(app, handler_cancellation=True, auto_decompress=False)

    async def __aenter__(self) -> Self:
        self._client = ClientSession(auto_decompress=False, timeout=ClientTimeout(total=None))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._client.close()

    def chats(self) -> list[dict[str, Any]]:
        """The bodies of all chat requests, oldest first: what to render to see the prompts."""
        return [request.json() for request in self.requests if request.is_chat]

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if request.path in self._own_answers:
            return web.json_response(self._own_answers[request.path])
        headers = without_hop(request.headers.copy())
        body = await request.read()
        kept = Request(request.method, request.path_qs, dict(request.headers), body)
        self.requests.append(kept)
        async with self._client.request(
            request.method,
            self._upstream + request.path_qs,
            headers=headers,
            data=body or None,
            skip_auto_headers=ADDED_BY_CLIENT,
        ) as answer:
            return await pass_back(request, answer, kept.answer)


async def pass_back(request: web.Request, answer: ClientResponse, kept: bytearray) -> web.StreamResponse:
    """Send the client what the engine answers, every piece as soon as it is there, and keep it."""
    response = web.StreamResponse(
        status=answer.status, reason=answer.reason, headers=without_hop(answer.headers.copy())
    )
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        kept += piece
        await response.write(piece)
    await response.write_eof()
    return response


def without_hop(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """Drop the headers that speak about one connection only."""
    for name in ONE_HOP:
        headers.popall(name, None)
    return headers
