"""`GET /v1/models`, `/v1/models/{id}`, `/health` and `/ready`."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from aiohttp import web

from elbowroom import __version__
from elbowroom.agents.answering import imported_runner
from elbowroom.agents.catalog import CatalogRow
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.server.guard import speaks_anthropic
from elbowroom.server.model_rows import for_anthropic, for_codex, for_openai
from elbowroom.server.state import CATALOG, PROVIDERS, SETTINGS, SHARED, STARTED

log = logging.getLogger(__name__)
PROBE_SECONDS = 1.0
ROWS_OF_A_PAGE: Final = 20
MOST_ROWS: Final = 1000
"""The usual and the largest page of Anthropic's list of models."""
CODEX_ASKS: Final = "client_version"
"""What Codex alone has in the query when it asks for the models."""
TOKENIZERS_AHEAD: Final = 3
"""How many tokenizers are loaded before a chat needs them; each takes up to 100 MiB."""


class TokenizersAhead:
    """Loads the tokenizers of loaded models in the background, each once.

    It begins when a client lists the models, as clients do before they chat. Without one, a server stays small.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], asyncio.Task[None]] = {}

    def begin(self, rows: Sequence[CatalogRow], providers: Mapping[str, Provider]) -> list[asyncio.Task[None]]:
        """Begin to load the tokenizers of those models of the list that are loaded; return all such tasks."""
        for info in filter(_may_chat, (row.info for row in rows)):
            key, provider = (info.provider, info.id), providers[info.provider]
            if provider.manages_context and key not in self._begun and len(self._begun) < TOKENIZERS_AHEAD:
                self._begun[key] = asyncio.create_task(_load_tokenizer(provider, info))
        return list(self._begun.values())

    async def aclose(self) -> None:
        """Stop loading."""
        for task in self._begun.values():
            task.cancel()
        await asyncio.gather(*self._begun.values(), return_exceptions=True)


AHEAD: web.AppKey[TokenizersAhead] = web.AppKey("AHEAD", TokenizersAhead)


def _may_chat(info: ModelInfo | None) -> TypeGuard[ModelInfo]:
    return info is not None and bool(info.loaded_context) and info.kind != "embedding"


async def _load_tokenizer(provider: Provider, info: ModelInfo) -> None:
    """Load a model's tokenizer; where it cannot be, the log says so."""
    try:
        await (await provider.counter(info)).warm_up()
    except Exception as error:  # noqa: BLE001  # the server runs on, whatever a model's file is like
        log.warning("The tokenizer of %s cannot be loaded: %s", info.id, error)


async def list_models(request: web.Request) -> web.Response:
    """List the enabled agents and the raw models of every provider that answers."""
    providers = request.app[PROVIDERS].of(request.app[SETTINGS].current())
    rows = await request.app[CATALOG].get().rows()
    request.app[AHEAD].begin(rows, providers)
    if any(agent.enabled for agent in request.app[SETTINGS].current().settings.agents):
        _ = request.app[SHARED].sdk.begin(imported_runner)  # an agent is likely to be asked soon
    started = request.app[STARTED]
    if speaks_anthropic(request):
        return web.json_response(_page(request.query, [for_anthropic(row, started) for row in rows]))
    listed: dict[str, Any] = {"object": "list", "data": [for_openai(row, started) for row in rows]}
    if CODEX_ASKS in request.query:
        listed["models"] = [for_codex(row, place) for place, row in enumerate(rows)]
    return web.json_response(listed)


async def show_model(request: web.Request) -> web.Response:
    """Show one model of the list, by any name that a request may give it."""
    row = await request.app[CATALOG].get().row(request.match_info["id"], embeds=True)
    shown_as = for_anthropic if speaks_anthropic(request) else for_openai
    return web.json_response(shown_as(row, request.app[STARTED]))


def _page(query: Mapping[str, str], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the part of a list that `limit`, `after_id` and `before_id` ask for. Raises RequestError."""
    limit = query.get("limit", str(ROWS_OF_A_PAGE))
    if not limit.isdecimal() or not 1 <= int(limit) <= MOST_ROWS:
        raise RequestError(f"limit has to be a whole number from 1 to {MOST_ROWS}.", param="limit")
    ids = [row["id"] for row in rows]
    start, end = 0, len(rows)
    if (before := query.get("before_id")) in ids:
        end = ids.index(before)
        start = max(0, end - int(limit))
    elif (after := query.get("after_id")) in ids:
        start = ids.index(after) + 1
    shown = rows[start : min(end, start + int(limit))]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    has_more = start > 0 if before in ids else start + len(shown) < len(rows)
    return {"data": list(shown), "has_more": has_more, "first_id": first, "last_id": last}


async def health(request: web.Request) -> web.Response:
    """Answer 200 while the server runs, 503 while it stops; the body tells of the store, upstreams and wrong settings.

    What is wrong with these is told only to whom may see the settings.
    """
    providers = request.app[PROVIDERS].of((live := request.app[SETTINGS]).current())
    states = await asyncio.gather(*(_state(provider) for provider in providers.values()))
    status, code = ("stopping", 503) if request.app[SHARED].running.is_closed else ("ok", 200)
    told = {"status": status, "version": __version__, "store": request.app[SHARED].store.state, "providers": states}
    wrong = {"wrong_settings": [name or live.path.name for name, _ in live.wrong]} if live.wrong else {}
    return web.json_response({**told, **wrong}, status=code)


async def ready(request: web.Request) -> web.Response:
    """Answer 200 while this server should be given requests, 503 while it stops or its store cannot be written.

    Upstreams do not count: other servers have the same ones.
    """
    shared = request.app[SHARED]
    if shared.running.is_leaving:
        status = "stopping"
    elif shared.store.can_be_written:
        status = "ready"
    else:
        status = "store failing" if shared.store.is_failing else "store opening"
        shared.store.open_soon()
    return web.json_response({"status": status}, status=200 if status == "ready" else 503)


async def _state(provider: Provider) -> dict[str, Any]:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await provider.models()
    except (ElbowroomError, TimeoutError):
        return {"id": provider.id, "reachable": False}
    return {"id": provider.id, "reachable": True}
