"""A person stops a running answer, in every phase: what was said stands, and everything that was begun is ended."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cancelling import ask, assert_kept, assert_nothing_open, cancel, is_answering, last_turn, post_cancel, stopped_when
from chatting import AGENT, MODEL, RAW_MODEL, ask_beside, chat_body, elbowroom_with_studio, eventually, function_spec
from own_tools import own_tool
from spread_variants import spread
from watched_stream import statuses_of

from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Reasoning, Script, SimulatedModel, ToolCall, WaitFor
from elbowroom.server.state import SHARED

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
EACH_ONCE = pytest.mark.parametrize(("model", "stream"), spread(["writer", RAW_MODEL], [True, False]))
LONG = "word " * 4000


def endless_tool() -> tuple[ServerTool, asyncio.Event, asyncio.Event]:
    """Return a tool that works for long, and what tells that it has begun and ended."""
    began, ended = asyncio.Event(), asyncio.Event()

    @own_tool
    async def work() -> str:
        """Work for long."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.02)  # it has something to put away
            ended.set()
        return "done"

    return work, began, ended


@EACH_ONCE
async def test_while_text_streams(tmp_path: Path, model: str, stream: bool) -> None:
    """The client gets what was said until then and a normal end; the same is kept, and the next request works."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(LONG)
        body = chat_body(model=model, stream=stream, stream_options={"include_usage": True})
        received, answer = await stopped_when(served, body, lambda: is_answering(served, studio))
        assert answer["object"] == "conversation.cancelled"
        assert (answer["id"], answer["cancelled"]) == (received.conversation, 1)
        assert (answer["status"], answer["queue"]) == ("idle", 0)
        assert studio.open_requests == 0
        assert received.text.startswith("word")
        assert received.finish == "stop"
        assert received.usage is not None
        assert 0 < received.usage["completion_tokens"] < 4000
        [disconnect] = studio.disconnects
        assert disconnect.phase == "streaming"
        await assert_kept(served, received)
        assert [message.status for message in await last_turn(served)] == ["interrupted"]
        assert (await ask(served, chat_body(model=model))).finish == "stop"


@STREAMED
async def test_while_the_model_thinks(tmp_path: Path, stream: bool) -> None:
    """Thoughts are no answer: the text is empty, and the end is a normal one."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(Script(Reasoning("hm " * 4000), "Yes."))
        received, _ = await stopped_when(served, chat_body(stream=stream), lambda: is_answering(served, studio))
        assert (received.text, received.finish) == ("", "stop")
        [kept] = await last_turn(served)
        assert (kept.status, kept.reasoning[:2]) == ("interrupted", "hm")
        await assert_nothing_open(studio)


@EACH_ONCE
async def test_during_prefill(tmp_path: Path, model: str, stream: bool) -> None:
    """Nothing was said: an empty answer."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.prefill_tokens_per_second = 0.1
        body = chat_body("word " * 20, model=model, stream=stream)
        received, _ = await stopped_when(served, body, lambda: studio.chats and studio.chats[0].phase == "prefill")
        assert (received.text, received.finish) == ("", "stop")
        [disconnect] = studio.disconnects
        assert disconnect.phase == "prefill"


@STREAMED
async def test_while_the_model_loads(tmp_path: Path, stream: bool) -> None:
    """The notice that told of it is closed."""
    async with elbowroom_with_studio(tmp_path, model=SimulatedModel(MODEL, load_seconds=60)) as (served, studio):
        received, _ = await stopped_when(
            served, chat_body(stream=stream), lambda: studio.chats and studio.chats[0].phase == "loading"
        )
        assert (received.text, received.finish, received.open_statuses) == ("", "stop", 0)
        await assert_nothing_open(studio)


async def test_while_queued_upstream(tmp_path: Path) -> None:
    """One that waits behind that of another program in the model's queue is stopped; the other is answered."""
    model = SimulatedModel(MODEL, loaded_context_length=32_768, parallel=1)
    async with elbowroom_with_studio(tmp_path, model=model) as (served, studio):
        release = asyncio.Event()
        studio.enqueue(Script(WaitFor(release), "First."))
        first = asyncio.create_task(ask_beside(served, studio))
        await eventually(lambda: studio.chats and studio.chats[0].phase == "streaming", "the first did not begin")
        received, _ = await stopped_when(
            served, chat_body(stream=True), lambda: len(studio.chats) == 2 and studio.chats[1].phase == "queued"
        )
        assert received.text == ""
        release.set()
        assert await first == "First."


@STREAMED
async def test_while_a_server_tool_runs(tmp_path: Path, stream: bool) -> None:
    """The tool has ended when the stop is answered, the call is kept, and the model is not asked again."""
    work, began, ended = endless_tool()
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work]) as (served, studio):
        studio.enqueue(Script("Working.", ToolCall("work")))
        asking = asyncio.create_task(ask(served, chat_body(stream=stream)))
        await began.wait()
        assert (await cancel(served))["cancelled"] == 1
        assert ended.is_set()
        received = await asking
        assert (received.text, received.finish) == ("Working.", "stop")
        assert len(studio.chats) == 1
        [kept] = await last_turn(served)
        assert kept.message["tool_calls"][0]["function"]["name"] == "work"


@STREAMED
async def test_in_a_later_step(tmp_path: Path, stream: bool) -> None:
    """What a tool has returned before is kept as well, behind the call and before what was being said."""

    @own_tool
    async def work() -> str:
        """Work."""
        return "The pier is open."

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work]) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(Script("First I look.", ToolCall("work")), LONG)
        received, _ = await stopped_when(served, chat_body(stream=stream), lambda: is_answering(served, studio, 1))
        assert received.text.startswith("First I look.\n\nword")
        kept = await last_turn(served)
        assert [message.message["role"] for message in kept] == ["assistant", "tool", "assistant"]
        assert [message.status for message in kept] == ["complete", "complete", "interrupted"]
        await assert_nothing_open(studio)


async def test_while_an_agent_serves_as_a_tool(tmp_path: Path) -> None:
    """The request of the agent behind the agent is closed too."""
    agents = AGENT + f'agent_tools = ["helper"]\n[[agents]]\nid = "helper"\nmodel = "{MODEL}"\n'
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(Script(ToolCall("ask_helper", {"request": "a"})), LONG)
        received, _ = await stopped_when(
            served,
            chat_body(stream=True),
            lambda: len(studio.chats) == 2 and studio.chats[1].completion_tokens > 3,
        )
        assert (received.text, received.finish) == ("", "stop")
        await assert_nothing_open(studio)
        assert len(studio.chats) == 2


@STREAMED
async def test_calls_of_the_client_beside_a_tool_that_runs(tmp_path: Path, stream: bool) -> None:
    """No tool is to be run for an answer that was stopped: it does not end with calls, and a whole one has none."""
    work, began, _ = endless_tool()
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work]) as (served, studio):
        studio.enqueue(Script(ToolCall("open_note", {"path": "a"}), ToolCall("work")))
        body = chat_body(stream=stream, tools=[function_spec("open_note")])
        asking = asyncio.create_task(ask(served, body))
        await began.wait()
        await cancel(served)
        received = await asking
        assert (received.finish, received.calls) == ("stop", stream)


@pytest.mark.fault("two clients at once", "stop", "both are stopped")
async def test_branches_of_one_conversation(tmp_path: Path) -> None:
    """Two answers at once in a conversation are stopped together; that of another conversation goes on."""
    release = asyncio.Event()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(*(Script(f"This is answer {number}.", WaitFor(release)) for number in range(3)))
        asked = [
            asyncio.create_task(ask(served, chat_body(f"Question {number}"), name=name))
            for number, name in enumerate(["the ferry", "the ferry", "another"])
        ]
        await eventually(lambda: [c.phase for c in studio.chats] == ["streaming"] * 3, "not all are answered")
        answer = await cancel(served)
        assert (answer["cancelled"], answer["status"]) == (2, "idle")
        release.set()
        assert [(await one).finish for one in asked] == ["stop"] * 3
        assert len(studio.disconnects) == 2


async def test_title_tasks_are_no_turns(tmp_path: Path) -> None:
    """A task of the client has no conversation: no header names one, and it is not stopped with the chat."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        headers = {"X-Conversation-Id": "the ferry", "X-Elbowroom-Task": "title"}
        async with served.http.post(served.chat_url, json=chat_body(), headers=headers) as response:
            assert response.status == 200
            assert "X-Conversation-Id" not in response.headers
        status, answer = await post_cancel(served)
        assert status == 404, answer


async def test_idle_unknown_and_somebody_elses(tmp_path: Path) -> None:
    """By the id and by the client's name; nothing runs: 0; nothing is known, or only of another owner: 404 in words."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        received = await ask(served, chat_body(), **{"X-Elbowroom-User": "anna"})
        for name in (received.conversation, "the ferry"):
            status, answer = await post_cancel(served, name, owner="anna")
            assert (status, answer["id"], answer["cancelled"]) == (200, received.conversation, 0)
            assert (answer["status"], answer["queue"]) == ("idle", 0)
        for owner in ("", "otto"):
            status, answer = await post_cancel(served, owner=owner)
            assert status == 404
            assert "the ferry" in answer["error"]["message"]


@pytest.mark.slow
async def test_somebody_elses_running_turn(tmp_path: Path) -> None:
    """Who knows the id of another's conversation cannot stop it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue("word " * 100)
        asking = asyncio.create_task(ask(served, chat_body(), **{"X-Elbowroom-User": "anna"}))
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens > 3, "nothing is said")
        status, _ = await post_cancel(served, owner="otto")
        assert status == 404
        assert (await asking).text.split() == ["word"] * 100


async def test_empty_body(tmp_path: Path) -> None:
    """What is not said has its default."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        received = await ask(served, chat_body())
        url = f"{served.url}/v1/conversations/{received.conversation}/cancel"
        async with served.http.post(url, headers={"Content-Type": "application/json"}) as response:
            assert (response.status, (await response.json())["status"]) == (200, "idle")


@pytest.mark.parametrize(
    ("wish", "named"), [({"queue": "drop"}, "queue"), ({"grace": "yes"}, "grace"), ({"queue": 1}, "queue")]
)
async def test_wrong_wishes(tmp_path: Path, wish: dict[str, Any], named: str) -> None:
    """What cannot be meant is refused with the name of the field, and stops nothing."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        await ask(served, chat_body())
        status, answer = await post_cancel(served, **wish)
        assert (status, answer["error"]["param"]) == (400, named)


@pytest.mark.parametrize(("wish", "left"), [({}, 0), ({"queue": "keep"}, 2), ({"queue": "clear"}, 0)])
async def test_queue(tmp_path: Path, wish: dict[str, Any], left: int) -> None:
    """What waits in the queue is dropped and given back to whoever stops, or stays there where that is wanted."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(LONG)
        asking = asyncio.create_task(ask(served, chat_body()))
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens > 3, "nothing is said")
        queue, running = served.app[SHARED].queue, served.app[SHARED].running
        conversation = running.find("", "the ferry")
        assert conversation is not None
        for text in ("Shorter, please.", "And in French."):
            await queue.add(conversation, {"role": "user", "content": text}, "steer")
        answer = await cancel(served, **wish)
        assert answer["queue"] == left
        dropped = [item["message"]["content"] for item in answer["dropped"]]
        assert dropped == ([] if left else ["Shorter, please.", "And in French."])
        assert len(queue.waiting(conversation)) == left
        async with served.http.get(f"{served.url}/v1/conversations/{conversation}/queue") as response:
            told = await response.json()
        assert [item["message"]["content"] for item in told["dropped"]] == dropped  # so is each who waits
        assert len(told["data"]) == left
        assert (await asking).finish == "stop"


@pytest.mark.slow
@EACH_ONCE
async def test_who_waits_is_told_at_once(tmp_path: Path, model: str, stream: bool) -> None:
    """The stopped answer's stream tells what nobody will read; where none is open, the next one does, and only once."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        queue, running = served.app[SHARED].queue, served.app[SHARED].running
        studio.tokens_per_second = 200
        studio.enqueue(LONG)
        asking = asyncio.create_task(ask(served, chat_body(model=model, stream=stream)))
        await eventually(lambda: is_answering(served, studio), "nothing is said")
        conversation = running.find("", "the ferry")
        assert conversation is not None
        await queue.add(conversation, {"role": "user", "content": "Shorter, please."}, "follow_up")
        await cancel(served)
        later = [await ask(served, chat_body(model=model, stream=True)) for _ in range(2)]
        told = [[status["description"] for status in statuses_of(got.stream)] for got in (await asking, *later)]
        line = "Not read, since the answer was stopped: Shorter, please."
        assert [statuses.count(line) for statuses in told] == [int(stream), int(not stream), 0]


async def test_an_idle_conversations_next_answer_tells(tmp_path: Path) -> None:
    """What waited where nothing ran is told of by the next answer; what the next answer has read is not."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        first, queue = await ask(served, chat_body()), served.app[SHARED].queue
        for content in ("Shorter, please.", "In French."):
            await queue.add(first.conversation, {"role": "user", "content": content}, "steer")
            if content.startswith("Shorter"):
                await cancel(served)
        told = [status["description"] for status in statuses_of((await ask(served, chat_body(stream=True))).stream)]
        assert "Not read, since the answer was stopped: Shorter, please." in told
        assert "Taken in: In French." in told
        assert not any("stopped: In French" in line for line in told)


async def test_status_tells_how_far_it_is(tmp_path: Path) -> None:
    """Prefill, text, tool: a conversation that runs says where it is, and one that does not is idle."""
    work, began, _ = endless_tool()
    read, release = asyncio.Event(), asyncio.Event()
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work]) as (served, studio):
        running = served.app[SHARED].running
        studio.enqueue(Script(WaitFor(read), "Working on it now.", WaitFor(release), ToolCall("work")))
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))

        def phase() -> str | None:
            conversation = running.find("", "the ferry")
            return running.status("", conversation).phase if conversation else None

        await eventually(lambda: phase() == "prefill", "the prompt is not read")
        read.set()
        await eventually(lambda: phase() == "streaming", "nothing is said")
        release.set()
        await began.wait()
        assert phase() == "tool"
        conversation = (await cancel(served))["id"]
        assert running.status("", conversation).status == "idle"
        assert (await asking).finish == "stop"


async def test_a_client_that_leaves_is_not_a_stop(tmp_path: Path) -> None:
    """Both at the same moment: everything is closed, and nothing hangs."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(LONG)
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens > 3, "nothing is said")
        stopping = asyncio.create_task(cancel(served))
        asking.cancel()
        await asyncio.wait([asking])
        assert (await stopping)["status"] == "idle"
        await assert_nothing_open(studio)
        [kept] = await last_turn(served)
        assert kept.status == "interrupted"


async def test_whoever_stops_may_leave(tmp_path: Path) -> None:
    """The stop has effect though nobody waits for its answer."""
    work, began, ended = endless_tool()
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work]) as (served, studio):
        studio.enqueue(Script(ToolCall("work")))
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        await began.wait()
        stopping = asyncio.create_task(cancel(served))
        await eventually(ended.is_set, "the tool goes on")
        stopping.cancel()
        assert (await asking).finish == "stop"
