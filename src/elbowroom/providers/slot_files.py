"""Saves and restores what a llama.cpp server keeps of a conversation in a slot, and asks what its slots do."""

import asyncio
import hashlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from elbowroom.errors import UpstreamError
from elbowroom.providers.base import SlotMoved, SlotState
from elbowroom.providers.failures import failure_of_response
from elbowroom.providers.upstream import ANSWER_SECONDS, Reply, Upstream, parse_upstream_json

log = logging.getLogger(__name__)
NO_ACTION: Final = "none"
"""A server without a folder for saved slots does not even look which action it is asked for."""
UNKNOWN_ACTION: Final = 400
TELLS_WITHIN: Final = 1.0
"""Seconds in which a server tells what its slots do; chats wait for it."""

LOOK_SECONDS = 5.0
"""How often it is looked, at first, whether a server that is silent works on anything."""
LOOKS: Final = 2
"""A request is taken to be forgotten when nothing is worked on at so many looks, one after another."""


class LlamaCppSlots:
    """The slots of the server at one address; a router in front of several models is told the model's name.

    A file is named after this machine, the address, the model and a number: its name tells nothing of a conversation.
    """

    def __init__(self, upstream: Upstream, root: str) -> None:
        self._upstream = upstream
        self._root = root

    async def can_save(self, model: str) -> bool:
        """Return whether the server was started with a folder for saved slots."""
        try:
            return (await self._ask(model, 0, NO_ACTION, {}, ANSWER_SECONDS)).status == UNKNOWN_ACTION
        except UpstreamError:
            return False

    async def states(self, model: str) -> dict[int, SlotState] | None:
        """Return what each slot does; None where the server does not tell soon."""
        url = f"{self._root}/slots?model={quote(model, safe='')}"
        try:
            reply = await self._upstream.exchange("GET", url, seconds=TELLS_WITHIN)
            rows = parse_upstream_json(reply.body) if reply.status == 200 else []
            return {int(row["id"]): SlotState(bool(row["is_processing"]), row.get("id_task")) for row in rows} or None
        except (UpstreamError, ValueError, TypeError, AttributeError, LookupError):
            return None

    async def begun(self, model: str, post: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> aiohttp.ClientResponse:
        """Return the response to a request that is posted, and posted again where the server has forgotten it.

        A request that waits there is begun when a slot is released, which begins one only. Where that is cancelled in
        this moment, or is about to save a slot, all others wait for the next release: for ever, if nothing else comes.
        A server may be slow to begin, so that it is looked half as often for each time that the request was posted.
        """
        pause = LOOK_SECONDS
        while True:
            forgotten = asyncio.timeout(None)
            try:
                async with forgotten:
                    watching = asyncio.create_task(self._watch(model, pause, forgotten))
                    try:
                        return await post()
                    finally:
                        watching.cancel()
            except TimeoutError:
                if not forgotten.expired():
                    raise
            log.warning("%s has forgotten a request, and is asked again.", self._upstream.source.name)
            pause *= 2

    async def _watch(self, model: str, pause: float, forgotten: asyncio.Timeout) -> None:
        """Let the time be over once no slot has worked at some looks, one after another."""
        idle = 0
        while idle < LOOKS:
            await asyncio.sleep(pause)
            states = await self.states(model)
            idle = idle + 1 if states is not None and not any(slot.is_busy for slot in states.values()) else 0
        forgotten.reschedule(0)

    async def save(self, model: str, slot: int, number: int, seconds: float) -> SlotMoved:
        """Write what the slot has into the file with this number, over what that had; within so many seconds."""
        return await self._moved(model, slot, "save", number, seconds, "n_saved")

    async def restore(self, model: str, slot: int, number: int, seconds: float) -> SlotMoved:
        """Put what the file with this number has into the slot, in place of what that has; within so many seconds."""
        return await self._moved(model, slot, "restore", number, seconds, "n_restored")

    async def _moved(self, model: str, slot: int, action: str, number: int, seconds: float, key: str) -> SlotMoved:
        reply = await self._ask(model, slot, action, {"filename": file_name(self._root, model, number)}, seconds)
        if reply.status != 200:
            raise failure_of_response(reply.status, reply.body, reply.headers, self._upstream.source)
        try:
            answer = parse_upstream_json(reply.body)
            return SlotMoved(int(answer[key]), float(answer["timings"][f"{action}_ms"]) / 1000)
        except (ValueError, TypeError, LookupError) as error:
            raise UpstreamError(f"{self._upstream.source.name} does not tell what it did about a slot.") from error

    async def _ask(self, model: str, slot: int, action: str, body: Mapping[str, Any], seconds: float) -> Reply:
        url = f"{self._root}/slots/{slot}?action={action}&model={quote(model, safe='')}"
        return await self._upstream.exchange("POST", url, {**body, "model": model}, seconds=seconds)


def file_name(address: str, model: str, number: int) -> str:
    """Return the name of a file with a saved slot of a model at an address, the same after a restart."""
    of = hashlib.blake2b(f"{socket.gethostname()}\n{address}\n{model}".encode(), digest_size=4).hexdigest()
    return f"elbowroom-{of}-{number}.slot"
