"""Sends a conversation as a file, in pieces: however long it is, nobody else waits for it."""

import asyncio
import logging
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from aiohttp import hdrs, web

from elbowroom.context.conversation import Conversation, ConversationRow
from elbowroom.context.conversation_markdown import markdown_of
from elbowroom.server.conversation_encode import json_of
from elbowroom.server.keys import TIMING

log = logging.getLogger(__name__)
BATCH_BYTES: Final = 64 * 1024
LONGEST_TITLE: Final = 50
"""Characters of a title in a file's name, which file systems limit to 255 bytes."""
FORMS: Final = {"json": "application/json", "markdown": "text/markdown; charset=utf-8"}
SUFFIXES: Final = {"json": ".json", "markdown": ".md"}


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
    """Return the header that names the file: in ASCII for programs that read no more, and as it is."""
    name = f"{_day(row)} {_title(row.title) or row.id}{suffix}"
    plain = unicodedata.normalize("NFKD", name.removesuffix(suffix)).encode("ascii", "ignore").decode()
    ascii_name = f"{_title(plain[len(_day(row)) :]) or row.id}"
    return f"attachment; filename=\"{_day(row)} {ascii_name}{suffix}\"; filename*=UTF-8''{quote(name, safe='')}"


def _title(text: str) -> str:
    """Return a title as it can stand in a file's name on every system: letters, digits, and single spaces."""
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
    """End the connection: a response that ended well would look whole."""
    if request.transport is not None:
        request.transport.abort()
