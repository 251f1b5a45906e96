"""Results of tools that fit no call: the model reads them all the same, the log tells it, and counts include them."""

import logging
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, elbowroom_with_studio
from responding import send
from serving import Served

from elbowroom.demo import Script
from elbowroom.demo import ToolCall as SimulatedCall

Json = dict[str, Any]

ASK: Json = {"role": "user", "content": "What grows?"}
BYE: Json = {"role": "user", "content": "And now?"}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "beds"}'}}
CALLS: Json = {"role": "assistant", "content": "", "tool_calls": [CALL]}


def result(text: str, call_id: str) -> Json:
    """Return the result of a tool."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


HISTORIES: dict[str, tuple[list[Json], int]] = {
    "no call": ([ASK, result("RESULT", "z"), BYE], 1),
    "another id": ([ASK, CALLS, result("RESULT", "c2"), BYE], 0),
    "second result": ([ASK, CALLS, result("FIRST", "c1"), result("RESULT", "c1"), BYE], 1),
    "result alone": ([result("RESULT", "z")], 1),
}
"""Histories with the number of results that no call takes."""


async def counted(served: Served, body: Json) -> int:
    """Return the count of a request."""
    async with served.http.post(f"{served.url}/v1/chat/completions/input_tokens", json=body) as response:
        assert response.status == 200, await response.text()
        return int((await response.json())["input_tokens"])


@pytest.mark.fault("result without a call", "first", "the model reads it")
@pytest.mark.parametrize(("messages", "orphans"), HISTORIES.values(), ids=HISTORIES.keys())
@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_model_reads_every_result(
    tmp_path: Path, messages: list[Json], orphans: int, model: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No result is dropped or taken for interrupted; a line in the log counts those without a call; the count fits."""
    caplog.set_level(logging.WARNING, "elbowroom")
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        body = {"model": model, "messages": messages}
        count = await counted(served, body)
        async with served.http.post(served.chat_url, json=body) as response:
            assert (await response.json())["usage"]["prompt_tokens"] == count
    sent = str(studio.chats[0].body["messages"])
    assert "RESULT" in sent
    assert "interrupted" not in sent
    told = [record.getMessage() for record in caplog.records if "answer no call" in record.getMessage()]
    assert [line.split(": ")[1].split(" ")[0] for line in told] == [str(orphans)] * bool(orphans)


async def test_response_with_the_output_of_another_call(tmp_path: Path) -> None:
    """Where the server keeps the calls, an output of none of them is a 400 that names it, and no model is asked."""
    tools = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script(SimulatedCall("look", {"at": "beds"})), "Oats.")
        first = await send(served, model="writer", input="What grows?", tools=tools)
        said: Json = {"model": "writer", "tools": tools, "previous_response_id": first["id"]}
        output = {"type": "function_call_output", "call_id": "call_of_nobody", "output": "RESULT"}
        refused = await send(served, input=[output], **said)
        assert (refused["status_code"], refused["error"]["param"]) == (400, "input")
        assert refused["error"]["message"].startswith(
            "No tool call found for function call output with call_id 'call_of_nobody'."
        )
        assert len(studio.chats) == 1
        alone = await send(served, model="writer", input=[ASK, output])  # kept, and no reason to refuse what follows
        going_on = await send(served, model="writer", input="And?", previous_response_id=alone["id"])
        assert going_on["status"] == "completed"
        right = {**output, "call_id": first["output"][-1]["call_id"]}
        assert (await send(served, input=[right], **said))["status"] == "completed"


async def test_output_of_a_shell_call_by_the_id_of_its_item(tmp_path: Path) -> None:
    """Old clients name the item of the call instead of the call: they are answered."""
    tools = [{"type": "local_shell"}]
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script(SimulatedCall("local_shell", {"command": ["ls"]})), "Oats.")
        first = await send(served, model="writer", input="What grows?", tools=tools)
        output = {"type": "local_shell_call_output", "id": first["output"][-1]["id"], "output": "RESULT"}
        said: Json = {"model": "writer", "tools": tools, "previous_response_id": first["id"]}
        assert (await send(served, input=[output], **said))["status"] == "completed"
    assert "RESULT" in str(studio.chats[-1].body["messages"])


@pytest.mark.fault("result without a call", "first", "so it does in Responses")
async def test_response_with_an_output_without_a_call(tmp_path: Path) -> None:
    """An orphan `function_call_output` reaches the model, and is counted."""
    items = [ASK, {"type": "function_call_output", "call_id": "z", "output": "RESULT"}, BYE]
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        count = await send(served, "/input_tokens", model="writer", input=items)
        answer = await send(served, model="writer", input=items)
        assert answer["usage"]["input_tokens"] == count["input_tokens"]
    assert "RESULT" in str(studio.chats[0].body["messages"])
