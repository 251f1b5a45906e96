"""Two servers on one PostgreSQL: what one of them keeps the other knows, and each reaches what the other runs."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from chatting import eventually
from scripted_pruner import is_prune_order, valid_plan
from serving import Served
from several_servers import several_servers
from watched_stream import statuses_of, watched

from elbowroom.demo import Script, WaitFor
from elbowroom.server.state import SHARED

Body = dict[str, Any]


async def say(served: Served, messages: list[Body], name: str = "") -> str:
    """Ask with the whole history; return the answer."""
    headers = {"X-Conversation-Id": name} if name else {}
    body = {"model": "writer", "messages": messages}
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        answer = await response.json()
        assert response.status == 200, answer
        text: str = answer["choices"][0]["message"]["content"]
        return text


async def shown(served: Served, path: str) -> Body:
    """Return what a route shows."""
    async with served.http.get(f"{served.url}{path}") as response:
        answer: Body = await response.json()
        assert response.status == 200, answer
        return answer


async def send(served: Served, path: str, body: Body) -> Body:
    """Post to a route and return what it answers."""
    async with served.http.post(f"{served.url}{path}", json=body) as response:
        answer: Body = await response.json()
        assert response.status < 300, answer
        return answer


async def until_running(served: Served, name: str) -> None:
    """Wait until a server knows that a conversation is being answered."""
    for _ in range(100):
        rows = (await shown(served, "/v1/conversations"))["data"]
        if any((row["name"], row["status"]) == (name, "running") for row in rows):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{name} does not run")


@pytest.mark.slow
async def test_a_conversation_goes_on_at_the_other_server(tmp_path: Path) -> None:
    """Question by question at another server, a conversation without a name stays one, and nothing is there twice."""
    async with several_servers(tmp_path) as (servers, studio):
        messages: list[Body] = []
        for number in range(6):
            messages.append({"role": "user", "content": f"Question {number}."})
            studio.enqueue(f"Answer {number}.")
            answer = await say(servers[number % 2], messages)
            assert answer == f"Answer {number}."
            messages.append({"role": "assistant", "content": answer})
        for served in servers:
            rows = (await shown(served, "/v1/conversations"))["data"]
            assert len(rows) == 1
            page = await shown(served, f"/v1/conversations/{rows[0]['id']}/messages?branch=all")
            assert [row["message"]["content"] for row in page["data"]] == [each["content"] for each in messages]


@pytest.mark.slow
async def test_a_cancel_reaches_the_server_that_answers(tmp_path: Path) -> None:
    """Each server shows what the other runs, and a cancel at one ends the other's answer within half a second."""
    async with several_servers(tmp_path) as (servers, studio):
        one, other = servers
        studio.enqueue(Script("Once upon a time, ", WaitFor(asyncio.Event())))
        running = asyncio.create_task(say(one, [{"role": "user", "content": "Tell a story."}], "story"))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        await until_running(other, "story")
        assert [turn["agent"] for turn in (await shown(other, "/api/live"))["data"]] == ["writer"]
        began = time.monotonic()
        answer = await send(other, "/v1/conversations/story/cancel", {})
        seconds = time.monotonic() - began
        assert (answer["cancelled"], answer["status"]) == (1, "idle")
        assert (await running).strip() == "Once upon a time,"
        assert studio.open_requests == 0
        assert seconds < 0.5
        assert (await shown(other, "/v1/conversations/story"))["status"] == "idle"
        page = await shown(other, "/v1/conversations/story/messages")
        assert page["data"][-1]["message"]["content"].strip() == "Once upon a time,"


@pytest.mark.slow
async def test_a_cancel_elsewhere_tells_who_waits(tmp_path: Path) -> None:
    """The stream of the answer that another server stops tells what nobody will read; the next answer is silent."""
    async with several_servers(tmp_path) as (servers, studio):
        one, other = servers
        studio.enqueue(Script("Once upon a time, ", WaitFor(asyncio.Event())))
        body = {"model": "writer", "messages": [{"role": "user", "content": "Tell a story."}]}
        async with watched(one, body, **{"X-Conversation-Id": "story"}) as stream:
            await until_running(other, "story")
            await send(other, "/v1/conversations/story/queue", {"content": "Shorter.", "mode": "follow_up"})
            await eventually(lambda: one.app[SHARED].queue.length == 1, "the server that answers has not taken it")
            dropped = (await send(other, "/v1/conversations/story/cancel", {}))["dropped"]
            assert [row["message"]["content"] for row in dropped] == ["Shorter."]
            told = [status["description"] for status in statuses_of(await stream.rest())]
        assert "Not read, since the answer was stopped: Shorter." in told
        async with watched(other, body, **{"X-Conversation-Id": "story"}) as stream:
            assert not any("Shorter" in status["description"] for status in statuses_of(await stream.rest()))


@pytest.mark.slow
async def test_what_is_said_meanwhile_reaches_the_answer(tmp_path: Path) -> None:
    """A message that is queued at another server is taken in by the answer that runs, once."""
    async with several_servers(tmp_path) as (servers, studio):
        one, other = servers
        held = asyncio.Event()
        studio.enqueue(Script("The peas ", WaitFor(held), "come in March."), "And the beans in May.")
        running = asyncio.create_task(say(one, [{"role": "user", "content": "When?"}], "garden"))
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        await until_running(other, "garden")
        queued = await send(other, "/v1/conversations/garden/queue", {"content": "And the beans?"})
        assert (queued["position"], queued["stored"], queued["running"]) == (1, True, True)
        for served in servers:
            listed = await shown(served, "/v1/conversations/garden/queue")
            assert [row["id"] for row in listed["data"]] == [queued["id"]]
        await eventually(lambda: one.app[SHARED].queue.length == 1, "the server that answers has not taken it")
        held.set()
        assert "And the beans in May." in await running
        assert sum("And the beans?" in str(chat.body["messages"][-1]) for chat in studio.chats) == 1
        for served in servers:
            assert (await shown(served, "/v1/conversations/garden/queue"))["data"] == []


@pytest.mark.slow
async def test_what_waits_goes_to_whoever_answers_next(tmp_path: Path) -> None:
    """Messages for a conversation that nobody answers are taken by the next turn, at any server, in order."""
    async with several_servers(tmp_path, 3) as (servers, studio):
        await say(servers[0], [{"role": "user", "content": "Hello."}], "talk")
        for number in range(4):
            await send(servers[number % 3], "/v1/conversations/talk/queue", {"content": f"Word {number}."})
        removed = (await shown(servers[1], "/v1/conversations/talk/queue"))["data"][1]["id"]
        async with servers[2].http.delete(f"{servers[2].url}/v1/conversations/talk/queue/{removed}") as response:
            assert response.status == 200
        before = len(studio.chats)
        await say(servers[2], [{"role": "user", "content": "Now."}], "talk")
        said = str([chat.body["messages"] for chat in studio.chats[before:]][-1])
        places = [said.find(f"Word {number}.") for number in range(4)]
        assert places[1] == -1
        assert [places[0], places[2], places[3]] == sorted([places[0], places[2], places[3]])
        assert min(places[0], places[2]) > 0
        assert (await shown(servers[0], "/v1/conversations/talk/queue"))["data"] == []


@pytest.mark.slow
async def test_a_compaction_is_found_by_the_other_server(tmp_path: Path) -> None:
    """A history that one server has compacted is not compacted again by another one."""
    settings = '[[agents]]\nid = "writer"\nmodel = "qwen2.5-1.5b-instruct"\n[compaction]\nbackground = false\n'
    async with several_servers(tmp_path, window=2048, agents=settings) as (servers, studio):
        messages: list[Body] = []
        for turn in range(6):
            messages.append({"role": "user", "content": f"Question {turn}. " + "The boat goes on. " * 60})
            messages.append({"role": "assistant", "content": await say(servers[turn % 2], messages)})
        compactions = [await shown(served, "/v1/conversations") for served in servers]
        counts = [row["data"][0]["compaction_count"] for row in compactions]
        assert counts[0] == counts[1] > 0
        before = len(studio.chats)
        again = [*messages, {"role": "user", "content": "And?"}]
        await say(servers[0], again)
        await say(servers[1], again)
        assert all(chat.fitted for chat in studio.chats)
        rows = (await shown(servers[0], "/v1/conversations"))["data"]
        assert sum(row["compaction_count"] for row in rows) <= counts[0] + 1
        assert len(studio.chats) <= before + 3


@pytest.mark.slow
async def test_the_same_compaction_is_paid_once(tmp_path: Path) -> None:
    """Of two servers that get the same long history at the same moment one asks the pruning agent, and both use it."""
    settings = '[[agents]]\nid = "writer"\nmodel = "qwen2.5-1.5b-instruct"\n[compaction]\nbackground = false\n'

    def says(body: Body) -> Script | str:
        return valid_plan(body) if is_prune_order(body) else "It is so."

    async with several_servers(tmp_path, window=2048, agents=settings, on_request=says) as (servers, studio):
        messages: list[Body] = []
        for turn in range(8):
            messages.append({"role": "user", "content": f"Question {turn}. " + "The boat goes on. " * 50})
            messages.append({"role": "assistant", "content": "It is so."})
        messages.append({"role": "user", "content": "And?"})
        await asyncio.gather(*(say(served, messages) for served in servers))
        orders = [json.dumps(chat.body["messages"]) for chat in studio.chats if is_prune_order(chat.body)]
        assert len(orders) == len(set(orders)) > 0
        assert len(studio.chats) == len(orders) + 2


@pytest.mark.slow
async def test_a_response_is_shown_and_cancelled_at_the_other_server(tmp_path: Path) -> None:
    """A server tells of a response that another one gives, refuses to go on from it or delete it, and cancels it."""
    async with several_servers(tmp_path) as (servers, studio):
        one, other = servers
        studio.enqueue(Script("Once upon a time, ", WaitFor(asyncio.Event())))
        asked = {"model": "writer", "input": "Tell a story.", "background": True}
        response = await send(one, "/v1/responses", asked)
        path = f"/v1/responses/{response['id']}"
        await eventually(lambda: studio.open_requests == 1, "the model is asked")
        await eventually_shown(other, path, "in_progress")
        for method, where, body in (
            ("POST", "/v1/responses", {**asked, "previous_response_id": response["id"]}),
            ("DELETE", path, {}),
        ):
            async with other.http.request(method, f"{other.url}{where}", json=body) as refused:
                assert (await refused.json())["error"]["code"] == "response_running"
        cancelled = await send(other, f"{path}/cancel", {})
        assert (cancelled["id"], cancelled["status"]) == (response["id"], "cancelled")
        await eventually(lambda: studio.open_requests == 0, "the model is left alone")
        assert (await shown(one, path))["status"] == "cancelled"
        async with other.http.post(f"{other.url}/v1/responses/resp_none/cancel", json={}) as unknown:
            assert unknown.status == 404


async def eventually_shown(served: Served, path: str, status: str) -> None:
    """Wait until a response is shown with a status."""
    for _ in range(100):
        async with served.http.get(f"{served.url}{path}") as response:
            if (await response.json()).get("status") == status:
                return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} is not {status}")
