"""One response at a time answers a conversation of OpenAI's clients; the `openai` client is told what to do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, elbowroom_with_studio, eventually
from openai import APIStatusError, AsyncOpenAI, BadRequestError, ConflictError, DefaultAsyncHttpxClient
from openai.types.responses import Response
from openai_client import Trio, client_of
from read_conversations import kept_of
from serving import Served, serve, settings_for

from elbowroom.context.branch import ConversationTree
from elbowroom.demo import Cut, Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.conversations import hold
from elbowroom.server.responses import background
from elbowroom.server.state import SHARED
from elbowroom.store.sql.conversations import SqlConversations

BEGUN = "One two three. "
Way = dict[str, Any]
WAYS: dict[str, Way] = {"whole": {}, "stream": {"stream": True}, "background": {"background": True}}


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Run elbowroom in front of a simulated LM Studio, and a client that asks once."""
    async with elbowroom_with_studio(tmp_path) as (served, studio), client_of(served) as client:
        yield client, studio, served


async def conversation_of(client: AsyncOpenAI) -> str:
    """Make a conversation with one message and return its id."""
    items: Any = [{"type": "message", "role": "user", "content": "Begin."}]
    return (await client.conversations.create(items=items)).id


async def read(answer: Any) -> Any:
    """Read an answer to its end, be it a stream or whole, and return what came last."""
    if isinstance(answer, Response):
        return answer
    return [event async for event in answer][-1].response


def answering(client: AsyncOpenAI, conversation: str, text: str = "First?", **way: Any) -> "asyncio.Task[Any]":
    """Begin to ask in a task, which reads the answer to its end."""

    async def ask() -> Any:
        return await read(await client.responses.create(model="writer", input=text, conversation=conversation, **way))

    return asyncio.create_task(ask())


async def texts_of(client: AsyncOpenAI, conversation: str) -> list[str]:
    """Return what was said in the branch that was used last, the oldest first."""
    page: Any = await client.conversations.items.list(conversation, order="asc", limit=100)
    return [part["text"] for item in page.to_dict()["data"] for part in item["content"]]


async def runs(served: Served) -> None:
    """Wait until an answer has begun."""
    await eventually(lambda: served.app[SHARED].running.phases() == ["streaming"], "no answer begins")


def locked(served: Served) -> list[str]:
    """Return the conversations that somebody answers or changes."""
    return list(served.app[SHARED].recording.locks._locks)


async def is_free(served: Served) -> None:
    """Wait until no conversation is kept for an answer."""
    await eventually(lambda: not locked(served), "a conversation stays locked")


def held_deletions(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold each deletion where it begins, which the first event tells, until the second one is set."""
    is_deleting, goes_on = asyncio.Event(), asyncio.Event()
    delete_some = SqlConversations.delete_some

    async def held(conversations: SqlConversations, wanted: str) -> bool:
        is_deleting.set()
        await goes_on.wait()
        return await delete_some(conversations, wanted)

    monkeypatch.setattr(SqlConversations, "delete_some", held)
    return is_deleting, goes_on


@pytest.mark.fault("two clients at once", "streaming", "of one `conversation` the second is told to wait")
@pytest.mark.parametrize(("first", "second"), [("whole", "stream"), ("stream", "background"), ("background", "whole")])
async def test_second_response_is_refused(trio: Trio, first: str, second: str) -> None:
    """Whichever way both ask, the second gets a 400 that says what to do, and the conversation stays one branch."""
    client, studio, served = trio
    release = asyncio.Event()
    studio.enqueue(Script(BEGUN, WaitFor(release), "Four."), "Five.")
    conversation = await conversation_of(client)
    asked = answering(client, conversation, **WAYS[first])
    await runs(served)
    with pytest.raises(BadRequestError) as refused:
        await client.responses.create(model="writer", input="Second?", conversation=conversation, **WAYS[second])
    assert (refused.value.code, refused.value.param) == ("conversation_locked", "conversation")
    assert f"stop it with POST /v1/conversations/{conversation}/cancel" in refused.value.message
    release.set()
    await asked
    await is_free(served)
    await answering(client, conversation, "Third?", **WAYS[second])
    await is_free(served)
    assert await texts_of(client, conversation) == ["Begin.", "First?", f"{BEGUN}Four.", "Third?", "Five."]


async def test_items_are_neither_added_nor_deleted_meanwhile(trio: Trio) -> None:
    """While a response runs, its conversation is not changed by items or deleted; it can be read, and others go on."""
    client, studio, served = trio
    release = asyncio.Event()
    studio.enqueue(Script(BEGUN, WaitFor(release)), "Elsewhere.")
    conversation, items = await conversation_of(client), client.conversations.items
    [said] = (await items.list(conversation)).data
    asked = answering(client, conversation)
    await runs(served)
    new: Any = [{"type": "message", "role": "user", "content": "More."}]
    for change in (items.create(conversation, items=new), items.delete(str(said.id), conversation_id=conversation)):
        with pytest.raises(BadRequestError) as refused:
            await change
        assert refused.value.code == "conversation_locked"
    with pytest.raises(ConflictError):
        await client.conversations.delete(conversation)
    assert await texts_of(client, conversation) == ["Begin.", "First?"]
    assert (await answering(client, await conversation_of(client))).output_text == "Elsewhere."
    release.set()
    await asked
    await items.create(conversation, items=new)
    assert await texts_of(client, conversation) == ["Begin.", "First?", BEGUN, "More."]


async def test_the_lock_stands_for_a_name_as_for_the_id(trio: Trio) -> None:
    """A conversation that a chat has named is locked by its name and its id, and while a chat answers it as well."""
    client, studio, served = trio
    release, again = asyncio.Event(), asyncio.Event()
    studio.enqueue(Script(BEGUN, WaitFor(release)), Script(BEGUN, WaitFor(again)))
    body = {"model": "writer", "messages": [{"role": "user", "content": "First?"}], "stream": True}
    chat = asyncio.create_task(served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": "trip"}))
    await runs(served)
    [named] = {turn.conversation for turn in served.app[SHARED].running.of("")}
    for wanted in ("trip", named):
        with pytest.raises(BadRequestError):
            await answering(client, wanted)
    release.set()
    async with await chat as answered:
        await answered.read()
    asked = answering(client, "trip")
    await runs(served)
    with pytest.raises(BadRequestError):
        await client.conversations.items.create(named, items=[{"role": "user", "content": "More."}])
    again.set()
    await asked


async def fail(client: AsyncOpenAI, conversation: str, studio: SimulatedLMStudio, _: Served) -> None:
    """Ask where the engine breaks off."""
    studio.enqueue(Script(BEGUN, Cut()))
    with pytest.raises(APIStatusError):
        await answering(client, conversation)


async def fail_in_background(client: AsyncOpenAI, conversation: str, studio: SimulatedLMStudio, served: Served) -> None:
    """Ask in the background where the engine breaks off."""
    studio.enqueue(Script(BEGUN, Cut()))
    asked = await answering(client, conversation, background=True)
    await eventually(lambda: not locked(served), "it does not end")
    assert (await client.responses.retrieve(asked.id)).status == "failed"


async def leave(client: AsyncOpenAI, conversation: str, studio: SimulatedLMStudio, _: Served) -> None:
    """Leave a stream after its first words."""
    studio.enqueue(Script(BEGUN, WaitFor(asyncio.Event())))
    stream = await client.responses.create(model="writer", input="First?", conversation=conversation, stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    await stream.close()


async def cancel(client: AsyncOpenAI, conversation: str, studio: SimulatedLMStudio, served: Served) -> None:
    """Cancel a response that is given in the background."""
    studio.enqueue(Script(BEGUN, WaitFor(asyncio.Event())))
    asked = await answering(client, conversation, background=True)
    await runs(served)
    assert (await client.responses.cancel(asked.id)).status == "cancelled"


async def stop_by_conversation(client: AsyncOpenAI, conversation: str, studio: SimulatedLMStudio, at: Served) -> None:
    """Stop the conversation, as the refusal says."""
    studio.enqueue(Script(BEGUN, WaitFor(asyncio.Event())))
    asked = answering(client, conversation, stream=True)
    await runs(at)
    await client.post(f"/conversations/{conversation}/cancel", cast_to=object)
    assert (await asked).status == "cancelled"


async def ask_wrongly(client: AsyncOpenAI, conversation: str, _: SimulatedLMStudio, served: Served) -> None:
    """Ask with a wrong item, for nobody, for what cannot be in the background, and for too much at once."""
    wrong: list[Way] = [
        {"model": "nobody", "input": "a"},
        {"model": "writer", "input": [{"type": "image"}]},
        {"model": "writer", "input": "a", "background": True, "store": False},
    ]
    for body in wrong:
        with pytest.raises(APIStatusError):
            await client.responses.create(conversation=conversation, **body)
        assert not locked(served)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "MOST_AT_ONCE", 0)
        with pytest.raises(APIStatusError):
            await answering(client, conversation, background=True)
    assert not locked(served)


Leaving = Callable[[AsyncOpenAI, str, SimulatedLMStudio, Served], Awaitable[None]]


@pytest.mark.parametrize("leaving", [fail, fail_in_background, leave, cancel, stop_by_conversation, ask_wrongly])
async def test_every_end_releases_it(trio: Trio, leaving: Leaving) -> None:
    """However a response ends, the next one of its conversation is answered."""
    client, studio, served = trio
    conversation = await conversation_of(client)
    await leaving(client, conversation, studio, served)
    await is_free(served)
    studio.enqueue("At last.")
    assert (await answering(client, conversation, "And now?")).output_text == "At last."


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_end_of_the_server_releases_it(tmp_path: Path, way: Way) -> None:
    """A stop of the server leaves no conversation locked, whichever way it was being answered."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        studio.enqueue(Script(BEGUN, WaitFor(asyncio.Event())))
        async with serve(tmp_path, settings_for(studio.base_url, agents=AGENT)) as served, client_of(served) as client:
            asked = answering(client, await conversation_of(client), **way)
            await runs(served)
            assert len(locked(served)) == 1
        assert not locked(served)
        await asyncio.wait([asked])
        _ = asked.exception()


@pytest.mark.slow
async def test_the_client_waits_by_itself(trio: Trio) -> None:
    """A client with its usual retries gets its answer once the first one has ended, without code for that."""
    _, studio, served = trio
    release, refused = asyncio.Event(), list[int]()

    async def end_the_first(answer: Any) -> None:
        if answer.status_code == 400:
            refused.append(400)
            release.set()

    studio.enqueue(Script(BEGUN, WaitFor(release)), "Second.")
    http = DefaultAsyncHttpxClient(trust_env=False, verify=False, event_hooks={"response": [end_the_first]})
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", http_client=http) as client:
        conversation = await conversation_of(client)
        asked = answering(client, conversation)
        await runs(served)
        assert (await answering(client, conversation, "Second?")).output_text == "Second."
        assert refused
        assert (await asked).output_text == BEGUN


async def test_the_lock_is_the_owners(trio: Trio) -> None:
    """To others a locked conversation is not there, as one that is not locked."""
    client, _, served = trio
    conversation = await conversation_of(client.with_options(default_headers={"X-Elbowroom-User": "ada"}))
    with ExitStack() as until:
        await hold(served.app[SHARED], "ada", conversation, until)
        for owner, status in (("ada", 400), ("bob", 404)):
            with pytest.raises(APIStatusError) as refused:
                await answering(client.with_options(default_headers={"X-Elbowroom-User": owner}), conversation)
            assert refused.value.status_code == status


async def test_what_is_not_there_is_not_locked(trio: Trio) -> None:
    """Two requests at once for a conversation that nobody has are both told that it is not there."""
    client, _, _ = trio
    asked = [answering(client, "conv_nowhere") for _ in range(2)]
    refused = await asyncio.gather(*asked, return_exceptions=True)
    assert [each.status_code for each in refused if isinstance(each, APIStatusError)] == [404, 404]


async def test_nothing_is_deleted_between_reading_and_answering(trio: Trio) -> None:
    """A conversation is not deleted once a response has begun to read it, though no model answers yet."""
    client, _, served = trio
    conversation = await conversation_of(client)
    with ExitStack() as until:
        await hold(served.app[SHARED], "", conversation, until)
        with pytest.raises(BadRequestError) as refused:
            await client.conversations.delete(conversation)
        assert refused.value.code == "conversation_locked"
    assert (await client.conversations.delete(conversation)).deleted


async def test_an_answer_that_begins_while_its_conversation_is_deleted_is_kept_whole(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the deletion, and is then one whole conversation, with one beginning, under the same name."""
    _, studio, served = trio
    studio.enqueue("The ninth.", "The tenth.")
    first = {"role": "user", "content": "Which pier?"}
    said = [first, {"role": "assistant", "content": "The ninth."}, {"role": "user", "content": "And tomorrow?"}]

    async def ask(messages: list[dict[str, str]]) -> str:
        body = {"model": "writer", "messages": messages}
        async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": "trip"}) as answered:
            assert answered.status == 200
            return str(answered.headers["X-Conversation-Id"])

    conversation = await ask([first])
    await kept_of(served)
    is_deleting, goes_on = held_deletions(monkeypatch)
    deleting = asyncio.create_task(served.http.delete(f"{served.url}/v1/conversations/{conversation}"))
    await is_deleting.wait()
    asking = asyncio.create_task(ask(said))
    await eventually(lambda: len(served.app[SHARED].running) == 1, "nobody asks")
    await asyncio.wait([asking], timeout=0.1)
    goes_on.set()
    assert (await deleting).status == 200
    assert await asking == conversation
    kept = await kept_of(served)
    assert [(one.message["role"], one.message["content"]) for one in kept.messages] == [
        *((one["role"], one["content"]) for one in said),
        ("assistant", "The tenth."),
    ]
    assert len(ConversationTree.of(kept.messages).ends()) == 1


async def test_no_queued_message_is_accepted_and_deleted(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes while its conversation is deleted is told that this is gone, and never 202 and lost."""
    _, studio, served = trio
    studio.enqueue("The ninth.")
    body = {"model": "writer", "messages": [{"role": "user", "content": "Which pier?"}]}
    async with served.http.post(served.chat_url, json=body) as answered:
        conversation = answered.headers["X-Conversation-Id"]
    await kept_of(served)
    is_deleting, goes_on = held_deletions(monkeypatch)
    one = f"{served.url}/v1/conversations/{conversation}"
    deleting = asyncio.create_task(served.http.delete(one))
    await is_deleting.wait()
    queueing = asyncio.create_task(served.http.post(f"{one}/queue", json={"content": "And May?"}))
    await asyncio.wait([queueing], timeout=0.1)
    goes_on.set()
    assert (await deleting).status == 200
    assert (await queueing).status == 404
    assert served.app[SHARED].queue.length == 0
