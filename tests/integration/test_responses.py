"""Responses that go on from others: whose they are, what they remember, and what reaches the model."""

import json
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, delta_frame, elbowroom_with_studio
from note_reader import SECRET, knows, note_reader, prompt_of, reading
from pair_fixtures import Pair
from patient_counting import wait_for_counts
from request_checks import assert_fits
from responding import respond, said_to, send, stream_events, text_in
from serving import serve, settings_for
from small_window import ANSWER, QUESTION, history, orders_of, small_window, turns_of

from elbowroom.demo import Raw, Reasoning, Script, SimulatedLMStudio, SimulatedModel, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
PIXEL = "data:image/png;base64,iVBORw0KGgo="
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])


async def test_after_a_restart(tmp_path: Path) -> None:
    """What a response has said is there after a restart, and the next one goes on from it in the same conversation."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        settings = settings_for(studio.base_url, agents=AGENT)
        studio.enqueue(Script(Reasoning("Hm."), "One."), "Two.")
        async with serve(tmp_path, settings) as served:
            first = await respond(served, "First?")
        async with serve(tmp_path, settings) as served:
            kept = await send(served, f"/{first['id']}", "GET")
            assert kept["output"] == first["output"]
            assert (kept["status"], kept["model"]) == ("completed", "writer")
            await respond(served, "Second?", previous_response_id=first["id"])
            assert said_to(studio.chats[1].body) == [("user", "First?"), ("assistant", "One."), ("user", "Second?")]
            async with served.http.get(f"{served.url}/v1/conversations") as response:
                assert len((await response.json())["data"]) == 1


@pytest.mark.fault("two clients at once", "first", "two branches")
async def test_branches(pair: Pair) -> None:
    """Two requests may go on from the same response; neither knows of the other."""
    served, studio = pair
    studio.enqueue("One.", "Left.", "Right.", "Further left.")
    first = await respond(served, "First?")
    left = await respond(served, "Left?", previous_response_id=first["id"])
    await respond(served, "Right?", previous_response_id=first["id"])
    await respond(served, "On?", previous_response_id=left["id"])
    assert [text for _, text in said_to(studio.chats[2].body)] == ["First?", "One.", "Right?"]
    assert [text for _, text in said_to(studio.chats[3].body)] == ["First?", "One.", "Left?", "Left.", "On?"]


@pytest.mark.threat("other people's conversations", "nor responses")
async def test_of_another_person(tmp_path: Path) -> None:
    """To all others a response is not there: not to read, go on from, stop, delete or refer to."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Secret.")
        first = await respond(served, owner="ada")
        for path, method in (("", "GET"), ("", "DELETE"), ("/cancel", "POST")):
            refused = await send(served, f"/{first['id']}{path}", method, owner="bob")
            assert refused["status_code"] == 404
        refused = await send(served, model="writer", input="a", previous_response_id=first["id"], owner="bob")
        assert (refused["status_code"], refused["error"]["code"]) == (404, "previous_response_not_found")
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        refused = await send(served, model="writer", input=[reference], owner="bob")
        assert (refused["status_code"], refused["error"]["code"]) == (400, "item_not_found")
        assert len(studio.chats) == 1
        assert text_in(await send(served, f"/{first['id']}", "GET", owner="ada")) == "Secret."


async def test_the_owner_may_stand_in_the_body(pair: Pair) -> None:
    """Who names himself in the body goes on from his own responses."""
    served, studio = pair
    studio.enqueue("One.", "Two.")
    first = await respond(served, safety_identifier="ada")
    second = await respond(served, safety_identifier="ada", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    refused = await send(served, model="writer", input="a", previous_response_id=first["id"], user="bob")
    assert refused["status_code"] == 404


async def test_what_an_agent_has_read(tmp_path: Path) -> None:
    """Results of the agent's own tools are put back behind the response before, and the client never sees them."""
    async with note_reader(tmp_path) as (served, studio):
        studio.enqueue(Script(Reasoning("Look."), "I look.", *reading("a.md", "").steps), "It says a lot.", "Fine.")
        first = await respond(served, "What does it say?")
        assert SECRET not in str(first)
        assert text_in(first) == "I look.\n\nIt says a lot."
        await respond(served, "Thanks.", previous_response_id=first["id"])
        assert knows(prompt_of(studio))
        assert prompt_of(studio)[: len(prompt_of(studio, -2))] == prompt_of(studio, -2)


@MODELS
async def test_a_compaction_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """A history that outgrows the window is compacted, once for all responses that go on from it."""
    wait_for_counts(monkeypatch)
    async with small_window(tmp_path) as (served, studio):
        events = await stream_events(served, history(12), model=model)
        assert events[-1]["type"] == "response.completed"
        first = events[-1]["response"]
        assert text_in(first) == ANSWER
        orders = len(orders_of(studio))
        assert orders > 0
        second = await respond(served, QUESTION, model=model, previous_response_id=first["id"])
        assert text_in(second) == ANSWER
        assert len(orders_of(studio)) == orders
        before, after = turns_of(studio)
        assert_fits(after)
        assert after.body["messages"][: len(before.body["messages"])] == before.body["messages"]


async def test_references(pair: Pair) -> None:
    """Items may be referred to by their ids instead of being sent back."""
    served, studio = pair
    studio.enqueue(Script(Reasoning("Hm."), "Looking.", ToolCall("read_note", {"path": "a"})), "Two.")
    tools = [{"type": "function", "name": "read_note", "parameters": {"type": "object", "properties": {}}}]
    first = await respond(served, "First?", tools=tools)
    *references, call = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "oats"}
    asked: list[Any] = [{"role": "user", "content": "First?"}, *references, {"id": call["id"]}, result]
    await respond(served, asked, tools=tools)
    question, answer, returned = (one for one in studio.chats[1].body["messages"] if one["role"] != "system")
    assert (question["content"], answer["content"], returned["content"]) == ("First?", "Looking.", "oats")
    assert answer["tool_calls"][0]["id"] == returned["tool_call_id"]


async def test_what_reaches_the_model(tmp_path: Path) -> None:
    """Images, formats, limits and choices come in a chat's own form; what is unknown is passed on."""
    seeing = SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768)
    async with elbowroom_with_studio(tmp_path, model=seeing) as (served, studio):
        studio.enqueue('{"a": 1}')
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PIXEL}]
        await respond(
            served,
            [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}],
            model=RAW_MODEL,
            instructions="Be kind.",
            text={
                "format": {"type": "json_schema", "name": "thing", "schema": schema, "strict": True},
                "verbosity": "low",
            },
            max_output_tokens=50,
            reasoning={"effort": "low"},
            repeat_penalty=1.1,
            prompt_cache_key="a",
            service_tier="auto",
            include=["reasoning.encrypted_content"],
        )
        body = studio.chats[0].body
        assert body["messages"][-1]["content"] == [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ]
        system = str([one["content"] for one in body["messages"] if one["role"] != "user"])
        assert "Be kind." in system
        assert "Be brief." in system
        assert body["response_format"]["json_schema"] == {"name": "thing", "schema": schema, "strict": True}
        assert (body["max_tokens"], body["reasoning_effort"], body["repeat_penalty"]) == (50, "low", 1.1)
        assert (body["service_tier"], body["verbosity"]) == ("auto", "low")
        assert not {"input", "prompt_cache_key", "include", "store", "text"} & set(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": 7}, "conversation"),
        ({"conversation": {}}, "conversation"),
        ({"prompt": {"id": "a"}}, "prompt"),
        ({"background": True, "store": False}, "background"),
        ({"background": "yes"}, "background"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": 5}]}, "tools[0].tools"),
        ({"tools": [{"type": "namespace", "name": "a"}]}, "tools[0].tools"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"tool_choice": []}, "tool_choice"),
        ({"text": {"format": []}}, "text.format"),
        ({"instructions": ["a"]}, "instructions"),
        ({"previous_response_id": {}}, "previous_response_id"),
        ({"tools": {}}, "tools"),
        ({"tools": ["a"]}, "tools[0]"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"temperature": "hot"}, "temperature"),
        ({"input": []}, "input"),
        ({"input": [{"role": "tool", "content": "a"}]}, "input[0].role"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "a"}]}, "input[0].arguments"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].image_url"),
        ({"input": None}, "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
        ({"include": "all"}, "include"),
        ({"input": [{"id": f"msg_{number}_0"} for number in range(1001)]}, "input"),
    ],
)
async def test_refusals(pair: Pair, fields: dict[str, Any], param: str) -> None:
    """What cannot be done is a 400 that names the field."""
    served, studio = pair
    refused = await send(served, **{"model": "writer", "input": "a", **fields})
    assert (refused["status_code"], refused["error"]["param"]) == (400, param)
    assert not studio.chats


READ = {"type": "function", "name": "read"}


@pytest.mark.parametrize("allowed", [{"type": "allowed_tools", "mode": "required", "tools": [READ]}, READ])
async def test_allowed_tools(pair: Pair, allowed: dict[str, Any]) -> None:
    """Of tools that are allowed in part the model sees that part, and of a named one only that."""
    served, studio = pair
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("read", "write")]
    response = await respond(served, tools=tools, tool_choice=allowed, model=RAW_MODEL)
    assert [tool["function"]["name"] for tool in studio.chats[0].body["tools"]] == ["read"]
    assert studio.chats[0].body["tool_choice"] == "required"
    assert response["tool_choice"] == allowed
    assert [tool["name"] for tool in response["tools"]] == ["read", "write"]


async def test_probabilities(pair: Pair) -> None:
    """Probabilities of tokens stand at the words that they belong to."""
    token = {"token": "Yes", "logprob": -0.5, "bytes": [89], "top_logprobs": [{"token": "No", "logprob": -1.5}]}
    frame = delta_frame({"content": "Yes"}, logprobs=None).replace(
        b'"finish_reason": null', b'"finish_reason": null, "logprobs": ' + json.dumps({"content": [token]}).encode()
    )
    served, studio = pair
    studio.enqueue(Script(Reasoning("Hm."), Raw(frame)))
    events = await stream_events(served, include=["message.output_text.logprobs"], top_logprobs=1)
    assert studio.chats[0].body["logprobs"] is True
    [delta] = [event for event in events if event["type"] == "response.output_text.delta"]
    top = {"token": "No", "logprob": -1.5, "bytes": [78, 111]}
    assert delta["logprobs"] == [{**token, "top_logprobs": [top]}]
    assert events[-1]["response"]["output"][1]["content"][0]["logprobs"] == delta["logprobs"]


async def test_another_model_goes_on(tmp_path: Path) -> None:
    """A chain may change its model, and is one conversation all the same."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("One.", "Two.", "Three.")
        first = await respond(served, "First?", instructions="Be short.")
        second = await respond(served, "Second?", model=RAW_MODEL, previous_response_id=first["id"])
        await respond(served, "Third?", previous_response_id=second["id"])
        said = [text for _, text in said_to(studio.chats[-1].body)]
        assert said == ["First?", "One.", "Second?", "Two.", "Third?"]
        assert "Be short." not in str(studio.chats[-1].body)
        async with served.http.get(f"{served.url}/v1/conversations") as listed:
            assert len((await listed.json())["data"]) == 1


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"name": ["f"]}]},
        {"type": "allowed_tools", "mode": "required", "tools": []},
        {"type": "function", "name": "g"},
    ],
)
async def test_a_choice_of_tools_that_nobody_offers(pair: Pair, choice: dict[str, Any]) -> None:
    """It is a 400 that lists the tools; the model is not asked."""
    served, studio = pair
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    refused = await send(served, model="writer", input="x", tools=tools, tool_choice=choice)
    assert (refused["status_code"], refused["error"]["param"]) == (400, "tool_choice")
    assert refused["error"]["message"].endswith("name one of these: f.")
    assert not studio.chats
