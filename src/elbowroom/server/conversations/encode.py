"""Encodes conversations for clients: as JSON values, and as files to export."""

import asyncio
import logging
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from statistics import StatisticsError, linear_regression
from typing import Any, Final
from urllib.parse import quote

from aiohttp import hdrs, web

from elbowroom.context.branch import ConversationTree, full_output_of, markdown_of, never_shown
from elbowroom.context.conversation import (
    ContextFill,
    Conversation,
    ConversationRow,
    KeptCompaction,
    KeptMessage,
    MessagePage,
    PageWanted,
    QueuedMessage,
    Savings,
    Totals,
)
from elbowroom.context.unasked import Passage
from elbowroom.server.encode import to_json
from elbowroom.server.state import TIMING

EXPORT_VERSION: Final = 1
EPOCH: Final = date(1970, 1, 1).toordinal()
log = logging.getLogger(__name__)
BATCH_BYTES: Final = 64 * 1024
LONGEST_TITLE: Final = 50
"""Characters of a title in a file's name, which file systems limit to 255 bytes."""
FORMS: Final = {"json": "application/json", "markdown": "text/markdown; charset=utf-8"}
Recalled = Mapping[str, Sequence[Passage]]
SUFFIXES: Final = {"json": ".json", "markdown": ".md"}


def listing(data: list[dict[str, Any]], *, has_more: bool, following: str) -> dict[str, Any]:
    """Return a list object; `next` is the cursor of the next page, null on the last."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
        "next": following if has_more else None,
    }


def message_list(page: MessagePage, wanted: PageWanted, recalled: Recalled, *, newest_first: bool) -> dict[str, Any]:
    """Return a page as a list object; `next` is the cursor of the next page on the same way."""
    data = [describe_message(kept, recalled, is_hidden=kept.id in page.hidden) for kept in page.messages]
    following = data[0 if wanted.is_backward else -1]["id"] if data else ""
    return listing(data[::-1] if newest_first else data, has_more=page.has_more, following=following)


def json_of_list(listed: dict[str, Any]) -> str:
    """Return a list object as JSON, encoded item by item: other threads come in between, for items may be large."""
    head = to_json({name: value for name, value in listed.items() if name != "data"})
    return head.removesuffix("}") + ',"data":[' + ",".join(map(to_json, listed["data"])) + "]}"


def describe_row(row: ConversationRow, status: str = "idle") -> dict[str, Any]:
    """Return a conversation as a row of a list; times are Unix seconds."""
    return {
        "id": row.id,
        "object": "conversation",
        "name": row.name or None,
        "agent": row.agent,
        "title": row.title,
        "program": row.metadata.get("program"),
        "url": row.metadata.get("url"),
        "created": int(row.created),
        "updated": int(row.updated),
        "status": status,
        "context": describe_fill(row.fill) if row.fill else None,
        "usage": describe_totals(row.totals),
        "compaction_count": row.totals.compactions,
    }


def describe_for_openai(row: ConversationRow) -> dict[str, Any]:
    """Return a conversation as OpenAI's API shows one."""
    return {
        "id": row.id,
        "object": "conversation",
        "created_at": int(row.created),
        "metadata": dict(row.metadata),
    }


def describe_fill(fill: ContextFill) -> dict[str, Any]:
    """Return how full the window is with the next prompt, in tokens and as shares, and how many turns are left."""
    return {
        "tokens": fill.tokens,
        "window": fill.window,
        "fill": _share(fill.tokens, fill.window),
        "trigger": fill.trigger,
        "stop_at": fill.stop_at,
        "turn": fill.turn or None,
        "turns_left": fill.turns_left,
        "thresholds": {"trigger": _share(fill.trigger, fill.window), "stop": _share(fill.stop_at, fill.window)},
    }


def describe_totals(totals: Totals) -> dict[str, Any]:
    """Return the tokens of all model calls, and those of the pruning agent among them as `pruning`, where known.

    `counted` says that elbowroom has counted some of them itself.
    """
    usage = totals.usage
    told = {
        "input": usage.input,
        "output": usage.output,
        "cache_creation": usage.cache_creation,
        "cache_read": usage.cache_read,
        "total": usage.total,
        "steps": totals.steps,
        "counted": usage.is_counted,
    }
    return told if totals.pruning is None else {**told, "pruning": describe_totals(totals.pruning)}


def describe_savings(saved: Savings) -> dict[str, Any]:
    """Return what was saved on each day in tokens, the last one first, and how many seconds reading a token takes.

    A wait has its share for each token and a part that is always the same; with too few of them to tell, it is null.
    """
    days: dict[int, list[int]] = {}
    for each in saved.days:
        sums = days.setdefault(each.day, [0, 0, 0])
        days[each.day] = [
            have + more for have, more in zip(sums, (each.freed, each.cached, each.compactions), strict=True)
        ]
    try:
        slope = linear_regression(*zip(*saved.waits, strict=True)).slope
    except (StatisticsError, TypeError):
        slope = 0.0
    data = [
        {"day": str(date.fromordinal(EPOCH + day)), "freed": freed, "cached": cached, "compactions": count}
        for day, (freed, cached, count) in sorted(days.items(), reverse=True)
    ]
    return {"object": "saved", "seconds_a_token": slope if slope > 0 else None, "data": data}


def describe_compaction(compaction: KeptCompaction) -> dict[str, Any]:
    """Return a compaction with the sizes of the prompt in tokens; unknown details are null.

    `method` and `rung` are the same. `summary` is the one that stands; where a person has changed it, `original` is
    what it was.
    """
    details = compaction.details
    return {
        "at": int(compaction.at),
        "before": compaction.before,
        "after": compaction.after,
        "method": compaction.rung,
        "rung": compaction.rung,
        "seconds": round(details.seconds, 3) if details else None,
        "kept": details.groups_kept if details else None,
        "messages_kept": details.messages_kept if details else None,
        "messages_removed": details.messages_removed if details else None,
        "summary": compaction.edited if compaction.edited is not None else details.summary if details else None,
        "original": details.summary if details and compaction.edited is not None else None,
        "focus": (details.focus or None) if details else None,
        "verdict": (details.verdict or None) if details else None,
        "undone": int(compaction.undone) if compaction.undone is not None else None,
    }


def describe_message(kept: KeptMessage, recalled: Recalled, *, is_hidden: bool) -> dict[str, Any]:
    """Return a message; `message` is what was said, unchanged, and the other fields describe it.

    `recalled` are the passages that came back unasked with messages, by the keys of these.
    """
    passages = [{"role": each.role, "text": each.text, "at": each.at} for each in recalled.get(kept.key or "", ())]
    described = {
        "id": kept.id,
        "object": "conversation.message",
        "number": kept.number,
        "created": int(kept.at),
        "status": kept.status,
        "agent": kept.agent or None,
        "turn": kept.turn or None,
        "turn_status": kept.turn_status,
        "calls": dict(kept.calls),
        "hidden": is_hidden,
        "pinned": kept.is_pinned,
        "key": kept.key or None,
        "parent": kept.parent or None,
        "reasoning": kept.reasoning or None,
        "cache_lost": kept.lost,
        "full_output": full_output_of(kept.message),
        "message": kept.message,
    }
    return {**described, "recalled": passages} if passages else described


def json_of(conversation: Conversation) -> Iterator[str]:
    """Yield a conversation as JSON, message by message, with the ids of its latest branch and of all its ends."""
    messages = conversation.messages
    tree, hidden = ConversationTree.of(messages), never_shown(messages)
    head = {
        "object": "conversation.export",
        "version": EXPORT_VERSION,
        "conversation": describe_row(conversation.row),
        "compactions": [describe_compaction(compaction) for compaction in conversation.compactions],
        "latest": [kept.id for kept in tree.latest()],
        "branch_ends": [kept.id for kept in tree.ends()],
    }
    yield to_json(head).removesuffix("}") + ',"messages":['
    for place, kept in enumerate(messages):
        yield (",\n" if place else "\n") + to_json(describe_message(kept, {}, is_hidden=kept.id in hidden))
    yield "\n]}\n"


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


async def send_export(request: web.Request, conversation: Conversation, form: str) -> web.StreamResponse:
    """Answer with the conversation in one of `FORMS`; a client that leaves or stops reading is cut off."""
    batches = _batches(json_of(conversation) if form == "json" else markdown_of(conversation))
    batch = await asyncio.to_thread(next, batches, b"")
    response = web.StreamResponse(
        headers={
            hdrs.CONTENT_TYPE: FORMS[form],
            hdrs.CONTENT_DISPOSITION: disposition(conversation.row, SUFFIXES[form]),
            hdrs.CACHE_CONTROL: "no-store",
            "X-Content-Type-Options": "nosniff",
        }
    )
    await response.prepare(request)
    if request.method == hdrs.METH_HEAD:
        return response
    try:
        while batch:
            async with asyncio.timeout(request.app[TIMING].write):
                await response.write(batch)
            batch = await asyncio.to_thread(next, batches, b"")
        await response.write_eof()
    except (ConnectionResetError, TimeoutError):
        _cut_off(request)
    except Exception:
        log.exception("The export of %s ended early.", conversation.row.id)
        _cut_off(request)
    return response


def disposition(row: ConversationRow, suffix: str) -> str:
    """Return the header that names the file, in ASCII for old programs and unchanged for others."""
    name = f"{_day(row)} {_title(row.title) or row.id}{suffix}"
    plain = unicodedata.normalize("NFKD", name.removesuffix(suffix)).encode("ascii", "ignore").decode()
    ascii_name = f"{_title(plain[len(_day(row)) :]) or row.id}"
    return f"attachment; filename=\"{_day(row)} {ascii_name}{suffix}\"; filename*=UTF-8''{quote(name, safe='')}"


def _title(text: str) -> str:
    """Return a title that every system takes in a file's name: letters, digits, and single spaces."""
    kept = (letter if unicodedata.category(letter)[0] in "LMN" or letter in "-_" else " " for letter in text)
    return " ".join("".join(kept).split())[:LONGEST_TITLE].strip(" -")


def _day(row: ConversationRow) -> str:
    return datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%d")


def _batches(pieces: Iterator[str]) -> Iterator[bytes]:
    """Yield a text in UTF-8, several pieces at a time; none is empty."""
    batch = bytearray()
    for piece in pieces:
        batch += piece.encode("utf-8", "replace")
        if len(batch) >= BATCH_BYTES:
            yield bytes(batch)
            batch.clear()
    if batch:
        yield bytes(batch)


def _cut_off(request: web.Request) -> None:
    """Abort the connection, because a response that ended well would look complete."""
    if request.transport is not None:
        request.transport.abort()


def describe_queue(conversation: str, items: Sequence[QueuedMessage]) -> list[dict[str, Any]]:
    """Return messages of a conversation's queue as its routes show them."""
    return [
        {
            "id": item.id,
            "object": "conversation.queued_message",
            "conversation": conversation,
            "mode": item.mode,
            "position": position,
            "created": int(item.at),
            "message": item.message,
        }
        for position, item in enumerate(items, 1)
    ]
