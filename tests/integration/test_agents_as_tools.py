"""Agents that others ask as they ask a tool: with a model, a window and tools of their own."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_teams import agent, chats_of, notices_of, results_of, speaker, team, tools_of
from chatting import MODEL, chat_body, chunks_of, eventually, finish_of, function_spec, stream_bytes
from own_tools import own_tool
from scripted_pruner import is_prune_order
from serving import text_of

from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.offered import NamedAgent, agents_named, offered_to
from elbowroom.agents.request import NOBODY, Caller, ChatRequest, own_request
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.agents.turn.state import RunSettings
from elbowroom.demo import Error, Overflow, Pause, Reasoning, Script, SimulatedModel, ToolCall, WaitFor
from elbowroom.providers.base import TextDelta
from elbowroom.server.state import SHARED, run_settings_of

ASKING = agent("writer", agent_tools=["researcher"])
RESEARCHER = agent("researcher")
ASK = ToolCall("ask_researcher", {"request": "Count the words of: a b c"})
NOTE = "The ferry left the ninth pier at noon, and the sea was calm until it came back in the evening. " * 20
LARGE = SimulatedModel(MODEL, loaded_context_length=32_768)


@own_tool
async def count(text: str) -> int:
    """Count the words."""
    return len(text.split())


@own_tool
async def read_note(number: int) -> str:
    """Read a long note."""
    return f"Note {number}. {NOTE}"


def for_researcher(*tools: ServerTool) -> Callable[[Target], list[ServerTool]]:
    """Give the researcher these tools, and nobody else any."""
    return lambda target: [*tools] if target.name == "researcher" else []


async def test_agent_as_tool(tmp_path: Path) -> None:
    """It gets the request alone, with instructions, tools and sampling of its own; its last words are the result."""
    other = RESEARCHER + "sampling = { temperature = 0.1 }\n"
    lines = {
        "writer": [Script("Asking. ", ASK), "There are three."],
        "researcher": [Script("Counting. ", ToolCall("count", {"text": "a b c"})), "Three words."],
    }
    async with team(tmp_path, [ASKING, other], lines, toolbox=for_researcher(count)) as (served, studio):
        body = chat_body("How many?", response_format={"type": "text"}, temperature=0.9)
        body["tools"] = [function_spec("of_client")]
        assert text_of(chunks_of(await stream_bytes(served, body))) == "Asking. \n\nThere are three."
        first, asked, counted, last = (chat.body for chat in studio.chats)
        assert tools_of(first) == ["ask_researcher", "of_client"]
        assert asked["messages"] == [
            {"role": "system", "content": "You are the researcher."},
            {"role": "user", "content": "Count the words of: a b c"},
        ]
        assert tools_of(asked) == ["count"]
        assert "response_format" not in asked
        assert (first["temperature"], asked["temperature"]) == (0.9, 0.1)
        assert results_of(counted) == ["3"]
        assert results_of(last) == ["Three words."]


async def test_what_the_model_is_told_of_it(tmp_path: Path) -> None:
    """Name and description are those of the settings, else made of the agent's id and name."""
    asking = agent("writer", agent_tools=["a.b", "named"])
    plain = agent("a.b", name="Ada")
    named = agent("named", tool_name="look_up", tool_description="Looks things up.")
    async with team(tmp_path, [asking, plain, named], {"writer": ["Done."]}) as (served, studio):
        await served.chat("writer")
        first, second = (tool["function"] for tool in studio.chats[0].body["tools"][:2])
        assert first["name"] == "ask_a_b"
        assert "Ada" in first["description"]
        assert first["parameters"]["required"] == ["request"]
        assert (second["name"], second["description"]) == ("look_up", "Looks things up.")


async def test_its_words_are_for_the_other_agent_alone(tmp_path: Path) -> None:
    """Neither its text nor its thoughts nor its calls reach the client, and its usage is not the answer's."""
    inner = Script(Reasoning("secret thoughts"), "secret words", ToolCall("count", {"text": "secret"}))
    lines = {"writer": [Script(ASK), "Done."], "researcher": [inner, "secret end"]}
    async with team(tmp_path, [ASKING, RESEARCHER], lines, toolbox=for_researcher(count)) as (served, studio):
        stream = await stream_bytes(served, chat_body())
        assert b"secret" not in stream
        assert b"count" not in stream
        studio.enqueue(Script(ASK), inner, "secret end", "Done.")
        answer = await served.chat("writer")
        assert "secret" not in str(answer)
        assert answer["usage"]["elbowroom"]["steps"] == 2


@pytest.mark.slow
async def test_a_model_and_a_window_of_its_own(tmp_path: Path) -> None:
    """What it reads is compacted within its own window; the conversation that it works for stays as it is."""
    tiny = SimulatedModel("tiny", loaded_context_length=4096)
    reading = [Script(ToolCall("read_note", {"number": number})) for number in range(12)]
    lines = {"writer": [Script(ASK), "It was calm."], "researcher": [*reading, "The sea was calm."]}
    agents = [ASKING, agent("researcher", model="tiny", name="The Reader") + "tool_output = { enabled = false }\n"]
    async with team(tmp_path, agents, lines, models=[LARGE, tiny], toolbox=for_researcher(read_note)) as pair:
        served, studio = pair
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        assert text_of(chunks) == "It was calm."
        orders = [chat.body["model"] for chat in studio.chats if is_prune_order(chat.body)]
        assert set(orders) == {"tiny"}
        assert all(chat.fitted for chat in studio.chats)
        assert {chat.body["model"] for chat in chats_of(studio, "researcher")} == {"tiny"}
        last = chats_of(studio, "writer")[-1].body
        assert last["model"] == MODEL
        assert results_of(last) == ["The sea was calm."]
        told = [text for kind, text in notices_of(chunks) if kind == "compacted"]
        assert told
        assert all(text.startswith("The Reader: ") for text in told)


@pytest.mark.slow
async def test_loading_of_its_model_is_told(tmp_path: Path) -> None:
    """The person is told which agent it is whose model has to be loaded."""
    slow = SimulatedModel("slow", load_seconds=0.6)
    lines = {"writer": [Script(ASK), "Done."], "researcher": ["Here."]}
    agents = [ASKING, agent("researcher", model="slow")]
    async with team(tmp_path, agents, lines, models=[LARGE, slow]) as (served, _):
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        assert notices_of(chunks) == [
            ("loading", "researcher: Loading model..."),
            ("loaded", "researcher: Model loaded."),
        ]


async def test_agents_of_agents(tmp_path: Path) -> None:
    """An agent that is asked may ask another one."""
    agents = [ASKING, agent("researcher", agent_tools=["clerk"]), agent("clerk")]
    lines = {
        "writer": [Script(ASK), "So it is."],
        "researcher": [Script(ToolCall("ask_clerk", {"request": "Look it up."})), "The clerk says yes."],
        "clerk": ["Yes."],
    }
    async with team(tmp_path, agents, lines) as (served, studio):
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "So it is."
        who = [speaker(chat.body) for chat in studio.chats]
        assert who == ["writer", "researcher", "clerk", "researcher", "writer"]
        assert results_of(studio.chats[-1].body) == ["The clerk says yes."]


async def test_two_at_once(tmp_path: Path) -> None:
    """The calls of one step are answered side by side."""
    both = asyncio.Event()
    agents = [agent("writer", agent_tools=["researcher", "clerk"]), RESEARCHER, agent("clerk")]
    lines = {
        "writer": [Script(ASK, ToolCall("ask_clerk", {"request": "b"})), "Done."],
        "researcher": [Script(WaitFor(both), "R")],
        "clerk": [Script(WaitFor(both), "C")],
    }
    async with team(tmp_path, agents, lines) as (served, studio):
        asked = asyncio.create_task(stream_bytes(served, chat_body()))
        await eventually(lambda: studio.open_requests == 2, "one waits for the other")
        both.set()
        assert text_of(chunks_of(await asked)) == "Done."
        assert results_of(studio.chats[-1].body) == ["R", "C"]


@pytest.mark.slow
async def test_many_at_once_in_a_small_window(tmp_path: Path) -> None:
    """Several that share the model's window with the one who asks: each gets its turn, and none waits for ever."""
    calls = [ToolCall("ask_researcher", {"request": f"Read part {number}."}) for number in range(5)]
    lines = {"writer": [Script(*calls), "Done."], "researcher": ["Read.\n" * 100]}
    other = agent("researcher", instructions=f"You are the researcher.\n{NOTE * 4}")
    small = SimulatedModel(MODEL, loaded_context_length=4096)
    pool = Overflow(shared_pool=True, prompt="A")
    async with team(tmp_path, [ASKING, other], lines, models=[small], overflow=pool) as (served, studio):
        studio.tokens_per_second = 4000
        async with asyncio.timeout(30):
            assert text_of(chunks_of(await stream_bytes(served, chat_body("word " * 200)))) == "Done."
        assert [result[:6] for result in results_of(studio.chats[-1].body)] == ["Read.\n"] * 5
        admission = served.app[SHARED].admission
        assert not admission.held(("lmstudio", MODEL))
        assert not admission.waiting(("lmstudio", MODEL))


@pytest.mark.parametrize(
    ("inner", "told"),
    [
        (Script("Half of", Pause(0.01), Error("Out of memory.")), "Out of memory."),
        (Script(), "could not answer"),
        (Script("Half of it", finish_reason="length"), "Half of it\n\n[The answer was cut off here.]"),
    ],
    ids=["error", "nothing said", "cut off"],
)
async def test_inner_failures(tmp_path: Path, inner: Script, told: str) -> None:
    """What goes wrong in there is a result for the agent that asked, and its run goes on."""
    lines = {"writer": [Script(ASK), "Then I do it myself."], "researcher": [inner]}
    async with team(tmp_path, [ASKING, RESEARCHER], lines) as (served, studio):
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Then I do it myself."
        assert told in results_of(studio.chats[-1].body)[0]


async def test_its_model_is_gone(tmp_path: Path) -> None:
    """An agent whose model no provider has is a tool that fails."""
    lines = {"writer": [Script(ASK), "Then I do it myself."]}
    async with team(tmp_path, [ASKING, agent("researcher", model="gone")], lines) as (served, studio):
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Then I do it myself."
        [result] = results_of(studio.chats[-1].body)
        assert result.startswith("Error: researcher could not answer: ")
        assert "gone" in result


async def test_it_comes_to_its_max_turns(tmp_path: Path) -> None:
    """The one who asked gets what it has said so far, and that it has not finished."""
    agents = [ASKING, agent("researcher", max_turns=2)]
    lines = {"writer": [Script(ASK), "Enough."], "researcher": [Script("Hm.", ToolCall("count", {"text": "a"}))]}
    async with team(tmp_path, agents, lines, toolbox=for_researcher(count)) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        assert (text_of(chunks), finish_of(chunks)) == ("Enough.", "stop")
        [result] = results_of(studio.chats[-1].body)
        assert result.startswith("Hm.\n\nHm.\n\n[Stopped after 2 model calls without finishing.")


@pytest.mark.parametrize("arguments", [{}, {"request": " "}, {"request": 7}, {"question": "a"}])
async def test_arguments_that_say_nothing(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Without a request nobody is asked."""
    lines = {"writer": [Script(ToolCall("ask_researcher", arguments)), "Sorry."]}
    async with team(tmp_path, [ASKING, RESEARCHER], lines) as (served, studio):
        await stream_bytes(served, chat_body())
        assert "`request` is missing" in results_of(studio.chats[-1].body)[0]


async def test_client_leaves_while_two_answer(tmp_path: Path) -> None:
    """Both are ended upstream, and no task is left behind."""
    agents = [agent("writer", agent_tools=["researcher", "clerk"]), RESEARCHER, agent("clerk")]
    lines = {
        "writer": [Script(ASK, ToolCall("ask_clerk", {"request": "b"}))],
        "researcher": ["word " * 4000],
        "clerk": ["word " * 4000],
    }
    async with team(tmp_path, agents, lines) as (served, studio):
        studio.tokens_per_second = 200
        asked = asyncio.create_task(stream_bytes(served, chat_body()))
        await eventually(lambda: sum(chat.completion_tokens > 3 for chat in studio.chats[1:]) == 2, "nobody answers")
        asked.cancel()
        await asyncio.wait([asked])
        await eventually(lambda: len(studio.disconnects) == 2, "an upstream is left open")


async def test_client_tool_of_the_same_name(tmp_path: Path) -> None:
    """Whose tool would run could not be told, so the request is refused."""
    async with team(tmp_path, [ASKING, RESEARCHER], {}) as (served, studio):
        answer = await served.chat("writer", tools=[function_spec("ask_researcher")])
        assert answer["error"]["type"] == "invalid_request_error"
        assert "ask_researcher" in answer["error"]["message"]
        assert studio.chats == []


async def test_own_tool_of_the_same_name(tmp_path: Path) -> None:
    """The agent is offered under another name."""
    agents = [agent("writer", agent_tools=["researcher"]), agent("researcher", tool_name="count")]
    lines = {"writer": [Script(ToolCall("count_2", {"request": "a b"})), "Done."], "researcher": ["Two."]}
    async with team(tmp_path, agents, lines, toolbox=lambda target: [count]) as (served, studio):
        await stream_bytes(served, chat_body())
        assert tools_of(studio.chats[0].body) == ["count", "count_2"]
        assert results_of(studio.chats[-1].body) == ["Two."]


async def test_who_is_behind_it(tmp_path: Path) -> None:
    """It is run for the same caller, and without work behind its answer, which is the end of that conversation."""
    runs: list[tuple[ChatRequest, RunSettings]] = []

    async def run(agent: NamedAgent, request: ChatRequest, sink: Sink, run_settings: RunSettings) -> Answer:
        runs.append((request, run_settings))
        answer = Answer()
        answer.take(TextDelta("Done."))
        return answer

    async def sink(events: Sequence[AnswerEvent]) -> None:
        raise AssertionError("there is nothing to tell")

    caller = Caller("Ada", "chat-1")
    async with team(tmp_path, [ASKING, RESEARCHER], {}) as (served, _):
        settings = run_settings_of(served.app, NOBODY)
        [writer] = agents_named(["writer"], settings)
        asked = replace(own_request("writer", ()), caller=caller)
        offered = await offered_to(writer, asked, sink, settings, run)
        [tool] = [tool for tool in offered.tools if tool.name == "ask_researcher"]
        assert await tool.call({"request": "Look it up."}) == "Done."
        [(request, used)] = runs
        assert request.caller == caller
        assert settings.compaction.background
        assert not used.compaction.background
        assert (tool.limits_itself, tool.kind) == (True, "other")


async def test_agents_that_are_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are left out, and the log says so; a run does not fail for them."""
    async with team(tmp_path, [ASKING, RESEARCHER, agent("off", enabled=False)], {}) as (served, _):
        found = agents_named(["gone", "researcher", "off"], run_settings_of(served.app, NOBODY))
    assert [one.target.name for one in found] == ["researcher"]
    assert "'gone'" in caplog.text
    assert "'off'" in caplog.text
