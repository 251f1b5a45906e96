"""The OpenAI Agents SDK with its model for the Responses API, as a program that uses elbowroom."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from chatting import RAW_MODEL, elbowroom_with_studio
from openai_client import client_of
from responding import said_to

from elbowroom.demo import Reasoning, Script, SimulatedLMStudio, ToolCall

Pair = tuple[OpenAIResponsesModel, SimulatedLMStudio]
QUIET = RunConfig(tracing_disabled=True)
MODELS = pytest.mark.parametrize("pair", ["writer", RAW_MODEL], indirect=True)


@function_tool
async def read_note(path: str) -> str:
    """Read a note."""
    return f"{path} says oats"


@pytest.fixture
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Run elbowroom in front of a simulated LM Studio, and give the SDK's model for it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio), client_of(served) as client:
        yield OpenAIResponsesModel(request.param, client), studio


@MODELS
async def test_a_run_with_tools(pair: Pair) -> None:
    """A run calls its tool and ends with the answer, whole and streamed, and says the same to the model."""
    model, studio = pair
    calls = Script(Reasoning("Hm."), "Looking.", ToolCall("read_note", {"path": "a"}))
    studio.enqueue(calls, "It says oats.", calls, "It says oats.")
    agent = Agent("Reader", instructions="You read notes.", model=model, tools=[read_note])
    whole = await Runner.run(agent, "What is in it?", run_config=QUIET)
    assert whole.final_output == "It says oats."
    streamed = Runner.run_streamed(agent, "What is in it?", run_config=QUIET)
    text = ""
    async for event in streamed.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert streamed.final_output == "It says oats."
    assert text == "Looking.It says oats."
    assert said_to(studio.chats[1].body)[-1] == ("tool", "a says oats")
    assert [role for role, _ in said_to(studio.chats[3].body)] == ["user", "assistant", "tool"]


@MODELS
async def test_it_goes_on(pair: Pair) -> None:
    """By the id of the response before, and by its items, the model is told the same."""
    model, studio = pair
    studio.enqueue(Script(Reasoning("Hm."), "One."), "Two.", "Two.")
    agent = Agent("Reader", model=model, model_settings=ModelSettings(max_tokens=200))
    first = await Runner.run(agent, "First?", run_config=QUIET)
    await Runner.run(agent, "Second?", previous_response_id=first.last_response_id, run_config=QUIET)
    sent_back = [*first.to_input_list(), {"role": "user", "content": "Second?"}]
    await Runner.run(agent, sent_back, run_config=QUIET)  # type: ignore[arg-type]
    by_id, by_items = (said_to(chat.body) for chat in studio.chats[1:])
    assert by_id == [("user", "First?"), ("assistant", "One."), ("user", "Second?")]
    assert by_items == by_id
