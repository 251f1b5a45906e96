"""`/v1/conversations`: list, search, read, export and delete conversations; `/api/saved`: what was saved in them."""

import asyncio
import math
import unicodedata
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from aiohttp import hdrs, web

from elbowroom.agents.by_hand import came_back
from elbowroom.context.conversation import LARGEST_PAGE, ConversationRow, MessagePage, PageWanted
from elbowroom.context.unasked import Passage
from elbowroom.errors import Conflict, NotFound, RequestError
from elbowroom.server.conversations.encode import (
    FORMS,
    describe_compaction,
    describe_for_openai,
    describe_message,
    describe_row,
    describe_savings,
    json_of_list,
    listing,
    message_list,
    send_export,
)
from elbowroom.server.conversations.live import (
    answering_elsewhere,
    changing_idle,
    fill_elsewhere,
    owner_asking,
    unknown,
)
from elbowroom.server.encode import to_json
from elbowroom.server.guard import for_own_page
from elbowroom.server.request import conversation_name, read_json
from elbowroom.server.state import SHARED
from elbowroom.store import Store
from elbowroom.store.questions import Conversations

LONGEST_TITLE: Final = 200
MOST_TITLE_BYTES: Final = 65_536
MOST_ROWS: Final = 100
USUAL_ROWS: Final = 20
USUAL_MESSAGES: Final = 50
LONGEST_SEARCH: Final = 400
SAVED: Final = "/api/saved"
MOST_EAST: Final = 14 * 60
"""Minutes by which no place is further from Greenwich."""
OPENAI_LIBRARY: Final = "X-Stainless-Lang"
"""A header that OpenAI's libraries send with every request."""
Found = TypeVar("Found")
SEARCHES: web.AppKey[dict[str, "asyncio.Future[list[ConversationRow]]"]] = web.AppKey("SEARCHES", dict)
"""The searches that are under way, by their owners."""


def add_conversation_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    one = f"{base}conversations/{{id:[^/]+}}"
    router.add_get(f"{base}conversations{end}", list_conversations)
    router.add_get(SAVED, for_own_page(show_saved))
    router.add_get(f"{one}{end}", show_conversation)
    router.add_patch(f"{one}{end}", rename_conversation)
    router.add_delete(f"{one}{end}", delete_conversation)
    router.add_get(f"{one}/messages{end}", list_messages)
    router.add_get(f"{one}/messages/{{message:[^/]+}}{end}", show_message)
    router.add_get(f"{one}/export{end}", export_conversation)


async def list_conversations(request: web.Request) -> web.Response:
    """List the caller's conversations, the one used last first: with `q` those in which this text was said.

    With `agent` only those that this agent or model has answered last, with `program` those that this program began,
    and with `model` those for which this model was asked.
    """
    search = request.query.get("q", "").strip()
    if len(search) > LONGEST_SEARCH:
        raise RequestError(f"The search is longer than the {LONGEST_SEARCH} characters it may have.", param="q")
    limit = whole_number(request, "limit", USUAL_ROWS, MOST_ROWS)
    before = _moment(request, "before")
    async with nullcontext() if search else request.app[SHARED].store.in_time():
        rows = await _rows(request, search, before, limit + 1)
        page = first_page(rows, limit)
        if rows and not page:  # more than a page of them has the same time: no cursor could tell them apart
            rows = await _rows(request, search, before, LARGEST_PAGE)
            page = [row for row in rows if row.updated == rows[0].updated]
        elsewhere = await request.app[SHARED].store.servers.answered([row.id for row in page])
    data = [_described_in_list(request, row, elsewhere) for row in page]
    return answer_json(listing(data, has_more=len(page) < len(rows), following=repr(page[-1].updated) if page else ""))


async def _rows(request: web.Request, search: str, before: float | None, limit: int) -> list[ConversationRow]:
    """Return the caller's conversations; a search ends one of the same caller that is still under way.

    Raises StoreOpening and StoreAway.
    """
    owner, searches, store = owner_asking(request), request.app[SEARCHES], request.app[SHARED].store
    only = {name: request.query.get(name, "").strip() for name in ("agent", "program", "model")}
    await store.ready()
    ask = partial(store.conversations.rows, owner, search=search, **only, before=before, limit=limit)
    asking = _asked_for_all(store, ask)
    if not search:
        return await asking
    if older := searches.get(owner):
        older.cancel()
    own = searches[owner] = asyncio.ensure_future(asking)
    try:
        return await own
    except asyncio.CancelledError:
        if searches.get(owner) is own:  # it is the client that has left
            raise
        raise Conflict("A newer search of yours has taken the place of this one.", code="search_replaced") from None
    finally:
        if searches.get(owner) is own:
            del searches[owner]


async def _asked_for_all(store: Store, ask: Callable[[], Awaitable[list[ConversationRow]]]) -> list[ConversationRow]:
    rows = await ask()
    store.check_reachable()  # else these are only those that are in memory
    return rows


async def show_saved(request: web.Request) -> web.Response:
    """Show what caching and compaction have saved in the caller's conversations on each day, the last day first.

    `zone` is how many minutes the caller's clock is before Greenwich's.
    """
    try:
        zone = int(request.query.get("zone", "0"))
    except ValueError:
        zone = MOST_EAST + 1
    if abs(zone) > MOST_EAST:
        raise RequestError(f"zone has to be a number of minutes, from -{MOST_EAST} to {MOST_EAST}.", param="zone")
    store = request.app[SHARED].store
    await store.ready()
    return answer_json(describe_savings(await store.conversations.saved(owner_asking(request), zone)))


async def show_conversation(request: web.Request) -> web.Response:
    """Show a conversation with its sizes, what it has used and how it was compacted.

    With `limit` the last of its messages come along.
    """
    worked_on = request.app[SHARED].background.conversations()  # before it is read: what ends meanwhile may be missing
    kept = await asked(request, _conversations(request).overview)
    shown = {
        **await _described_row(request, kept.row),
        **(describe_for_openai(kept.row) if _speaks_openai(request, kept.row) else {}),
        "works_ahead": kept.row.id in worked_on,
        "compactions": [describe_compaction(compaction) for compaction in kept.compactions],
        "message_count": kept.message_count,
        "queue_length": len(await request.app[SHARED].queue.listed(kept.row.id)),
    }
    if "limit" not in request.query:
        return answer_json(shown)
    wanted = replace(_wanted(request), is_backward=True)
    last = await _page(request, wanted)
    return answer_text(f'{to_json(shown).removesuffix("}")},"messages":{await asyncio.to_thread(json_of_list, last)}}}')


def _speaks_openai(request: web.Request, row: ConversationRow) -> bool:
    """Tell whether OpenAI's fields are wanted: by its libraries, and of conversations that were made by its API."""
    return OPENAI_LIBRARY in request.headers or not row.agent


async def rename_conversation(request: web.Request) -> web.Response:
    """Give a conversation another title; an empty one or null gives back the beginning of its first question."""
    body = await read_json(request, MOST_TITLE_BYTES)
    if not isinstance(body, dict) or "title" not in body:
        raise RequestError('The body has to be a JSON object, such as {"title": "Travel plans"}.', param="title")
    title = _title(body["title"])
    row = await asked(request, _conversations(request).find)
    shared = request.app[SHARED]
    async with shared.recording.locks.beside_answers(row.id):
        await shared.store.conversations.rename(row.id, title)
    return answer_json(await _described_row(request, await asked(request, _conversations(request).find)))


def _title(given: Any) -> str:
    """Return a title as one line. Raises RequestError."""
    if given is not None and not isinstance(given, str):
        raise RequestError("title has to be a text, or null for that of the first question.", param="title")
    title = " ".join((given or "").split())
    if len(title) > LONGEST_TITLE:
        raise RequestError(f"title has to have at most {LONGEST_TITLE} characters, not {len(title)}.", param="title")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in title):
        raise RequestError("title has a control character or half a character, which nothing can show.", param="title")
    return title


async def delete_conversation(request: web.Request) -> web.Response:
    """Delete a conversation with all that belongs to it.

    Raises Conflict where it is being answered, and StoreUnwritable where that cannot be written.
    """
    row = await asked(request, _conversations(request).find)
    async with changing_idle(request, row, "delete it then"):
        await request.app[SHARED].queue.taken_back(row.id)
        if not await _conversations(request).delete(owner_asking(request), row.id):
            raise unknown(request)
        await request.app[SHARED].store.check_deleted()
    return answer_json({"id": row.id, "object": "conversation.deleted", "deleted": True})


async def list_messages(request: web.Request) -> web.Response:
    """List the messages as they were said, also those that were compacted since or that no client has seen."""
    return answer_text(await asyncio.to_thread(json_of_list, await _page(request, _wanted(request))))


def _wanted(request: web.Request) -> PageWanted:
    """Return which messages are asked for. Raises RequestError that names the parameter at fault."""
    after, before = (request.query.get(name, "") for name in ("after", "before"))
    if after and before:
        raise RequestError("after and before cannot be given together: a page goes one way.", param="before")
    return PageWanted(
        limit=whole_number(request, "limit", USUAL_MESSAGES, LARGEST_PAGE),
        cursor=after or before,
        is_backward=_is_newest_first(request) != bool(before),
        is_latest=_choice(request, "branch", ("latest", "all")) == "latest",
        with_hidden=_choice(request, "hidden", ("true", "false")) == "true",
    )


def _is_newest_first(request: web.Request) -> bool:
    return _choice(request, "order", ("asc", "desc")) == "desc"


async def _page(request: web.Request, wanted: PageWanted) -> dict[str, Any]:
    """Return the messages that are asked for, as a list object."""
    page = await asked(request, lambda owner, named: _conversations(request).page(owner, named, wanted))
    if not page.is_known:
        name = "before" if request.query.get("before") else "after"
        raise RequestError(f"There is no message {wanted.cursor!r} among those that are asked for.", param=name)
    recalled = await _recalled(request, page)
    return await asyncio.to_thread(message_list, page, wanted, recalled, newest_first=_is_newest_first(request))


async def _recalled(request: web.Request, page: MessagePage) -> Mapping[str, Sequence[Passage]]:
    """Return what came back unasked with the messages of a page, by their keys."""
    keys = [kept.key for kept in page.messages if kept.key and kept.message.get("role") == "user"]
    return await came_back(request.app[SHARED], keys) if keys else {}


async def show_message(request: web.Request) -> web.Response:
    """Show one message with its place."""
    wanted = request.match_info["message"]
    page = await asked(request, lambda owner, named: _conversations(request).message(owner, named, wanted))
    if not page.messages:
        raise NotFound(f"There is no message {wanted!r} in the conversation {request.match_info['id']!r}.")
    recalled = await _recalled(request, page)
    return answer_json(describe_message(page.messages[0], recalled, is_hidden=bool(page.hidden)))


async def export_conversation(request: web.Request) -> web.StreamResponse:
    """Answer with all of a conversation as a file."""
    form = _choice(request, "format", tuple(FORMS))
    return await send_export(request, await asked(request, _conversations(request).read), form)


def first_page(rows: Sequence[ConversationRow], limit: int) -> list[ConversationRow]:
    """Return the rows of a page, given one more than it holds. The cursor is a time: rows of one time stay together."""
    if len(rows) <= limit:
        return list(rows)
    return [row for row in rows if row.updated > rows[limit].updated]


def _conversations(request: web.Request) -> Conversations:
    return request.app[SHARED].store.conversations


async def asked(request: web.Request, question: Callable[[str, str], Awaitable[Found | None]]) -> Found:
    """Return the answer to a question about the caller's conversation that the address names.

    Raises NotFound, StoreOpening and StoreAway.
    """
    owner, named = owner_asking(request), conversation_name(request.match_info["id"])
    store = request.app[SHARED].store
    await store.ready()
    async with store.in_time():
        found = await question(owner, named)
    if found is None:
        store.check_reachable()
        raise unknown(request)
    return found


async def _described_row(request: web.Request, row: ConversationRow) -> dict[str, Any]:
    """Return a conversation as it is now; while it is being answered, with the current fill of its window."""
    shared = request.app[SHARED]
    turns = shared.running.of(owner_asking(request), row.id)
    if not turns and (servers := await answering_elsewhere(shared, row.id)):
        return describe_row(replace(row, fill=await fill_elsewhere(shared, row.id, servers) or row.fill), "running")
    live = turns[0].fill if turns else None
    return describe_row(replace(row, fill=live or row.fill), "running" if turns else "idle")


def _described_in_list(request: web.Request, row: ConversationRow, elsewhere: Collection[str]) -> dict[str, Any]:
    """Return a conversation of a list; `elsewhere` are those that other servers answer."""
    turns = request.app[SHARED].running.of(owner_asking(request), row.id)
    live = turns[0].fill if turns else None
    status = "running" if turns or row.id in elsewhere else "idle"
    return describe_row(replace(row, fill=live or row.fill), status)


def answer_json(value: dict[str, Any]) -> web.Response:
    """Return an answer that nobody keeps, with a JSON object."""
    return answer_text(to_json(value))


def answer_text(text: str) -> web.Response:
    """Return an answer that nobody keeps, with a JSON text."""
    headers = {hdrs.CACHE_CONTROL: "no-store", "X-Content-Type-Options": "nosniff"}
    return web.json_response(text=text, headers=headers)


def whole_number(request: web.Request, name: str, usual: int, most: int, least: int = 1) -> int:
    """Return a query parameter as a whole number from `least` to `most`. Raises RequestError."""
    given = request.query.get(name)
    if given is None:
        return usual
    if not (given.isascii() and given.isdigit() and len(given) <= len(str(most)) and least <= int(given) <= most):
        raise RequestError(f"{name} has to be a whole number from {least} to {most}, not {given[:40]!r}.", param=name)
    return int(given)


def _moment(request: web.Request, name: str) -> float | None:
    given = request.query.get(name)
    if given is None:
        return None
    try:
        moment = float(given)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        raise RequestError(
            f"{name} has to be a time in Unix seconds, as `next` has it, not {given[:40]!r}.", param=name
        )
    return moment


def _choice(request: web.Request, name: str, choices: Sequence[str]) -> str:
    """Return the choice of a query parameter; the first one is the default."""
    given = request.query.get(name, choices[0])
    if given not in choices:
        raise RequestError(f"{name} has to be {' or '.join(choices)}, not {given[:40]!r}.", param=name)
    return given
