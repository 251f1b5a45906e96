"""The queue of servers that share a PostgreSQL database: in order, at once, and each message once, at every server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from chatting import eventually
from queueing import call, said_by_user, waiting
from serving import Served
from several_servers import MODEL, several_servers
from sqlalchemy import delete, select, update

from elbowroom.agents.conversations.queue import ANY
from elbowroom.agents.conversations.shared_queue import SharedQueue
from elbowroom.demo import Script, SimulatedLMStudio, WaitFor
from elbowroom.server.state import SHARED
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.sql.schema import message_parts
from elbowroom.store.sql.schema import queue as rows_of_queue

RAW = f"lmstudio/{MODEL}"
TALK = {"X-Conversation-Id": "talk"}


async def ask(served: Served, model: str, content: str, name: str) -> str:
    """Ask without streaming; return the answer."""
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    async with served.http.post(served.chat_url, json=body, headers={"X-Conversation-Id": name}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return str(answer["choices"][0]["message"]["content"])


@pytest.mark.slow
@pytest.mark.parametrize("model", [RAW, "writer"])
async def test_the_next_request_reads_what_waits_at_every_server(tmp_path: Path, model: str) -> None:
    """Put in at one server each, read in order by a request at any other one, eight times of eight."""
    async with several_servers(tmp_path, 3) as (servers, studio):
        for number in range(8):
            name = f"talk {number}"
            await ask(servers[number % 3], model, "Hello.", name)
            said = [f"Word {each} of {number}." for each in range(3)]
            for each, content in enumerate(said):
                at = servers[(number + each) % 3]
                await call(at, "POST", conversation=name, status=202, json={"content": content})
            await ask(servers[(number + 1) % 3], model, "Now.", name)
            assert said_by_user(studio.chats[-1].body["messages"])[-4:] == ["Now.", *said]
            assert await waiting(servers[number % 3], name) == []


@pytest.mark.slow
async def test_a_new_conversation_can_be_spoken_to_from_its_first_word_on(tmp_path: Path) -> None:
    """At each server, by name and by id, as soon as a client has the first word; and it is read by that answer."""
    async with several_servers(tmp_path, 3) as (servers, studio):
        for number in range(6):
            goes_on = asyncio.Event()
            studio.enqueue(Script("First ", WaitFor(goes_on), "word."), "Read.")
            body = {"model": RAW, "messages": [{"role": "user", "content": f"Begin {number}."}], "stream": True}
            headers = {"X-Conversation-Id": f"new {number}"}
            async with servers[number % 3].http.post(
                servers[number % 3].chat_url, json=body, headers=headers
            ) as stream:
                while b"First" not in await stream.content.readline():
                    pass
                name = stream.headers["X-Conversation-Id"] if number % 2 else f"new {number}"
                for each in (1, 2):
                    at, content = servers[(number + each) % 3], f"Also {each}."
                    put = await call(at, "POST", conversation=name, status=202, json={"content": content})
                    assert (put["stored"], put["running"]) == (True, True)
                queue = servers[number % 3].app[SHARED].queue
                await eventually(lambda: queue.length == 2, "the server that answers has not taken it")  # noqa: B023
                goes_on.set()
                rest = (await stream.read()).decode()
            assert "Read." in "".join(
                choice["delta"].get("content") or ""
                for line in rest.splitlines()
                if line.startswith("data: {")
                for choice in json.loads(line[6:]).get("choices", ())
            )
            assert said_by_user(studio.chats[-1].body["messages"])[-2:] == ["Also 1.", "Also 2."]


@pytest.mark.slow
@pytest.mark.parametrize("is_dead", [False, True], ids=["counts as there", "was taken for dead"])
async def test_what_was_read_while_nothing_could_be_written_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_dead: bool
) -> None:
    """In the database it still waits, with this server or with none: it is not handed out a second time."""
    async with several_servers(tmp_path, 1) as ((one,), studio):
        await ask(one, RAW, "Hello.", "talk")
        begins = asyncio.Event()
        studio.enqueue(Script("First ", WaitFor(begins), "word."), "Read.", "Well.", "Well.")
        asking = asyncio.create_task(ask(one, RAW, "Now.", "talk"))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        await call(one, "POST", conversation="talk", status=202, json={"content": "Only once."})
        await eventually(lambda: one.app[SHARED].queue.length == 1, "the server has taken it")
        sql = one.app[SHARED].store.current
        assert sql is not None

        def refuses(*_: Any) -> None:
            raise StoreUnavailable("it takes nothing")

        with monkeypatch.context() as failing:
            failing.setattr(sql.conversations, "_write", refuses)
            begins.set()
            assert "Read." in await asking
            if is_dead:  # others have looked after what it left
                await sql.servers.database.write(lambda rows: rows.execute(update(rows_of_queue).values(server="")))
            await ask(one, RAW, "And now?", "talk")
        async with asyncio.timeout(20):
            while await waiting(one, "talk"):  # noqa: ASYNC110  # until the store is tried again
                await asyncio.sleep(0.05)
        await ask(one, RAW, "And then?", "talk")
        said = select(message_parts.c.content).where(message_parts.c.content.contains("Only once."))
        assert len(await sql.servers.database.read(lambda rows: rows.scalars(said).all())) == 1
        assert ["Only once." in str(chat.body) for chat in studio.chats] == [False, False, True, False, False]


async def answering_with_one_in_hand(
    one: Served, studio: SimulatedLMStudio
) -> "tuple[SharedQueue, dict[str, Any], asyncio.Event, asyncio.Task[str]]":
    """Return a server's queue, the message that it has taken from it, and the answer that runs until the event."""
    await ask(one, RAW, "Hello.", "talk")
    goes_on, queue = asyncio.Event(), one.app[SHARED].queue
    assert isinstance(queue, SharedQueue)
    studio.enqueue(Script("First ", WaitFor(goes_on), "word."), "Read.")
    asking = asyncio.create_task(ask(one, RAW, "Now.", "talk"))
    await eventually(lambda: studio.open_requests == 1, "the model is asked")
    put = await call(one, "POST", conversation="talk", status=202, json={"content": "Only once."})
    await eventually(lambda: queue.length == 1, "the server has taken it")
    return queue, put, goes_on, asking


@pytest.mark.parametrize("is_read_elsewhere", [False, True])
async def test_what_a_turn_gives_back_late_is_looked_for_anew(tmp_path: Path, *, is_read_elsewhere: bool) -> None:
    """A turn had taken it before its server was taken for dead: where another server has read it, no turn gets it."""
    async with several_servers(tmp_path, 1) as ((one,), studio):
        queue, put, goes_on, asking = await answering_with_one_in_hand(one, studio)
        (item,) = queue.take(put["conversation"], "a turn", ANY)
        await queue.settled()
        sql = one.app[SHARED].store.current
        assert sql is not None
        if is_read_elsewhere:
            await sql.servers.database.write(lambda rows: rows.execute(delete(rows_of_queue)))
        queue._forget()
        queue.give_back("a turn")
        assert queue.waiting(put["conversation"]) == []
        await queue._fetch([put["conversation"]])
        assert queue.waiting(put["conversation"]) == ([] if is_read_elsewhere else [item])
        goes_on.set()
        assert ("Read." in await asking) is not is_read_elsewhere


async def test_what_another_server_may_have_had_leaves_the_queue_with_its_answer_alone(tmp_path: Path) -> None:
    """A turn has read it, and its server was taken for dead before that was written: it waits, and is not dropped."""
    async with several_servers(tmp_path, 1) as ((one,), studio):
        queue, put, goes_on, asking = await answering_with_one_in_hand(one, studio)
        assert queue.take(put["conversation"], "a turn", ANY)
        queue._forget()
        queue.delivered("a turn")
        assert [item.id for item in await queue.listed(put["conversation"])] == [put["id"]]
        await queue._fetch([put["conversation"]])
        goes_on.set()
        assert "Read." in await asking


@pytest.mark.slow
async def test_nothing_counts_as_stored_that_is_not_there(tmp_path: Path) -> None:
    """A message for a conversation that another server deletes at this moment is refused, not acknowledged and lost."""
    async with several_servers(tmp_path) as ((one, other), _):
        await ask(one, RAW, "Hello.", "talk")
        queue = one.app[SHARED].queue
        add = queue.add

        async def late(*args: Any, **named: Any) -> Any:
            async with other.http.delete(f"{other.url}/v1/conversations/talk") as response:
                assert response.status == 200
            return await add(*args, **named)

        queue.add = late  # type: ignore[method-assign]
        await call(one, "POST", conversation="talk", status=404, json={"content": "Too late."})


@pytest.mark.slow
async def test_the_same_key_at_all_servers_is_one_message(tmp_path: Path) -> None:
    """Sent to three servers at once, again while it waits and once it was read, it is one entry, read once."""
    async with several_servers(tmp_path, 3) as (servers, studio):
        await ask(servers[0], RAW, "Hello.", "talk")
        body, keyed = {"content": "Only once."}, {"Idempotency-Key": "k-1"}

        async def put(at: Served, status: int = 202, **options: Any) -> dict[str, Any]:
            return await call(at, "POST", conversation="talk", status=status, **options)

        added = await asyncio.gather(*(put(at, json=body, headers=keyed) for at in servers * 2))
        assert {(one["id"], one["position"], one["stored"]) for one in added} == {(added[0]["id"], 1, True)}
        assert await waiting(servers[1], "talk") == ["Only once."]
        other = await put(servers[2], 422, json={"content": "Another."}, headers=keyed)
        assert other["error"]["code"] == "idempotency_key_used"
        await ask(servers[1], RAW, "Now.", "talk")
        assert said_by_user(studio.chats[-1].body["messages"])[-2:] == ["Now.", "Only once."]
        again = await put(servers[0], json=body, headers=keyed)
        assert (again["id"], again["position"], again["stored"]) == (added[0]["id"], 0, True)
        assert await waiting(servers[2], "talk") == []


@pytest.mark.slow
async def test_another_message_with_the_same_key_at_the_same_moment_is_refused(tmp_path: Path) -> None:
    """Of two that come to two servers at once, one is stored and the other is told so; neither is lost unsaid."""
    async with several_servers(tmp_path) as (servers, _):
        await ask(servers[0], RAW, "Hello.", "talk")
        for number in range(5):

            async def put(at: Served, content: str, key: str = f"k-{number}") -> tuple[int, str]:
                url = f"{at.url}/v1/conversations/talk/queue"
                async with at.http.post(url, json={"content": content}, headers={"Idempotency-Key": key}) as response:
                    return response.status, content

            told = await asyncio.gather(*(put(at, f"{number} of {each}") for each, at in enumerate(servers)))
            assert sorted(status for status, _ in told) == [202, 422]
            stored = [content for status, content in told if status == 202]
            assert (await waiting(servers[1], "talk"))[number:] == stored
