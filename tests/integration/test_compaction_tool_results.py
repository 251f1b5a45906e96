"""Results of tools that fill the window: whole wherever they fit, else beginning and end, and the run goes on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chatting import AGENT_WITHOUT_CACHE, MODEL, RAW_MODEL, function_spec
from long_conversations import conversation
from own_tools import own_tool
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired, assert_pinned, is_shortened
from scripted_pruner import is_prune_order, text_of, valid_plan
from serving import Served, serve, settings_for

from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, SimulatedTokenizer, ToolCall

if TYPE_CHECKING:
    from elbowroom.demo import RecordedRequest

WINDOW = 4096
TOKENIZER = SimulatedTokenizer()
TALK = conversation("plain", 30, WINDOW, lambda text: len(TOKENIZER.split(text)))
QUESTION = "Which boats are on the list? Read it."
ANSWER = "These are the boats of the list."


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def lines(tokens: int) -> str:
    """Return numbered lines of so many tokens; each is there once."""
    rows: list[str] = []
    used = 0
    while used < tokens:
        rows.append(f"row {len(rows)}: boat {len(rows) * 7919} lies at the quay\n")
        used += len(TOKENIZER.split(rows[-1]))
    return "".join(rows)


@asynccontextmanager
async def reading(
    folder: Path, results: list[str], *, kind: str = "lmstudio"
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run an agent whose model reads all these results in one step, one call each, and then answers."""

    @own_tool
    async def read_list(number: int) -> str:
        """Read a list of boats."""
        return results[number]

    def model(body: dict[str, Any]) -> Script:
        if is_prune_order(body):
            return Script(valid_plan(body))
        if body["messages"][-1]["role"] == "tool":
            return Script(ANSWER)
        return Script(*(ToolCall("read_list", {"number": number}) for number in range(len(results))))

    def toolbox(target: Any) -> list[ServerTool]:
        return [read_list]

    loaded = SimulatedModel(MODEL, loaded_context_length=WINDOW)
    async with SimulatedLMStudio([loaded], on_request=model) as studio:
        url = studio.base_url if kind == "lmstudio" else f"{studio.base_url}/v1"
        agent = AGENT_WITHOUT_CACHE + ("" if kind == "lmstudio" else f'provider = "{kind}"\n')
        async with serve(folder, settings_for(url, agents=agent, kind=kind), toolbox=toolbox) as served:
            yield served, studio


def history(exchanges: int) -> list[dict[str, Any]]:
    """Return a client's messages: so many exchanges, and the question at the end."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": TALK.system}]
    for exchange in TALK.exchanges[:exchanges]:
        messages.append({"role": "user", "content": exchange.user})
        messages.append({"role": "assistant", "content": exchange.reply})
    return [*messages, {"role": "user", "content": QUESTION}]


async def ask(served: Served, messages: list[dict[str, Any]]) -> str:
    """Ask the agent and return its text."""
    async with served.http.post(served.chat_url, json={"model": "writer", "messages": messages}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return str(answer["choices"][0]["message"]["content"])


def with_results(studio: SimulatedLMStudio) -> RecordedRequest:
    """Return the one request in which the results stand, after checking all requests."""
    for chat in studio.chats:
        assert_fits(chat)
        assert_paired(chat.body["messages"])
        if not is_prune_order(chat.body):
            assert_pinned(chat.body["messages"], TALK.system, QUESTION)
    [chat] = [chat for chat in studio.chats if chat.body["messages"][-1]["role"] == "tool"]
    return chat


def results_in(chat: RecordedRequest) -> list[str]:
    """Return the results that a request ends with."""
    return [text_of(message) for message in chat.body["messages"] if message["role"] == "tool"]


def assert_cut_with_explanation(shown: str, whole: str) -> None:
    """Check that a result was cut in its middle, and that the model is told how much is missing and what to do."""
    head, _, rest = shown.partition("\n[")
    note, _, tail = rest.partition("]\n")
    assert len(head) > 100
    assert len(tail) > 100
    assert whole.startswith(head)
    assert whole.endswith(tail)
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", note)]
    assert len(whole) - len(head) - len(tail) in numbers
    assert WINDOW in numbers
    assert "larger context" in note


async def test_result_larger_than_the_window(tmp_path: Path) -> None:
    """Beginning and end go in, with the numbers, how to read on, and the larger window that would hold more."""
    huge = lines(2 * WINDOW)
    async with reading(tmp_path, [huge]) as (served, studio):
        assert await ask(served, history(3)) == ANSWER
        [shown] = results_in(with_results(studio))
        assert_cut_with_explanation(shown, huge)


async def test_result_larger_than_the_room_that_is_left(tmp_path: Path) -> None:
    """The history is compacted around it, and it stays whole."""
    result = lines(WINDOW // 4)
    async with reading(tmp_path, [result]) as (served, studio):
        assert await ask(served, history(15)) == ANSWER
        first, *_ = studio.chats
        assert not is_prune_order(first.body), "there was no room for the history alone"
        chat = with_results(studio)
        assert results_in(chat) == [result]
        assert is_shortened(chat.body["messages"], history(15))


async def test_result_that_fits(tmp_path: Path) -> None:
    """Nothing is compacted and nothing is cut where there is room."""
    result = lines(WINDOW // 4)
    async with reading(tmp_path, [result]) as (served, studio):
        assert await ask(served, history(3)) == ANSWER
        chat = with_results(studio)
        assert results_in(chat) == [result]
        assert not is_shortened(chat.body["messages"], history(3))
        assert len(studio.chats) == 2


async def test_results_that_fit_only_one_by_one(tmp_path: Path) -> None:
    """Of three results of one step that together are too large, the small one stays whole and the others share."""
    results = [lines(WINDOW), "No boats.", lines(WINDOW)]
    async with reading(tmp_path, results) as (served, studio):
        assert await ask(served, history(3)) == ANSWER
        first, small, last = results_in(with_results(studio))
        assert small == results[1]
        assert_cut_with_explanation(first, results[0])
        assert_cut_with_explanation(last, results[2])


@pytest.mark.slow
async def test_huge_result_after_a_full_history(tmp_path: Path) -> None:
    """Both at once: a history that is full already, and a result that is larger than the window."""
    huge = lines(2 * WINDOW)
    async with reading(tmp_path, [huge]) as (served, studio):
        assert await ask(served, history(30)) == ANSWER
        chat = with_results(studio)
        assert_cut_with_explanation(results_in(chat)[0], huge)
        assert is_shortened(chat.body["messages"], history(30))


@pytest.mark.parametrize("size", [1, 2])
async def test_result_of_a_clients_tool(tmp_path: Path, size: int) -> None:
    """A result that a client sends, as large as the window and larger, is treated like one of the server's tools."""
    huge = lines(size * WINDOW)
    call = {"id": "abcdef123", "type": "function", "function": {"name": "read_list", "arguments": "{}"}}
    messages = [
        *history(8),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": huge},
    ]
    async with reading(tmp_path, []) as (served, studio):
        body = {"model": RAW_MODEL, "messages": messages, "tools": [function_spec("read_list")]}
        async with served.http.post(served.chat_url, json=body) as response:
            answer = await response.json()
            assert response.status == 200, answer
        assert answer["choices"][0]["message"]["content"] == ANSWER
        [shown] = results_in(with_results(studio))
        assert_cut_with_explanation(shown, huge)


async def test_without_context_management(tmp_path: Path) -> None:
    """For a provider whose windows nobody watches, a result goes in whole, whatever its size."""
    huge = lines(2 * WINDOW)
    async with reading(tmp_path, [huge], kind="openai") as (served, studio):
        await ask(served, history(3))
        assert results_in(studio.chats[-1]) == [huge]
