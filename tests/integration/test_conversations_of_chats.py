"""Chats, and what the conversation API tells of them afterwards: nothing that was said is missing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, elbowroom_with_studio, eventually, stream_bytes
from own_tools import own_tool
from serving import Served

from elbowroom.demo import Pause, Reasoning, Script, SimulatedLMStudio, ToolCall
from elbowroom.server.state import SHARED

SYSTEM = {"role": "system", "content": "You help with notes."}
Message = dict[str, Any]


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    return f"The note {path} says: water the plants."


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run elbowroom, whose agents have a tool, in front of a simulated LM Studio."""
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [read_note] if target.agent else []) as both:
        yield both


async def chat(served: Served, messages: list[Message], model: str = "writer", **headers: str) -> tuple[str, str]:
    """Send a history; return the conversation's id and the answer, which is put behind it."""
    body = {"model": model, "messages": messages}
    async with served.http.post(served.chat_url, json=body, headers=headers) as response:
        answer = await response.json()
        assert response.status == 200, answer
    text = answer["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": text})
    return response.headers["X-Conversation-Id"], text


async def get(served: Served, path: str = "", **query: str) -> dict[str, Any]:
    """Return what is answered."""
    async with served.http.get(f"{served.url}/v1/conversations{path}", params=query) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == 200, answer
        return answer


def contents(page: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return roles and contents of the messages on a page."""
    return [(item["message"]["role"], item["message"]["content"]) for item in page["data"]]


async def test_turn_behind_turn(pair: tuple[Served, SimulatedLMStudio]) -> None:
    """Histories that grow are one conversation, with what tools returned and the client never saw, each once."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", {"path": "todo.md"})))
    studio.enqueue(Script(Reasoning("A short one."), "Water the plants."))
    studio.enqueue(Script("Nothing else."))
    history = [SYSTEM, {"role": "user", "content": "What is in my list?"}]
    first, _ = await chat(served, history)
    history.append({"role": "user", "content": "And what else?"})
    second, _ = await chat(served, history)
    assert first == second
    messages = await get(served, f"/{first}/messages", branch="all")
    latest = await get(served, f"/{first}/messages")
    assert contents(latest) == contents(messages)
    told = [(role, content) for role, content in contents(messages) if role != "system"]
    assert told == [
        ("user", "What is in my list?"),
        ("assistant", told[1][1]),
        ("tool", "The note todo.md says: water the plants."),
        ("assistant", "Water the plants."),
        ("user", "And what else?"),
        ("assistant", "Nothing else."),
    ]
    assert not told[1][1]
    assert [item["hidden"] for item in messages["data"] if item["message"]["role"] == "tool"] == [True]
    assert [item["reasoning"] for item in messages["data"] if item["reasoning"]] == ["A short one."]
    shown = await get(served, f"/{first}")
    assert (shown["title"], shown["agent"], shown["status"]) == ("What is in my list?", "writer", "idle")
    usage = shown["usage"]
    assert usage["steps"] == 3
    assert usage["input"] + usage["output"] + usage["cache_creation"] + usage["cache_read"] == usage["total"] > 0
    assert shown["context"]["window"] == 32_768
    assert 0 < shown["context"]["tokens"] < usage["total"]
    assert shown["context"]["thresholds"] == {"trigger": 0.75, "stop": 0.9}
    assert [row["id"] for row in (await get(served, q="WATER the plants"))["data"]] == [first]


async def test_asked_again(pair: tuple[Served, SimulatedLMStudio]) -> None:
    """An answer that is asked for again is another branch of the same conversation."""
    served, studio = pair
    for answer in ("One.", "Two.", "Three."):
        studio.enqueue(Script(answer))
    history = [{"role": "user", "content": "Say a number."}]
    conversation, _ = await chat(served, history, **{"X-Conversation-Id": "numbers"})
    again = history[:1]
    await chat(served, again, **{"X-Conversation-Id": "numbers"})
    assert contents(await get(served, "/numbers/messages")) == [("user", "Say a number."), ("assistant", "Two.")]
    again.append({"role": "user", "content": "Another one."})
    await chat(served, again, **{"X-Conversation-Id": "numbers"})
    latest = contents(await get(served, f"/{conversation}/messages"))
    assert [content for _, content in latest] == ["Say a number.", "Two.", "Another one.", "Three."]
    exported = await get(served, f"/{conversation}/export")
    assert len(exported["branch_ends"]) == 2
    assert [kept["message"]["content"] for kept in exported["messages"]].count("Say a number.") == 1


async def test_a_client_that_leaves(pair: tuple[Served, SimulatedLMStudio]) -> None:
    """What was said until then is there, marked as interrupted."""
    served, studio = pair
    studio.enqueue(Script("The first words", Pause(60), " and the last."))
    body = {"model": "writer", "messages": [{"role": "user", "content": "Speak."}], "stream": True}
    async with served.http.post(served.chat_url, json=body) as response:
        conversation = response.headers["X-Conversation-Id"]
        async for line in response.content:
            if b"words" in line:
                break
        assert (await get(served, f"/{conversation}"))["status"] == "running"
        response.close()
    running = served.app[SHARED].running
    await eventually(lambda: running.status("", conversation).status == "idle", "the turn goes on")
    async with served.http.get(f"{served.url}/v1/conversations/{conversation}/export?format=markdown") as response:
        text = await response.text()
    assert "## 2. writer (interrupted)\n" in text
    assert "> The first words\n" in text


async def test_deleted_while_the_client_goes_on(pair: tuple[Served, SimulatedLMStudio]) -> None:
    """Who goes on with a deleted conversation begins another, with all that is sent."""
    served, studio = pair
    for answer in ("One.", "Two."):
        studio.enqueue(Script(answer))
    history = [{"role": "user", "content": "Say a number."}]
    first, _ = await chat(served, history)
    async with served.http.delete(f"{served.url}/v1/conversations/{first}") as response:
        assert response.status == 200
    history.append({"role": "user", "content": "Another one."})
    second, _ = await chat(served, history)
    assert first != second
    assert [row["id"] for row in (await get(served))["data"]] == [second]
    assert [content for _, content in contents(await get(served, f"/{second}/messages"))] == [
        "Say a number.",
        "One.",
        "Another one.",
        "Two.",
    ]


async def test_a_raw_model(pair: tuple[Served, SimulatedLMStudio]) -> None:
    """Chats with a raw model are kept as those with agents are."""
    served, studio = pair
    studio.enqueue(Script("Hello."))
    await stream_bytes(served, {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Hi"}]})
    [row] = (await get(served))["data"]
    assert row["agent"] == RAW_MODEL
    assert contents(await get(served, f"/{row['id']}/messages")) == [("user", "Hi"), ("assistant", "Hello.")]
