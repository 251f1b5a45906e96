"""Results of a client's own tools for a raw model: lines in place of old ones, where that spares a compaction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from chatting import MODEL, RAW_MODEL, function_spec
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired
from scripted_pruner import is_prune_order, text_of, valid_plan
from serving import Served, serve, settings_for
from text_samples import prose

from elbowroom.context.outputs import MARK, is_stub
from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, Text, ToolCall

if TYPE_CHECKING:
    from pathlib import Path

WINDOW: Final = 4096
FILES: Final = 16
TOOLS: Final = [function_spec("read", path={"type": "string"}), function_spec("write", path={"type": "string"})]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def text_of_file(number: int) -> str:
    """Return a file of some five hundred tokens that says at its beginning which one it is."""
    return f"This is file {number} of the harbour.\n" + "".join(
        f"boat {number * 100 + row} lies here\n" for row in range(80)
    )


def model(body: dict[str, Any]) -> Script:
    """Call for one file after the other, by what was read last."""
    if is_prune_order(body):
        return Script(Text(valid_plan(body), whole=True))
    last = body["messages"][-1]
    number = int(text_of(last).split()[3]) + 1 if last["role"] == "tool" else 0
    return Script(ToolCall("read", {"path": f"src/{number}.txt"}) if number < FILES else Text("All is read."))


async def answered(served: Served, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return the message with which a raw model answers."""
    body = {"model": RAW_MODEL, "messages": messages, "tools": TOOLS, **fields}
    async with served.http.post(served.chat_url, json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer
        message: dict[str, Any] = answer["choices"][0]["message"]
        return message


async def read_all(served: Served) -> list[dict[str, Any]]:
    """Let the model read all files; return what the client has then."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all files."}]
    while (reply := await answered(served, messages)).get("tool_calls"):
        [call] = reply["tool_calls"]
        number = int(json.loads(call["function"]["arguments"])["path"].removeprefix("src/").removesuffix(".txt"))
        messages += [reply, {"role": "tool", "tool_call_id": call["id"], "content": text_of_file(number)}]
    return [*messages, reply]


@pytest.mark.slow
async def test_old_results_are_masked(tmp_path: Path) -> None:
    """Each file comes in whole, old ones are lines that say what they were, and no pruning agent is asked.

    What was read before a mask stays the same bytes, and after a restart of the server the lines stand there again.
    """
    loaded = SimulatedModel(MODEL, loaded_context_length=WINDOW)
    async with SimulatedLMStudio([loaded], on_request=model) as studio:
        settings = settings_for(studio.base_url)
        async with serve(tmp_path, settings) as served:
            messages = await read_all(served)
            async with served.http.get(f"{served.url}/metrics") as response:
                assert 'elbowroom_room_choices_total{way="mask"}' in await response.text()
        assert not any(is_prune_order(chat.body) for chat in studio.chats)
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])
            last = chat.body["messages"][-1]
            assert last["role"] == "user" or text_of(last) == text_of_file(int(text_of(last).split()[3]))
        shown = studio.chats[-1].body["messages"]
        lines = [text_of(message) for message in shown if is_stub(text_of(message))]
        assert len(lines) > FILES // 2
        assert lines[0].startswith(MARK)
        assert "; read src/0.txt (read); " in lines[0]
        assert lines[0].endswith(": This is file 0 of the harbour.; call again to see it]")
        async with serve(tmp_path, settings) as served:
            await answered(served, [*messages[:-1]])
        assert studio.chats[-1].body["messages"] == shown


@pytest.mark.slow
async def test_masks_that_are_switched_off(tmp_path: Path) -> None:
    """Where results of tools are not to be shortened, the conversation is compacted as it ever was."""
    loaded = SimulatedModel(MODEL, loaded_context_length=WINDOW)
    async with SimulatedLMStudio([loaded], on_request=model) as studio:
        settings = settings_for(studio.base_url) + "\n[tool_output]\nenabled = false\n"
        async with serve(tmp_path, settings) as served:
            await read_all(served)
        assert any(is_prune_order(chat.body) for chat in studio.chats)
        assert not any(is_stub(text_of(message)) for chat in studio.chats for message in chat.body["messages"])


@pytest.mark.slow
async def test_a_huge_result_costs_the_conversation_little(tmp_path: Path) -> None:
    """The first request and a summary stand beside it, and a quarter of the window stays once it is masked."""
    rows = "".join(f"Row {row} of the tide table: {row * row}.\n" for row in range(3000))
    loaded = SimulatedModel(MODEL, loaded_context_length=WINDOW)
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    async with (
        SimulatedLMStudio(
            [loaded], on_request=lambda b: valid_plan(b) if is_prune_order(b) else prose(1, 20)
        ) as studio,
        serve(tmp_path, settings_for(studio.base_url)) as served,
    ):
        messages: list[dict[str, Any]] = [{"role": "user", "content": prose(0, 100)}]
        for turn in range(14):
            asked = {"role": "user", "content": prose(turn, 30)}
            messages += [await answered(served, messages), asked]
            if turn % 4 == 3:
                called = {**call, "id": f"c{turn}"}
                messages += [{"role": "assistant", "content": None, "tool_calls": [called]}]
                messages += [{"role": "tool", "tool_call_id": called["id"], "content": rows}]
        await answered(served, messages)
        sent = [chat for chat in studio.chats if not is_prune_order(chat.body)]
        compacted = [chat for chat in sent if "<elbowroom-summary>" in json.dumps(chat.body["messages"])]
        for chat in sent:
            assert messages[0] in chat.body["messages"]
        assert any(chat.body["messages"][-1]["role"] == "tool" for chat in compacted)
        assert any(is_stub(text_of(each)) for chat in compacted for each in chat.body["messages"])
        assert all((chat.prompt_tokens or 0) >= WINDOW // 4 for chat in compacted)
