"""`/v1/conversations/{id}/search`: the best passages of one conversation for some words, with what came after each."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from elbowroom.agents.tools.recall import PastMessage, Pasts
from elbowroom.context.branch import ConversationTree
from elbowroom.context.conversation import KeptMessage
from elbowroom.context.ledger import is_system
from elbowroom.context.transcript import readable
from elbowroom.context.unasked import Passage
from elbowroom.errors import RequestError
from elbowroom.server.conversations.encode import listing
from elbowroom.server.conversations.history import branch_used_last
from elbowroom.server.conversations.routes import LONGEST_SEARCH, answer_json, asked, whole_number
from elbowroom.server.state import SHARED

USUAL_HITS = 10
MOST_HITS = 50


def add_search_route(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add the route; `base` is its prefix and `end` its suffix."""
    router.add_get(f"{base}conversations/{{id:[^/]+}}/search{end}", search_conversation)


async def search_conversation(request: web.Request) -> web.Response:
    """List the passages in which words of `q` were said, the best first, in the branch that was used last."""
    query = request.query.get("q", "").strip()
    if not query or len(query) > LONGEST_SEARCH:
        raise RequestError(f"q has to be some words to search for, at most {LONGEST_SEARCH} characters.", param="q")
    limit = whole_number(request, "limit", USUAL_HITS, MOST_HITS)
    shared = request.app[SHARED]
    conversation = await asked(request, shared.store.conversations.read)

    def found() -> list[dict[str, Any]]:
        branch = branch_used_last(conversation, ConversationTree.of(conversation.messages))
        said = [kept for kept in branch if kept.status == "complete" and not is_system(kept.message)]
        return hits_in(said, query, limit, shared.notes.pasts)

    return answer_json(listing(await asyncio.to_thread(found), has_more=False, following=""))


def hits_in(said: Sequence[KeptMessage], query: str, limit: int, pasts: Pasts) -> list[dict[str, Any]]:
    """Return the best passages of these messages, at most one of each message, with the passage after it."""
    if not said:
        return []
    ids = [kept.id for kept in said]
    known, index = pasts.take(ids)
    index.add(
        PastMessage(place, str(said[place].message.get("role")), readable(said[place].message), said[place].at)
        for place in range(known, len(said))
    )
    pasts.keep(ids, index)
    hits: dict[int, Passage] = {}
    for passage in index.ranked(query):
        hits.setdefault(passage.message, passage)
        if len(hits) == limit:
            break
    return [_described(said, passage) for passage in hits.values()]


def _described(said: Sequence[KeptMessage], passage: Passage) -> dict[str, Any]:
    kept = said[passage.message]
    following = said[passage.message + 1] if passage.message + 1 < len(said) else None
    return {
        "id": kept.id,
        "object": "conversation.passage",
        "number": kept.number,
        "role": passage.role,
        "created": int(kept.at),
        "text": passage.text,
        "begin": passage.begin,
        "following": following.id if following is not None else None,
    }
