"""Responses that are stopped, break off, are not kept or are deleted."""

import asyncio
from pathlib import Path

from chatting import AGENT, MODEL, elbowroom_with_studio, eventually
from openai_schemas import check_schema
from responding import respond, said_to, send, text_in
from serving import serve, settings_for
from stored_conversations import begun, turn_begun

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.responses.encode import response_id_of
from elbowroom.server.state import SHARED


async def test_stopped(tmp_path: Path) -> None:
    """A response that is stopped ends in good order with what it has said, and can be gone on from."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        release = asyncio.Event()
        studio.enqueue(Script("One two three. ", WaitFor(release), "Four."), "Five.")
        url, body = f"{served.url}/v1/responses", {"model": "writer", "input": "Count.", "stream": True}
        async with served.http.post(url, json=body) as streaming:
            received = b""
            async for line in streaming.content:
                received += line
                if b"three" in line:
                    break
            response_id = received.split(b'"id":"')[1].split(b'"')[0].decode()
            running = await send(served, f"/{response_id}", "GET")
            assert running["status"] == "in_progress"
            check_schema("Response", running)
            assert (await send(served, f"/{response_id}", "DELETE"))["status_code"] == 409
            refused = await send(served, model="writer", input="a", previous_response_id=response_id)
            assert (refused["status_code"], refused["error"]["code"]) == (409, "response_running")
            stopped = await send(served, f"/{response_id}/cancel")
            rest = await streaming.content.read()
        release.set()
        assert stopped["status"] == "cancelled"
        check_schema("Response", stopped)
        assert text_in(stopped).startswith("One two three")
        assert b"event: response.completed" in rest
        assert b'"status":"cancelled"' in rest
        again = await send(served, f"/{response_id}/cancel")
        assert (again["status"], again["completed_at"]) == ("cancelled", None)
        await respond(served, "Go on.", previous_response_id=response_id)
        assert [text for _, text in said_to(studio.chats[-1].body)] == ["Count.", text_in(stopped), "Go on."]


async def test_one_branch_is_stopped(tmp_path: Path) -> None:
    """What else is said in the same conversation at the same time goes on."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        first = await respond(served)
        release = asyncio.Event()
        studio.enqueue(Script("Left. ", WaitFor(release)), Script("Right. ", WaitFor(release), "Done."))
        going = [
            asyncio.create_task(respond(served, side, previous_response_id=first["id"])) for side in ("Left?", "Right?")
        ]
        await eventually(lambda: studio.open_requests == 2, "not both are asked")
        running = served.app[SHARED].running._answers  # what does not stream learns its id with its end
        await send(served, f"/{response_id_of(running[0].id)}/cancel")
        release.set()
        ended = await asyncio.gather(*going)
        assert sorted(one["status"] for one in ended) == ["cancelled", "completed"]


async def test_not_kept(tmp_path: Path) -> None:
    """With `store` false nothing of it can be asked for again, and the response says so."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        response = await respond(served, store=False)
        assert response["store"] is False
        assert (await send(served, f"/{response['id']}", "GET"))["status_code"] == 404
        refused = await send(served, model="writer", input="a", previous_response_id=response["id"])
        assert "store" in refused["error"]["message"]
        async with served.http.get(f"{served.url}/v1/conversations") as listed:
            assert (await listed.json())["data"] == []


async def test_deleted(tmp_path: Path) -> None:
    """The last response of a chain can be deleted, one that others go on from cannot; the first takes all with it."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        first = await respond(served, "First?")
        second = await respond(served, "Second?", previous_response_id=first["id"])
        refused = await send(served, f"/{first['id']}", "DELETE")
        assert (refused["status_code"], refused["error"]["code"]) == (409, "response_in_use")
        deleted = await send(served, f"/{second['id']}", "DELETE")
        assert deleted == {"id": second["id"], "object": "response", "deleted": True, "status_code": 200}
        assert (await send(served, f"/{second['id']}", "GET"))["status_code"] == 404
        assert (await send(served, f"/{first['id']}", "GET"))["status_code"] == 200


async def test_the_last_response_takes_its_conversation_with_it(tmp_path: Path) -> None:
    """Of a conversation with one response nothing is left."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        only = await respond(served)
        assert (await send(served, f"/{only['id']}", "DELETE"))["deleted"] is True
        async with served.http.get(f"{served.url}/v1/conversations") as listed:
            assert (await listed.json())["data"] == []


async def test_deleted_while_another_is_given(tmp_path: Path) -> None:
    """It is refused until the answer beside it is given, which stays; with the last one goes all that waits too."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        release = asyncio.Event()
        named = {"conversation_id": "notes"}
        first = await respond(served, "First?", metadata=named)
        studio.enqueue(Script(WaitFor(release), "Again."))
        going = asyncio.create_task(respond(served, "First?", metadata=named))
        await eventually(lambda: studio.open_requests, "nobody is asked")
        refused = await send(served, f"/{first['id']}", "DELETE")
        assert (refused["status_code"], refused["error"]["code"]) == (400, "conversation_locked")
        release.set()
        again = await going
        assert (await send(served, f"/{first['id']}", "GET"))["status_code"] == 200
        assert (await send(served, f"/{first['id']}", "DELETE"))["deleted"] is True
        assert text_in(await send(served, f"/{again['id']}", "GET")) == "Again."
        url = f"{served.url}/v1/conversations/notes/queue"
        async with served.http.post(url, json={"content": "And then?"}) as queued:
            assert queued.ok, await queued.text()
        assert (await send(served, f"/{again['id']}", "DELETE"))["deleted"] is True
        assert served.app[SHARED].queue.length == 0


async def test_a_chain_behind_one_that_was_stopped(tmp_path: Path) -> None:
    """What a stopped response had said stays in all that goes on from it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        release = asyncio.Event()
        studio.enqueue(Script("One. ", WaitFor(release)), "Two.", "Three.")
        asking = asyncio.create_task(respond(served, "First?"))
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens, "nothing is said")
        [running] = served.app[SHARED].running._answers
        await send(served, f"/{response_id_of(running.id)}/cancel")
        release.set()
        first = await asking
        assert first["status"] == "cancelled"
        second = await respond(served, "Second?", previous_response_id=first["id"])
        await respond(served, "Third?", previous_response_id=second["id"])
        said = [text for _, text in said_to(studio.chats[-1].body)]
        assert said == ["First?", text_in(first), "Second?", "Two.", "Third?"]


async def test_one_that_a_crash_has_ended(tmp_path: Path) -> None:
    """What had been written of it is there, and the next response goes on from that."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        settings = settings_for(studio.base_url, agents=f"[store]\nretention_days = 0\n{AGENT}")  # it is an old one
        async with serve(tmp_path, settings) as served:
            conversations = served.app[SHARED].store.conversations
            conversations.note([*begun("conv_1", "First?", owner=""), *turn_begun("turn_1", "conv_1", "conv_1.1")])
            assert await conversations.settled()
        async with serve(tmp_path, settings) as served:
            kept = await send(served, "/resp_1", "GET")
            assert (kept["status"], text_in(kept)) == ("cancelled", "Let me look.")
            studio.enqueue("Two.", "Three.")
            second = await respond(served, "Second?", previous_response_id="resp_1")
            await respond(served, "Third?", previous_response_id=second["id"])
            said = [text for _, text in said_to(studio.chats[-1].body)]
            assert said == ["First?", "Let me look.", "Second?", "Two.", "Third?"]


async def test_with_conversations_switched_off(tmp_path: Path) -> None:
    """Where the settings keep nothing, a response says that it is not stored."""
    agents = f"{AGENT}[store]\nconversations = false\n"
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, _):
        response = await respond(served)
        assert response["store"] is False
        assert (await send(served, f"/{response['id']}", "GET"))["status_code"] == 404


async def test_stopped_before_its_first_word(tmp_path: Path) -> None:
    """One that has said nothing can be looked at and stopped as well, also where it is not kept."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        for stores in (True, False):
            studio.enqueue(Script(WaitFor(asyncio.Event())))
            asking = asyncio.create_task(respond(served, store=stores))
            await eventually(lambda: studio.open_requests == 1, "nothing is asked")
            [running] = served.app[SHARED].running._answers
            response_id = response_id_of(running.id)
            shown = await send(served, f"/{response_id}", "GET")
            stopped = await send(served, f"/{response_id}/cancel")
            assert (shown["status"], stopped["status"]) == ("in_progress", "cancelled")
            check_schema("Response", shown)
            check_schema("Response", stopped)
            assert (await asking)["status"] == "cancelled"
            assert (await send(served, f"/{response_id}/cancel"))["status_code"] == 404
