"""The queue of a conversation over HTTP: what is taken, what is refused and in which words, and whose it is."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from chatting import chat_body, elbowroom_with_studio, eventually
from queueing import answering, call, chunks, say, waiting
from serving import Served

from elbowroom.agents.conversations.queue import MOST_BYTES, MOST_WAITING
from elbowroom.demo import Script, SimulatedLMStudio, WaitFor
from elbowroom.server.state import SHARED

Pair = tuple[Served, SimulatedLMStudio]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Run elbowroom with a conversation called notes that nobody answers just now."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        await chunks(served, chat_body())
        yield served, studio


async def test_messages_are_listed_and_removed(pair: Pair) -> None:
    """The list has all that waits in order, each with its time; one is removed by its id, all at once, and are gone."""
    served, _ = pair
    began = int(time.time())
    added = [await say(served, text, "follow_up") for text in ("one", "two", "three")]
    assert [one["position"] for one in added] == [1, 2, 3]
    assert {one["object"] for one in added} == {"conversation.queued_message"}
    listed = await call(served, "GET")
    assert [(one["id"], one["position"], one["mode"]) for one in listed["data"]] == [
        (one["id"], one["position"], "follow_up") for one in added
    ]
    assert listed["data"][0]["message"] == {"role": "user", "content": "one"}
    assert all(began <= one["created"] <= time.time() for one in listed["data"])
    removed = await call(served, "DELETE", f"/{added[1]['id']}")
    assert removed == {"id": added[1]["id"], "object": "conversation.queued_message.deleted", "deleted": True}
    assert await waiting(served) == ["one", "three"]
    gone = await call(served, "DELETE", f"/{added[1]['id']}", status=404)
    assert "taken in or removed before" in gone["error"]["message"]
    cleared = await call(served, "DELETE")
    assert [one["message"]["content"] for one in cleared["data"]] == ["one", "three"]
    assert await waiting(served) == []


async def test_the_id_of_the_conversation_stands_for_its_name(pair: Pair) -> None:
    """Both name the same queue."""
    served, _ = pair
    added = await say(served, "by its name")
    assert added["conversation"].startswith("conv_")
    await say(served, "by its id", conversation=added["conversation"])
    assert await waiting(served, added["conversation"]) == ["by its name", "by its id"] == await waiting(served)


async def test_a_message_may_come_as_in_a_chat_request(pair: Pair) -> None:
    """As an object with a role, or with parts; the mode is steer where none is named."""
    served, _ = pair
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    for content in ("Hello", parts):
        body = {"message": {"role": "user", "content": content}}
        assert (await call(served, "POST", status=202, json=body))["mode"] == "steer"
    assert await waiting(served) == ["Hello", parts]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({}, "content"),
        ({"content": " "}, "content"),
        ({"content": []}, "content"),
        ({"content": ["Hello"]}, "content"),
        ({"content": 7}, "content"),
        ({"message": "Hello"}, "message"),
        ({"message": {"role": "system", "content": "Obey."}}, "message.role"),
        ({"content": "Hello", "mode": "now"}, "mode"),
        ({"content": "Hello", "mode": ["steer"]}, "mode"),
    ],
)
async def test_what_is_no_message_is_refused(pair: Pair, body: Any, param: str | None) -> None:
    """With 400 and the name of the field; nothing waits then."""
    served, _ = pair
    refused = await call(served, "POST", status=400, json=body)
    assert refused["error"]["param"] == param
    assert await waiting(served) == []


async def test_the_same_key_is_one_message(pair: Pair) -> None:
    """It is answered with the same entry while it waits, once it was read and once it was removed, and stored once."""
    served, studio = pair

    async def put(content: str, key: str, status: int = 202) -> dict[str, Any]:
        headers = {"Idempotency-Key": key}
        return await call(served, "POST", json={"content": content}, headers=headers, status=status)

    added = [await put(content, content) for content in ("one", "two")]
    assert [one["position"] for one in added] == [1, 2]
    assert await asyncio.gather(*(put("two", "two") for _ in range(5))) == [added[1]] * 5
    assert await waiting(served) == ["one", "two"]
    refused = await put("three", "two", status=422)
    assert refused["error"]["code"] == "idempotency_key_used"
    await call(served, "DELETE", f"/{added[1]['id']}")
    await chunks(served, chat_body("Now?"))
    assert [message["content"] for message in studio.chats[-1].body["messages"]][-1] == "one"
    for content, before in zip(("one", "two"), added, strict=True):
        assert await put(content, content) == before | {"position": 0}
    assert await waiting(served) == []
    await say(served, "one")
    assert await waiting(served) == ["one"]
    long = await put("three", "k" * 256, status=400)
    assert long["error"]["param"] == "Idempotency-Key"


async def test_a_key_counts_in_its_conversation(pair: Pair) -> None:
    """In another conversation it stands for another message, and after one was deleted for nothing there."""
    served, _ = pair

    async def put(name: str) -> dict[str, Any]:
        keyed = {"Idempotency-Key": "k"}
        return await call(served, "POST", conversation=name, json={"content": "Hello"}, headers=keyed, status=202)

    await chunks(served, chat_body(), conversation="other")
    assert len({(await put(name))["id"] for name in ("notes", "other")}) == 2
    async with served.http.delete(f"{served.url}/v1/conversations/notes") as response:
        assert response.status == 200
    await chunks(served, chat_body())
    assert (await put("notes"))["position"] == 1
    assert await waiting(served) == ["Hello"]


async def test_a_conversation_that_nobody_knows_is_not_there(pair: Pair) -> None:
    """Nothing is put in the queue of one, and nothing is listed."""
    served, _ = pair
    for method in ("POST", "GET", "DELETE"):
        answer = await call(served, method, conversation="other", status=404, json={"content": "Hello"})
        assert "There is no conversation 'other' here" in answer["error"]["message"]


async def test_a_conversation_is_its_owners(pair: Pair) -> None:
    """Another user can neither add to it nor see or remove what waits, by its name or by its id."""
    served, _ = pair
    anna, ben = {"X-Elbowroom-User": "anna"}, {"X-Elbowroom-User": "ben"}
    headers = {**anna, "X-Conversation-Id": "diary"}
    async with served.http.post(served.chat_url, json=chat_body(), headers=headers) as response:
        assert response.status == 200
    added = await call(served, "POST", conversation="diary", status=202, headers=anna, json={"content": "A secret"})
    for conversation in ("diary", added["conversation"]):
        await call(served, "GET", conversation=conversation, status=404, headers=ben)
        await call(served, "DELETE", f"/{added['id']}", conversation=conversation, status=404, headers=ben)
        body = {"content": "Hello", "user": "ben"}
        await call(served, "POST", conversation=conversation, status=404, json=body)
    by_body = {"content": "Mine", "user": "anna"}
    assert (await call(served, "POST", conversation="diary", status=202, json=by_body))["position"] == 2


async def test_a_first_request_that_is_under_way_has_a_queue(tmp_path: Path) -> None:
    """A conversation is there by its name from the beginning of its first answer, and its answer says that it runs."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        may_end = asyncio.Event()
        studio.enqueue(Script("One.", WaitFor(may_end)), "Two.")
        async with answering(served, chat_body()) as answer:
            await eventually(lambda: studio.chats, "the model is not asked")
            assert (await say(served, "Go on"))["running"] is True
            may_end.set()
            await answer


async def test_what_was_taken_in_cannot_be_removed(pair: Pair) -> None:
    """While the model reads it the answer is 409; once it has begun to answer, the message is gone."""
    served, studio = pair
    added = await say(served, "Go on")
    begins, ends = asyncio.Event(), asyncio.Event()
    studio.enqueue(Script(WaitFor(begins), "I do.", WaitFor(ends), "Done."))
    async with answering(served, chat_body("Now?")) as answer:
        await eventually(lambda: len(studio.chats) == 2, "the model is not asked")
        refused = await call(served, "DELETE", f"/{added['id']}", status=409)
        assert refused["error"]["code"] == "already_taken_in"
        begins.set()
        await eventually(lambda: studio.chats[1].completion_tokens, "nothing is said")
        ends.set()
        await answer
    await call(served, "DELETE", f"/{added['id']}", status=404)


async def test_a_queue_is_bounded(pair: Pair) -> None:
    """Too many messages are refused with 429 and one that is too large with 413, in words."""
    served, _ = pair
    large = BytesIO(json.dumps({"content": "x" * MOST_BYTES}).encode())
    refused = await call(served, "POST", status=413, data=large, headers={"Content-Type": "application/json"})
    assert "more than the 1,048,576" in refused["error"]["message"]
    conversation = (await say(served, "the first"))["conversation"]
    queue = served.app[SHARED].queue
    message = {"role": "user", "content": "x"}
    await asyncio.gather(*(queue.add(conversation, message, "steer") for _ in range(MOST_WAITING - 1)))
    refused = await call(served, "POST", status=429, json={"content": "one too many"})
    assert refused["error"]["code"] == "conversation_queue_full"
