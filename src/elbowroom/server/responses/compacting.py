"""Answers requests that want a compaction and nothing else: `compaction_trigger`, and `POST /v1/responses/compact`."""

import secrets
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Compacted, Sink
from elbowroom.agents.dry_run import compact_request
from elbowroom.agents.turn import RunSettings
from elbowroom.context.compaction import is_of_person
from elbowroom.server.event_stream import json_answer
from elbowroom.server.middleware import note_target
from elbowroom.server.responses.asked import Asked, read_asked
from elbowroom.server.responses.encode import RESPONSE, OutputItems, usage_of
from elbowroom.server.responses.input import items_of
from elbowroom.server.state import run_settings_of


async def compact_response(request: web.Request) -> web.Response:
    """Answer with the user's messages and one compaction item that stands for the whole conversation."""
    asked = await read_asked(request, only_compacts=True)
    note_target(asked.target)
    key = secrets.token_hex(12)
    items = OutputItems(RESPONSE + key, seal=asked.seal)

    async def keep(events: Sequence[AnswerEvent]) -> None:
        for event in events:
            for _ in items.take(event):
                pass

    said = await compacted(run_settings_of(request.app, asked.chat.caller, asked.target), asked, keep)
    persons = [message for message in asked.chat.messages if is_of_person(message)]
    output = [item for place, message in enumerate(persons) for item in items_of(message, f"{key}{place}")]
    answer = {
        "id": RESPONSE + key,
        "object": "response.compaction",
        "created_at": int(time.time()),
        "output": [*output, *items.done],
        "usage": usage_of(said.usage or {}),
    }
    return await json_answer(answer)


async def compacted(settings: RunSettings, asked: Asked, sink: Sink) -> Answer:
    """Hand the sink a compaction of what was sent; return an answer without words that tells what it took."""
    said = Answer()
    said.begin_step()

    async def taking(events: Sequence[AnswerEvent]) -> None:
        said.usages.extend(_usage_of(event) for event in events if isinstance(event, Compacted))
        await sink(events)

    with settings.shared.running.entered(caller=asked.chat.caller):
        await compact_request(asked.target, asked.chat, settings, taking)
    return said


def _usage_of(event: Compacted) -> dict[str, Any]:
    """Return what a compaction took, with the sizes of the prompt before and after it."""
    used = event.used.as_openai()
    return {**used, "elbowroom": {**used.get("elbowroom", {}), "before": event.before, "after": event.after}}
