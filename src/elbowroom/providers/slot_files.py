"""Saves and restores what a llama.cpp server keeps of a conversation in one of its slots."""

import hashlib
import socket
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from elbowroom.errors import UpstreamError
from elbowroom.providers.base import SlotMoved, SlotState
from elbowroom.providers.failures import failure_of_response
from elbowroom.providers.upstream import ANSWER_SECONDS, Reply, Upstream, parse_upstream_json

NO_ACTION: Final = "none"
"""A server without a folder for saved slots does not even look which action it is asked for."""
UNKNOWN_ACTION: Final = 400
TELLS_WITHIN: Final = 1.0
"""Seconds in which a server tells what its slots do; chats wait for it."""


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
