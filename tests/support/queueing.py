"""Conversations to which something is said while they are answered."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from chatting import chunks_of, stream_bytes
from serving import Served

NAME = "notes"
NAMED = {"X-Conversation-Id": NAME}


async def call(
    served: Served, method: str, path: str = "", *, conversation: str = NAME, status: int = 200, **options: Any
) -> dict[str, Any]:
    """Ask for a conversation's queue, and return the answer, whose status has to be this."""
    url = f"{served.url}/v1/conversations/{conversation}/queue{path}"
    async with served.http.request(method, url, **options) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == status, answer
        return answer


async def say(served: Served, content: Any, mode: str = "steer", conversation: str = NAME) -> dict[str, Any]:
    """Put a message in the queue of a conversation, and return the answer."""
    body = {"content": content, "mode": mode}
    return await call(served, "POST", conversation=conversation, status=202, json=body)


async def waiting(served: Served, conversation: str = NAME) -> list[Any]:
    """Return what waits in a conversation."""
    listed = await call(served, "GET", conversation=conversation)
    return [item["message"]["content"] for item in listed["data"]]


async def chunks(served: Served, body: Mapping[str, Any], conversation: str = NAME) -> list[dict[str, Any]]:
    """Ask in a conversation with streaming, and return the chunks of a stream that ended well."""
    return chunks_of(await stream_bytes(served, body, **{"X-Conversation-Id": conversation}))


@asynccontextmanager
async def answering(
    served: Served, body: Mapping[str, Any], conversation: str = NAME
) -> AsyncIterator["asyncio.Task[list[dict[str, Any]]]"]:
    """Ask in the background; the task has the chunks."""
    task = asyncio.create_task(chunks(served, body, conversation))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def notices_of(chunks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a stream tells of messages that were taken in."""
    told = [chunk for chunk in chunks if chunk.get("elbowroom", {}).get("kind") == "taken in"]
    return [chunk["event"]["data"]["description"] for chunk in told]


def said_by_user(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the contents of the user's messages."""
    return [message["content"] for message in messages if message["role"] == "user"]
