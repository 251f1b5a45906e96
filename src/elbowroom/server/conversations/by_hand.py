"""What a person does about compactions: `/v1/conversations/{id}/compact`, its preview, undo, summary, and pins."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web

from elbowroom.agents import by_hand
from elbowroom.agents.by_hand import Foreseen, KeptChat, Preview
from elbowroom.agents.catalog import Target
from elbowroom.agents.dry_run import compact_request
from elbowroom.agents.request import ChatRequest, own_request, parse_chat_request
from elbowroom.context.branch import ConversationTree
from elbowroom.context.conversation import Conversation, KeptCompaction, KeptMessage
from elbowroom.context.seam import LONGEST_FOCUS
from elbowroom.context.transcript import readable
from elbowroom.errors import Conflict, NotFound, RequestError
from elbowroom.server.conversations.history import branch_used_last, history_of
from elbowroom.server.conversations.live import changing_idle, owner_asking, refuse_running
from elbowroom.server.conversations.routes import asked
from elbowroom.server.event_stream import json_answer
from elbowroom.server.middleware import note_target
from elbowroom.server.request import caller_without_chat, read_json, read_request, with_caller
from elbowroom.server.state import CATALOG, SHARED, run_settings_of

LONGEST_SUMMARY: Final = 100_000  # characters
FIRST_WORDS: Final = 120
OWN_FIELDS: Final = frozenset({"focus", "preview", "summary"})


def add_by_hand_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    one = f"{base}conversations/{{id:[^/]+}}"
    router.add_post(f"{one}/compact{end}", compact_conversation)
    router.add_post(f"{one}/compact/undo{end}", undo_compaction)
    router.add_put(f"{one}/summary{end}", edit_summary)
    router.add_put(f"{one}/messages/{{message:[^/]+}}/pin{end}", pin_message)
    router.add_delete(f"{one}/messages/{{message:[^/]+}}/pin{end}", unpin_message)
    router.add_delete(f"{one}/messages/{{message:[^/]+}}/recalled/{{number:[0-9]{{1,4}}}}{end}", forget_passage)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants of a compaction: what is kept or dropped, and whether it is only to be foreseen.

    With `asks_pruner` the pruning agent writes the summary of a preview.
    """

    focus: str = ""
    is_preview: bool = False
    asks_pruner: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Wish":
        """Return the wish of a body. Raises RequestError that names the field and what belongs there."""
        focus = body.get("focus") or ""
        if not isinstance(focus, str) or len(focus) > LONGEST_FOCUS:
            raise RequestError(f"focus has to be a text of at most {LONGEST_FOCUS} characters.", param="focus")
        for name in ("preview", "summary"):
            if not isinstance(body.get(name, False), bool):
                raise RequestError(f"{name} has to be true or false.", param=name)
        return cls(" ".join(focus.split()), bool(body.get("preview")), bool(body.get("summary")))


def _read_wish(body: Any) -> tuple[Wish, ChatRequest | None]:
    """Return what a body wants, and the chat in it; None for one without messages."""
    if not isinstance(body, dict):
        raise RequestError('The body has to be a JSON object, such as {"focus": "Keep the SQL, drop the small talk."}.')
    wish = Wish.of(body)
    if "messages" not in body:
        return wish, None
    return wish, parse_chat_request({name: value for name, value in body.items() if name not in OWN_FIELDS})


async def compact_conversation(request: web.Request) -> web.StreamResponse:
    """Compact the chat of a body or, where it has no messages, the kept conversation; answer with what is left.

    With `preview` answer with what would go and what would stay, and keep nothing of it.
    """
    wish, chat = await read_request(request, _read_wish) if request.can_read_body else (Wish(), None)
    shared, fill = request.app[SHARED], None
    if chat is not None:
        chat = await with_caller(request, chat)
        target = await request.app[CATALOG].get().resolve(chat.model)
    else:
        _, kept = await _kept(request, "compact it then")
        target, chat, fill = kept.target, kept.request, kept.shown
    note_target(target)
    chat, settings = replace(chat, focus=wish.focus), run_settings_of(request.app, chat.caller, target)
    with shared.running.entered(caller=chat.caller):
        if wish.is_preview:
            foreseen = await by_hand.preview(target, chat, settings, asks_pruner=wish.asks_pruner)
            return await json_answer(_described(request, chat, foreseen))
        compacted = await compact_request(target, chat, settings, shown=fill)
    shown = {
        "id": request.match_info["id"],
        "object": "conversation.compaction",
        "model": chat.model,
        "compacted": compacted.rung is not None,
        "method": compacted.rung,
        "before": compacted.before,
        "after": compacted.after,
        "seconds": round(compacted.seconds, 3),
        "messages": compacted.messages,
    }
    return await json_answer(shown)


def _described(request: web.Request, chat: ChatRequest, foreseen: Preview) -> dict[str, Any]:
    return {
        "id": request.match_info["id"],
        "object": "conversation.compaction_preview",
        "model": chat.model,
        "window": foreseen.window,
        "trigger": foreseen.trigger,
        "before": foreseen.before,
        "after": foreseen.after,
        "method": foreseen.rung,
        "summary": foreseen.summary or None,
        "stays": _sums(foreseen, stays=True),
        "goes": _sums(foreseen, stays=False),
        "messages": list(map(_described_message, foreseen.messages)),
    }


def _sums(foreseen: Preview, *, stays: bool) -> dict[str, int]:
    found = [each.tokens for each in foreseen.messages if each.stays is stays]
    return {"messages": len(found), "tokens": sum(found)}


def _described_message(each: Foreseen) -> dict[str, Any]:
    return {
        "role": "summary" if each.is_summary else each.message.get("role"),
        "words": " ".join(readable(each.message).split())[:FIRST_WORDS],
        "tokens": each.tokens,
        "stays": each.stays,
        "pinned": each.is_pinned,
    }


async def undo_compaction(request: web.Request) -> web.StreamResponse:
    """Take the newest compaction back: the next request has what stood there before it."""
    conversation, chat = await _kept(request, "take the compaction back then")
    async with changing_idle(request, conversation.row, "take the compaction back then"):
        summary, size = await by_hand.undo(chat)
        if (made := _with_summary(conversation, summary)) is not None:
            await request.app[SHARED].store.conversations.undo_compaction(conversation.row.id, made.at)
    return await json_answer({"id": conversation.row.id, "object": "conversation.compaction_undone", "tokens": size})


async def edit_summary(request: web.Request) -> web.StreamResponse:
    """Put a person's words in the place of the newest summary."""
    words = _words_of(await read_json(request) if request.can_read_body else {})
    conversation, chat = await _kept(request, "change its summary then")
    async with changing_idle(request, conversation.row, "change its summary then"):
        before, summary, size = await by_hand.edit(chat, words)
        if (made := _with_summary(conversation, before)) is not None:
            await request.app[SHARED].store.conversations.edit_summary(conversation.row.id, made.at, summary)
    edited = {"id": conversation.row.id, "object": "conversation.summary", "summary": summary, "tokens": size}
    return await json_answer(edited)


def _words_of(body: Any) -> str:
    words = body.get("summary") if isinstance(body, dict) else None
    if not isinstance(words, str) or not words.strip() or len(words) > LONGEST_SUMMARY:
        raise RequestError(
            f"summary has to be a text of at most {LONGEST_SUMMARY:,} characters that says something.", param="summary"
        )
    return words


def _with_summary(conversation: Conversation, summary: str) -> KeptCompaction | None:
    """Return the newest compaction with this summary that holds; else, as others may have made it, the newest."""
    holding = [each for each in reversed(conversation.compactions) if each.undone is None]
    same = [each for each in holding if summary in (each.edited, each.details.summary if each.details else None)]
    return next(iter(same or holding), None)


async def pin_message(request: web.Request) -> web.StreamResponse:
    """Let a message of the person or of the model never be summarised."""
    conversation, chat = await _kept(request, "pin it then")
    message = _message_named(request, conversation)
    if not message.is_pinned:
        if message.message.get("role") not in ("user", "assistant"):
            raise RequestError("Only messages of the user and answers can be pinned: a system message stays anyway.")
        if not message.key:
            raise Conflict("An answer that has no end cannot be pinned.", code="unfinished")
        await by_hand.check_pin(chat, message.key)
    return await _pinned(request, conversation, message, is_pinned=True)


async def unpin_message(request: web.Request) -> web.StreamResponse:
    """Let a message be summarised again."""
    conversation = await _conversation(request, "unpin it then")
    return await _pinned(request, conversation, _message_named(request, conversation), is_pinned=False)


async def forget_passage(request: web.Request) -> web.StreamResponse:
    """Let a passage that came back unasked with a message stand there no longer, and never come back here."""
    conversation, chat = await _kept(request, "forget it then")
    message = _message_named(request, conversation)
    async with changing_idle(request, conversation.row, "forget it then"):
        passage = await by_hand.forget(chat, message.key or "", int(request.match_info["number"]))
    gone = {"id": message.id, "object": "conversation.passage.forgotten", "text": passage.text}
    return await json_answer(gone)


async def _pinned(
    request: web.Request, conversation: Conversation, message: KeptMessage, *, is_pinned: bool
) -> web.StreamResponse:
    async with changing_idle(request, conversation.row, "pin it then" if is_pinned else "unpin it then"):
        await request.app[SHARED].store.conversations.pin(conversation.row.id, message.id, is_pinned=is_pinned)
    return await json_answer({"id": message.id, "object": "conversation.message.pin", "pinned": is_pinned})


def _message_named(request: web.Request, conversation: Conversation) -> KeptMessage:
    named = request.match_info["message"]
    if (found := next((kept for kept in conversation.messages if kept.id == named), None)) is None:
        raise NotFound(f"There is no message {named!r} in the conversation {request.match_info['id']!r}.")
    return found


async def _conversation(request: web.Request, then: str) -> Conversation:
    """Return all of the caller's conversation. Raises NotFound, StoreOpening, and Conflict while it is answered."""
    shared = request.app[SHARED]
    row = await asked(request, shared.store.conversations.find)
    await refuse_running(request, row, then)
    async with shared.recording.locks.beside_answers(row.id):  # in the midst of its deletion a part of it is left
        return await asked(request, shared.store.conversations.read)


async def _kept(request: web.Request, then: str) -> tuple[Conversation, KeptChat]:
    """Return the caller's conversation, and the chat that its client would send with the next message.

    Raises NotFound, ModelNotFound, StoreOpening, and Conflict where nobody has answered in it.
    """
    conversation = await _conversation(request, then)
    branch = await asyncio.to_thread(_branch, conversation)
    agent = next((kept.agent for kept in reversed(branch) if kept.turn), "")
    if not agent:
        why = "Nobody has answered yet in the branch that was used last: have its question answered"
        raise Conflict(f"{why}, and {then}.", code="nothing_answered")
    target: Target = await request.app[CATALOG].get().resolve(agent)
    owner, name = owner_asking(request), conversation.row.id
    caller = replace(caller_without_chat(request), owner=owner, chat_id=name)
    chat = replace(own_request(agent, [dict(each) for each in history_of(branch)]), caller=caller)
    return conversation, KeptChat(target, chat, run_settings_of(request.app, caller, target), conversation.row.fill)


def _branch(conversation: Conversation) -> list[KeptMessage]:
    return branch_used_last(conversation, ConversationTree.of(conversation.messages))
