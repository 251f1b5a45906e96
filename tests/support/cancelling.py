"""A named conversation whose turns are stopped by its person, and what has to be true afterwards."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from chatting import chunks_of, eventually
from serving import Served, text_of
from watched_stream import statuses_of

from elbowroom.context.conversation import KeptMessage
from elbowroom.demo import SimulatedLMStudio
from elbowroom.server.state import SHARED

NAME = "the ferry"
PATIENCE = 30.0
SOON = 10.0
"""Seconds within which a request is closed whose model would go on for longer."""


@dataclass(frozen=True, slots=True)
class Received:
    """What a client got: the id of its conversation, the text, how it ended, and the raw stream where it was one."""

    conversation: str
    text: str
    finish: str
    calls: bool
    usage: dict[str, Any] | None
    stream: bytes

    @property
    def open_statuses(self) -> int:
        """Return how many statuses were left open: those of a kind that is told in two parts."""
        statuses = statuses_of(self.stream)
        return int(bool(statuses) and not statuses[-1]["done"])


async def ask(served: Served, body: dict[str, Any], name: str = NAME, **headers: str) -> Received:
    """Ask in the conversation with this name, and take the answer to its end, which has to be a normal one."""
    named = {"X-Conversation-Id": name, **headers}
    async with asyncio.timeout(PATIENCE), served.http.post(served.chat_url, json=body, headers=named) as response:
        stream = await response.read()
        assert response.status == 200, stream
        conversation = response.headers["X-Conversation-Id"]
    if not body.get("stream"):
        answer = json.loads(stream)
        [choice] = answer["choices"]
        message = choice["message"]
        calls, usage = "tool_calls" in message, answer.get("usage")
        return Received(conversation, message["content"] or "", choice["finish_reason"], calls, usage, b"")
    chunks = chunks_of(stream)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    [finish] = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    calls = any("tool_calls" in choice["delta"] for choice in choices)
    usage = next((chunk["usage"] for chunk in chunks if "usage" in chunk), None)
    return Received(conversation, text_of(chunks), finish, calls, usage, stream)


async def post_cancel(served: Served, name: str = NAME, *, owner: str = "", **wish: Any) -> tuple[int, dict[str, Any]]:
    """Ask to stop the conversation, and return the status and the answer."""
    headers = {"X-Elbowroom-User": owner} if owner else {}
    url = f"{served.url}/v1/conversations/{name}/cancel"
    async with asyncio.timeout(PATIENCE), served.http.post(url, json=wish, headers=headers) as response:
        return response.status, await response.json()


async def cancel(served: Served, name: str = NAME, **wish: Any) -> dict[str, Any]:
    """Stop the conversation and return the answer."""
    status, answer = await post_cancel(served, name, **wish)
    assert status == 200, answer
    return answer


async def stopped_when(
    served: Served, body: dict[str, Any], moment: Callable[[], object], **wish: Any
) -> tuple[Received, dict[str, Any]]:
    """Ask, stop the conversation at that moment, and return what the client got and what the stop was answered."""
    asking = asyncio.create_task(ask(served, body))
    try:
        await eventually(lambda: moment() or asking.done(), "the moment to stop never came", seconds=PATIENCE)
        assert not asking.done(), asking.result()
        answer = await cancel(served, **wish)
        return await asking, answer
    finally:
        asking.cancel()
        await asyncio.wait([asking])


def is_answering(served: Served, studio: SimulatedLMStudio, number: int = 0) -> bool:
    """Tell whether elbowroom has taken words or thoughts of the studio's answer with this number, counted from 0.

    What the studio has sent says less: on a busy machine it may still wait in the connection.
    """
    is_begun = len(studio.chats) > number and studio.chats[number].completion_tokens > 0
    return is_begun and "streaming" in served.app[SHARED].running.phases()


async def last_turn(served: Served, name: str = NAME, owner: str = "") -> list[KeptMessage]:
    """Return the messages of the conversation's last turn, as they are kept."""
    kept = await served.app[SHARED].store.conversations.read(owner, name)
    assert kept is not None
    turns = [message.turn for message in kept.messages if message.turn]
    return [message for message in kept.messages if turns and message.turn == turns[-1]]


async def assert_kept(served: Served, received: Received, name: str = NAME) -> None:
    """Check that what the client got of a stopped answer is what is kept of it, marked as interrupted."""
    messages = await last_turn(served, name)
    said = [m.message.get("content") or "" for m in messages if m.message["role"] == "assistant"]
    assert "".join("".join(said).split()) == "".join(received.text.split())
    if messages:
        assert "streaming" not in {message.status for message in messages}


async def assert_nothing_open(studio: SimulatedLMStudio) -> None:
    """Check that no request is open upstream; its server may need a moment to see a socket close."""
    await eventually(lambda: studio.open_requests == 0, "a request is left open upstream", seconds=SOON)


@asynccontextmanager
async def leaving_nothing_behind() -> AsyncIterator[None]:
    """Check that the block leaves no task behind."""
    before = asyncio.all_tasks()
    yield
    await eventually(lambda: not asyncio.all_tasks() - before, "tasks are left running")
