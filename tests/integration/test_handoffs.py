"""Conversations that one agent hands over to another, which then answers."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_teams import agent, chats_of, notices_of, results_of, speaker, team, tools_of
from chatting import (
    MODEL,
    calls_of,
    chat_body,
    chunks_of,
    eventually,
    finish_of,
    function_spec,
    stream_bytes,
)
from own_tools import own_tool
from scripted_pruner import is_prune_order
from serving import text_of
from small_window import history

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall

LARGE = SimulatedModel(MODEL, loaded_context_length=32_768)
TINY = SimulatedModel("tiny", loaded_context_length=4096)
TRIAGE = agent("triage", handoffs=["editor"])
EDITOR = agent("editor", name="The Editor")
TO_EDITOR = ToolCall("transfer_to_editor")
CLIENT_TOOL = function_spec("of_client")


@own_tool
async def count(text: str) -> int:
    """Count the words."""
    return len(text.split())


def tools_for(name: str) -> Callable[[Target], list[ServerTool]]:
    """Give an agent a tool, and nobody else any."""
    return lambda target: [count] if target.name == name else []


async def test_handoff(tmp_path: Path) -> None:
    """The other agent goes on with the whole conversation, by its own instructions, model, tools and sampling."""
    lines = {
        "triage": [Script("One moment.", TO_EDITOR)],
        "editor": [Script("Counting.", ToolCall("count", {"text": "a b"})), "Two words."],
    }
    agents = [
        agent("triage", handoffs=["editor"]),
        agent("editor", name="The Editor", model="tiny", tool_description="Knows words.")
        + "sampling = { temperature = 0.1 }\n",
    ]
    async with team(tmp_path, agents, lines, models=[LARGE, TINY], toolbox=tools_for("editor")) as (served, studio):
        messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "How many?"}]
        stream = await stream_bytes(served, {"model": "triage", "messages": messages})
        chunks = chunks_of(stream)
        assert text_of(chunks) == "One moment.\n\nCounting.\n\nTwo words."
        assert finish_of(chunks) == "stop"
        assert calls_of(chunks) == []
        assert notices_of(chunks) == [("handed over", "The Editor answers now.")]
        first, second, third = (chat.body for chat in studio.chats)
        [offered] = first["tools"]
        assert offered["function"]["name"] == "transfer_to_editor"
        assert offered["function"]["description"].endswith("Knows words.")
        assert second["messages"][0] == {"role": "system", "content": "You are the editor.\n\nBe kind."}
        assert second["messages"][1] == messages[1]
        assert [message["role"] for message in second["messages"][2:]] == ["assistant", "tool"]
        assert "The Editor answers" in results_of(second)[0]
        assert tools_of(second) == ["count"]
        assert [body["model"] for body in (first, second, third)] == [MODEL, "tiny", "tiny"]
        assert "temperature" not in first
        assert second["temperature"] == 0.1


async def test_usage_of_both(tmp_path: Path) -> None:
    """The usage is that of the last step, with the sums over the steps of all agents beside it."""
    async with team(tmp_path, [TRIAGE, EDITOR], {"triage": [Script(TO_EDITOR)], "editor": ["Here."]}) as pair:
        served, studio = pair
        usage = (await served.chat("triage"))["usage"]
        assert usage["prompt_tokens"] == studio.chats[-1].prompt_tokens
        assert usage["elbowroom"]["steps"] == 2
        assert usage["elbowroom"]["prompt_tokens"] == sum(chat.prompt_tokens or 0 for chat in studio.chats)


async def test_next_request_comes_to_the_first_agent(tmp_path: Path) -> None:
    """Who was asked decides anew: the conversation has what the other one said, and no trace of the handover."""
    lines = {"triage": [Script(TO_EDITOR), "Triage again."], "editor": ["The editor's words."]}
    async with team(tmp_path, [TRIAGE, EDITOR], lines) as (served, studio):
        said = text_of(chunks_of(await stream_bytes(served, chat_body("One", model="triage"))))
        messages = [
            {"role": "user", "content": "One"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "Two"},
        ]
        await stream_bytes(served, {"model": "triage", "messages": messages})
        last = studio.chats[-1].body
        assert speaker(last) == "triage"
        assert last["messages"][1:] == messages


async def test_client_tools_after_a_handoff(tmp_path: Path) -> None:
    """The other agent may call the client's tools: its call ends the run and is handed to the client."""
    agents = [agent("triage", handoffs=["editor"], client_tools="drop"), EDITOR]
    lines = {"triage": [Script(TO_EDITOR)], "editor": [Script("Now you.", ToolCall("of_client", {"path": "a"}))]}
    async with team(tmp_path, agents, lines, toolbox=tools_for("editor")) as (served, studio):
        body = chat_body(model="triage", tools=[CLIENT_TOOL])
        chunks = chunks_of(await stream_bytes(served, body))
        assert text_of(chunks) == "Now you."
        assert [call["name"] for call in calls_of(chunks)] == ["of_client"]
        assert finish_of(chunks) == "tool_calls"
        assert [tools_of(chat.body) for chat in studio.chats] == [["transfer_to_editor"], ["count", "of_client"]]


async def test_client_tools_of_an_agent_without_tools(tmp_path: Path) -> None:
    """An agent that has nothing but the client's tools hands on whatever is called."""
    lines = {"triage": [Script(TO_EDITOR)], "editor": [Script(ToolCall("of_client", {"path": "a"}))]}
    async with team(tmp_path, [TRIAGE, EDITOR], lines) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, chat_body(model="triage", tools=[CLIENT_TOOL])))
        assert [call["name"] for call in calls_of(chunks)] == ["of_client"]
        assert tools_of(studio.chats[-1].body) == ["of_client"]


async def test_client_tool_with_a_name_of_the_other_agents(tmp_path: Path) -> None:
    """The answer has begun by then: the client's tool is left out, and the other agent runs its own."""
    lines = {"triage": [Script(TO_EDITOR)], "editor": [Script(ToolCall("count", {"text": "a b"})), "Two."]}
    async with team(tmp_path, [TRIAGE, EDITOR], lines, toolbox=tools_for("editor")) as (served, studio):
        body = chat_body(model="triage", tools=[function_spec("count"), CLIENT_TOOL])
        assert text_of(chunks_of(await stream_bytes(served, body))) == "Two."
        assert tools_of(studio.chats[0].body) == ["transfer_to_editor", "count", "of_client"]
        assert tools_of(studio.chats[1].body) == ["count", "of_client"]
        assert results_of(studio.chats[-1].body)[-1] == "2"


async def test_a_forced_handoff_before_a_smaller_window(tmp_path: Path) -> None:
    """The other agent's tools are measured as they are offered, when the choice has been obeyed."""
    tools = [function_spec(f"of_client_{at}", path={"description": "A path. " * 99}) for at in range(4)]
    choice = {"type": "function", "function": {"name": "transfer_to_editor"}}
    agents = [TRIAGE, agent("editor", model="tiny")]
    lines = {"triage": [Script(TO_EDITOR)], "editor": ["Here."]}
    async with team(tmp_path, agents, lines, models=[LARGE, TINY]) as (served, studio):
        body = chat_body(model="triage", tools=tools, tool_choice=choice)
        assert text_of(chunks_of(await stream_bytes(served, body))) == "Here."
        assert [len(tools_of(chat.body)) for chat in studio.chats] == [1, 4]


async def test_handoff_to_another_provider(tmp_path: Path) -> None:
    """The other agent is answered by its own provider's model."""
    async with SimulatedLMStudio([SimulatedModel("theirs", loaded_context_length=8192)]) as other:
        other.enqueue("From over here.")
        provider = f'[[providers]]\nid = "other"\nkind = "lmstudio"\nbase_url = "{other.base_url}"\n'
        agents = [provider, TRIAGE, agent("editor", model="theirs", provider="other")]
        async with team(tmp_path, agents, {"triage": [Script(TO_EDITOR)]}) as (served, studio):
            chunks = chunks_of(await stream_bytes(served, chat_body(model="triage")))
            assert text_of(chunks) == "From over here."
            assert len(studio.chats) == 1
            assert speaker(other.chats[-1].body) == "editor"


async def test_two_handoffs_in_a_row(tmp_path: Path) -> None:
    """Who has got a conversation may hand it on."""
    agents = [TRIAGE, agent("editor", handoffs=["printer"]), agent("printer")]
    lines = {
        "triage": [Script("A", TO_EDITOR)],
        "editor": [Script("B", ToolCall("transfer_to_printer"))],
        "printer": ["C"],
    }
    async with team(tmp_path, agents, lines) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, chat_body(model="triage")))
        assert text_of(chunks) == "A\n\nB\n\nC"
        assert [text for _, text in notices_of(chunks)] == ["editor answers now.", "printer answers now."]
        last = studio.chats[-1].body["messages"]
        assert [message["role"] for message in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]


async def test_handoffs_beside_other_calls(tmp_path: Path) -> None:
    """The tools of the step run first; of two handovers in one step the first counts."""
    agents = [agent("triage", handoffs=["editor", "printer"]), EDITOR, agent("printer")]
    calls = ToolCall("transfer_to_editor"), ToolCall("count", {"text": "a b"}), ToolCall("transfer_to_printer")
    lines = {"triage": [Script(*calls)], "editor": ["Here."]}
    async with team(tmp_path, agents, lines, toolbox=tools_for("triage")) as (served, studio):
        assert text_of(chunks_of(await stream_bytes(served, chat_body(model="triage")))) == "Here."
        results = results_of(studio.chats[-1].body)
        assert len(results) == 3
        assert "2" in results


async def test_handoff_beside_a_clients_call(tmp_path: Path) -> None:
    """The client's call goes to the client; the conversation is handed over when its result is there, if at all."""
    lines = {"triage": [Script(TO_EDITOR, ToolCall("of_client", {"path": "a"}))]}
    async with team(tmp_path, [TRIAGE, EDITOR], lines) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, chat_body(model="triage", tools=[CLIENT_TOOL])))
        assert [call["name"] for call in calls_of(chunks)] == ["of_client"]
        assert finish_of(chunks) == "tool_calls"
        assert len(studio.chats) == 1


async def test_max_turns_counts_all_agents(tmp_path: Path) -> None:
    """The limit is that of the agent that was asked."""
    agents = [agent("triage", handoffs=["editor"], max_turns=3), EDITOR]
    lines = {"triage": [Script(TO_EDITOR)], "editor": [Script("Hm.", ToolCall("count", {"text": "a"}))]}
    async with team(tmp_path, agents, lines, toolbox=tools_for("editor")) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, chat_body(model="triage")))
        assert "[Stopped after 3 model calls without finishing." in text_of(chunks)
        assert "the agent triage" in text_of(chunks)
        assert len(studio.chats) == 3


async def test_an_agent_that_is_asked_hands_over(tmp_path: Path) -> None:
    """The one who asked gets what the last one says."""
    agents = [agent("writer", agent_tools=["triage"]), TRIAGE, EDITOR]
    lines = {
        "writer": [Script(ToolCall("ask_triage", {"request": "Edit."})), "Done."],
        "triage": [Script("Handing over.", TO_EDITOR)],
        "editor": ["Edited."],
    }
    async with team(tmp_path, agents, lines) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        assert text_of(chunks) == "Done."
        assert notices_of(chunks) == [("handed over", "triage: The Editor answers now.")]
        assert results_of(studio.chats[-1].body) == ["Edited."]


async def test_window_and_ledger_of_its_own(tmp_path: Path) -> None:
    """It compacts for its own window alone; the next time the conversation comes to it, that is remembered."""
    agents = [TRIAGE, agent("editor", model="tiny")]
    lines = {"triage": [Script("Passing on.", TO_EDITOR)], "editor": ["First.", "Second."]}
    compaction = "background = false"
    async with team(tmp_path, agents, lines, models=[LARGE, TINY], compaction=compaction) as (served, studio):
        messages: list[dict[str, Any]] = history(45)
        orders: list[int] = []
        for answer in ("First.", "Second."):
            chunks = chunks_of(await stream_bytes(served, {"model": "triage", "messages": messages}))
            assert text_of(chunks) == f"Passing on.\n\n{answer}"
            assert len(chats_of(studio, "triage")[-1].body["messages"]) == len(messages)
            sent = chats_of(studio, "editor")[-1].body["messages"]
            assert len(sent) < len(messages)
            assert [message["role"] for message in sent[-3:]] == ["user", "assistant", "tool"]
            assert sent[-3] == messages[-1]
            assert sent[-2]["content"] == "Passing on."
            asked = [chat.body["model"] for chat in studio.chats if is_prune_order(chat.body)]
            assert set(asked) == {"tiny"}
            orders.append(len(asked))
            messages = [
                *messages,
                {"role": "assistant", "content": text_of(chunks)},
                {"role": "user", "content": "And tomorrow?"},
            ]
        assert orders[0] == orders[1]
        assert all(chat.fitted for chat in studio.chats)


async def test_client_leaves_after_a_handoff(tmp_path: Path) -> None:
    """The other agent's upstream is closed."""
    lines = {"triage": [Script(TO_EDITOR)], "editor": ["word " * 4000]}
    async with team(tmp_path, [TRIAGE, EDITOR], lines) as (served, studio):
        studio.tokens_per_second = 200
        asked = asyncio.create_task(stream_bytes(served, chat_body(model="triage")))
        await eventually(lambda: studio.chats and studio.chats[-1].completion_tokens > 20, "it does not answer")
        asked.cancel()
        await asyncio.wait([asked])
        await eventually(lambda: len(studio.disconnects) == 1, "the upstream is left open")


async def test_agent_switched_off_meanwhile(tmp_path: Path) -> None:
    """An agent that is switched off is offered to nobody from the next request on."""
    lines = {"triage": ["Hello."]}
    async with team(tmp_path, [TRIAGE, EDITOR], lines) as (served, studio):
        served.settings.write_text(served.settings.read_text().replace('handoffs = ["editor"]', ""))
        await served.chat("triage")
        assert "tools" not in studio.chats[-1].body
