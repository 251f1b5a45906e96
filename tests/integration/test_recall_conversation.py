"""What a compaction took out of the window is found again word for word, by a tool that the model has since then."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from chatting import AGENT_WITHOUT_CACHE, RAW_MODEL, eventually, function_spec, stream_bytes
from own_tools import own_tool
from request_checks import assert_fits, assert_paired
from scripted_pruner import is_prune_order
from serving import parse_frames
from small_window import Body, Message, ask_whole, history, orders_of, small_window, turns_of

from elbowroom.demo import Script, SimulatedLMStudio, ToolCall, WaitFor
from elbowroom.server.state import SHARED, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from serving import Served

RECALL = "recall_conversation"
SECRET = "The harbour office keeps the spare key in locker K-4417-QX, behind the blue tarpaulin."
WORDY = "what was noted on the crossing the captain wants to know today and " * 5
UNKNOWN = "I do not know."
COMPACTION = "background = false"
TITLE = {"X-Elbowroom-Task": "title_generation"}
Running = tuple["Served", SimulatedLMStudio]


def with_secret(exchanges: int, secret: str = WORDY + SECRET) -> list[Message]:
    """Return a client's history in which the first answer says something, in a sentence too long to be quoted whole."""
    messages = history(exchanges)
    messages[2] = {"role": "assistant", "content": secret}
    return messages


LONG = with_secret(34)
"""A history that is compacted in a window of 4096 tokens."""


def names(body: Body) -> list[str]:
    """Return the names of the tools that a request offers."""
    return [tool["function"]["name"] for tool in body.get("tools", ())]


class Recalls:
    """Calls the tool once an answer wherever it is on offer, and says its result; else says that it does not know."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.results: list[str] = []

    def __call__(self, body: Body) -> Script | str:
        """Answer one request."""
        last = body["messages"][-1]
        if last["role"] == "tool":
            self.results.append(last["content"])
            return f"I looked it up: {last['content']}"
        return Script(ToolCall(RECALL, self.arguments)) if RECALL in names(body) else UNKNOWN


def running(folder: Path, model: Any, compaction: str = "", **more: Any) -> AbstractAsyncContextManager[Running]:
    """Run both with a window that `LONG` does not fit."""
    fields = {"window": 4096, "agents": AGENT_WITHOUT_CACHE, **more}
    return small_window(folder, model, compaction=f"{COMPACTION}\n{compaction}", **fields)


async def said(served: Served, messages: list[Message], model: str = "writer", **more: Any) -> str:
    """Ask and return the answer's text."""
    status, answer = await ask_whole(served, {"model": model, "messages": messages, **more})
    assert status == 200, answer
    return str(answer["choices"][0]["message"]["content"])


async def test_what_was_compacted_away_is_found(tmp_path: Path) -> None:
    """The turn that compacts offers the tool at once, the turns after it too, and none before; its summary names it."""
    async with running(tmp_path, Recalls(query="spare key")) as (served, studio):
        assert await said(served, with_secret(4)) == UNKNOWN
        assert not any(names(chat.body) for chat in studio.chats)
        answer = await said(served, LONG)
        assert SECRET in answer
        orders = len(orders_of(studio))
        first = turns_of(studio)[1].body
        assert SECRET not in str(first["messages"])
        assert f"word for word with {RECALL}." in str(first["messages"])
        following = [*LONG, {"role": "assistant", "content": answer}, {"role": "user", "content": "Once more?"}]
        count = len(turns_of(studio))
        assert SECRET in await said(served, following)
        assert names(turns_of(studio)[count].body) == [RECALL]
        assert 0 < orders == len(orders_of(studio))
        for chat in studio.chats:
            assert_fits(chat)
            assert_paired(chat.body["messages"])


async def test_prompts_are_counted_with_the_tool(tmp_path: Path) -> None:
    """Each prompt has the very size that was counted before it was sent, the tool and the summary's sentence in it."""
    async with running(tmp_path, Recalls(query="spare key")) as (served, studio):
        await said(served, LONG)
        assert names(turns_of(studio)[-1].body) == [RECALL]
        async with served.http.get(f"{served.url}/metrics") as response:
            text = await response.text()
    [total] = re.findall(r"^elbowroom_prompt_count_ratio_sum\{.*\} (\S+)$", text, re.MULTILINE)
    [number] = re.findall(r"^elbowroom_prompt_count_ratio_count\{.*\} (\S+)$", text, re.MULTILINE)
    assert float(number) >= 2
    assert float(total) == float(number)


@pytest.mark.slow
async def test_a_compaction_after_the_answer(tmp_path: Path) -> None:
    """The tool is there in the turn after a compaction in the background, and finds what was said a moment ago."""
    model = Recalls(query="spare key")
    async with small_window(tmp_path, model, window=4096, agents=AGENT_WITHOUT_CACHE) as (served, studio):
        messages, text = with_secret(14), ""
        while not any(RECALL in names(chat.body) for chat in turns_of(studio)):
            text = await said(served, messages)
            assert len(messages) < 120
            messages = [*messages, {"role": "assistant", "content": text}, *history(1)[1:]]
        assert SECRET in text


@pytest.mark.slow
async def test_a_compaction_after_the_answer_that_comes_to_nothing(tmp_path: Path) -> None:
    """Given up for another chat or without a plan, it is as if the tool was never offered: the engine reads no other
    beginning than the next turn has, neither before the order to prune nor where a title has taken its cache.
    """
    never = Script(WaitFor(asyncio.Event()))
    async with small_window(
        tmp_path,
        lambda body: "Who?" if len(body["messages"]) < 30 else "The ferry left at noon. " * 40,
        window=4096,
        slots=1,
        timing=Timing(quiet=0.02),
        agents=AGENT_WITHOUT_CACHE,
        prune=lambda body: "I cannot.",
    ) as (served, studio):
        jobs = served.app[SHARED].background._jobs
        studio.enqueue(never, when=is_prune_order)
        await said(served, history(31))
        await eventually(lambda: orders_of(studio), "nothing is compacted")
        title = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "A title?"}]}
        for _ in range(2):
            async with served.http.post(served.chat_url, json=title, headers=TITLE) as response:
                assert response.status == 200
            await eventually(lambda: turns_of(studio)[-1].body.get("max_tokens") == 1 and not jobs, "not read again")
        assert len(orders_of(studio)) > 1
        assert not any(names(chat.body) for chat in studio.chats)


@pytest.mark.parametrize(
    ("compaction", "body"),
    [
        ('recall = "off"', {}),
        ("", {"tool_choice": "none"}),
        (
            "",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "any", "schema": {"type": "object"}}}},
        ),
    ],
)
async def test_where_it_is_not_offered(tmp_path: Path, compaction: str, body: Body) -> None:
    """Not by that setting, not where the client allows no tools, and not where the answer has to follow a grammar."""
    async with running(tmp_path, Recalls(query="key"), compaction) as (served, studio):
        assert await said(served, LONG, **body) == UNKNOWN
        assert len(orders_of(studio)) == 1
        assert not any(names(chat.body) for chat in studio.chats)
        assert RECALL not in str([chat.body for chat in studio.chats])


async def test_raw_models_have_it_by_a_setting(tmp_path: Path) -> None:
    """A raw model has it only by `recall = "all"`; then the client gets the answer alone, and its own calls still."""
    mine = function_spec("my_tool")
    async with running(tmp_path, Recalls(query="spare key")) as (served, studio):
        assert await said(served, LONG, RAW_MODEL) == UNKNOWN
    model = Recalls(query="spare key")

    def also_mine(body: Body) -> Script | str:
        return Script(ToolCall("my_tool", {"path": "x"})) if "use mine" in str(body["messages"][-1]) else model(body)

    (tmp_path / "all").mkdir()
    async with running(tmp_path / "all", also_mine, 'recall = "all"') as (served, studio):
        stream = await stream_bytes(served, {"model": RAW_MODEL, "messages": LONG, "tools": [mine], "stream": True})
        assert b'"tool_calls"' not in stream
        text = "".join(
            frame["choices"][0]["delta"].get("content") or ""
            for frame in parse_frames(stream)
            if isinstance(frame, dict) and frame.get("choices")
        )
        assert SECRET in text
        assert names(turns_of(studio)[-1].body) == [RECALL, "my_tool"]
        asked = [*LONG[:-1], {"role": "user", "content": "use mine"}]
        _, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": asked, "tools": [mine]})
        [call] = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "my_tool"
        assert answer["choices"][0]["finish_reason"] == "tool_calls"


async def test_only_the_own_conversation_and_branch(tmp_path: Path) -> None:
    """Neither another person's chat, nor another chat of the same person, nor an answer of another branch is found."""
    model = Recalls(query="locker")
    async with running(tmp_path, model) as (served, _):
        anna, bert = {"user": "anna"}, {"user": "bert"}
        assert SECRET in await said(served, LONG, **anna)
        plain = with_secret(34, "Nothing was kept there.")
        assert "Nothing was found" in await said(served, plain, **bert)
        assert "Nothing was found" in await said(served, plain, **anna)
        assert SECRET not in str(model.results[1:])


@pytest.mark.slow
async def test_what_only_the_agent_has_read(tmp_path: Path) -> None:
    """Results of the server's tools, which the client never sent, are found, with the time at which they came."""

    @own_tool
    async def look(number: int) -> str:
        """Look at the log."""
        return SECRET if number == 0 else "The sea was calm and the boat half full. " * 12

    recalls = Recalls(query="spare key", role="tool", after="2020-01-01")

    def model(body: Body) -> Script | str:
        last = body["messages"][-1]
        if last["role"] == "tool" and not last["content"].startswith("["):
            return "I have read it."
        if RECALL in names(body):
            return recalls(body)
        asked = sum(message["role"] == "user" for message in body["messages"])
        return Script(ToolCall("look", {"number": asked - 1}))

    messages: list[Message] = []
    async with running(tmp_path, model, toolbox=lambda target: [look]) as (served, _):
        for number in range(40):
            messages.append({"role": "user", "content": f"What does page {number} say? " * 12})
            messages.append({"role": "assistant", "content": await said(served, messages)})
            if recalls.results:
                break
    assert SECRET in recalls.results[0]
    assert re.search(r"\[message \d+, tool, 20\d\d-\d\d-\d\d \d\d:\d\d UTC\]", recalls.results[0])


async def test_without_a_record_what_the_client_sent_is_searched(tmp_path: Path) -> None:
    """Where no conversations are kept the tool finds the words all the same, and says that times are not known."""
    model = Recalls(query="spare key")
    agents = f"{AGENT_WITHOUT_CACHE}\n[store]\nconversations = false\n"
    async with running(tmp_path, model, agents=agents) as (served, _):
        assert SECRET in await said(served, LONG)
        assert "UTC" not in model.results[0]
        model.arguments = {"query": "spare key", "before": "2030-01-01"}
        assert "is not known" in await said(served, LONG)


async def test_a_long_message_fits_the_window(tmp_path: Path) -> None:
    """A message larger than the window is read in parts; no prompt overflows, and the parts are what was said."""
    essay = " ".join(f"word{number}" for number in range(3000))
    parts: list[str] = []

    def model(body: Body) -> Script | str:
        last = body["messages"][-1]
        if RECALL not in names(body):
            return UNKNOWN
        if last["role"] != "tool":
            return Script(ToolCall(RECALL, {"message": 2}))
        parts.append(last["content"])
        on = re.search(r"\(message=2, offset=(\d+)\)\]$", last["content"])
        return Script(ToolCall(RECALL, {"message": 2, "offset": int(on[1])})) if on and len(parts) < 3 else "Read."

    async with running(tmp_path, model) as (served, studio):
        assert await said(served, with_secret(10, essay)) == "Read."
        for chat in studio.chats:
            assert_fits(chat)
    read = "".join(part.partition("\n")[2].rpartition("\n[To read on")[0] for part in parts)
    assert len(read) > 2000
    assert essay.startswith(read)


HOSTILE: Final[Sequence[Body]] = (
    {"pattern": "(a+)+$("},
    {"pattern": "x" * 5000},
    {"pattern": "(a|aa)+$"},
    {"message": 9999},
    {"no": 1},
)


@pytest.mark.slow
async def test_hostile_arguments_are_answered(tmp_path: Path) -> None:
    """Whatever the model writes, it gets a sentence, and the person an answer."""
    model = Recalls()
    async with running(tmp_path, model) as (served, _):
        for model.arguments in HOSTILE:
            assert (await said(served, LONG)).startswith("I looked it up: "), model.arguments
            assert model.results[-1].startswith(("Error: ", "[Nothing was found")), model.arguments
    assert len(model.results) == len(HOSTILE)


async def test_a_name_that_the_client_has_taken(tmp_path: Path) -> None:
    """A client's tool of the same name stays the client's; the own one has another name."""

    def model(body: Body) -> Script | str:
        own = [name for name in names(body) if name != RECALL]
        if body["messages"][-1]["role"] == "tool":
            return str(body["messages"][-1]["content"])
        return Script(ToolCall(own[0], {"query": "spare key"})) if own else UNKNOWN

    async with running(tmp_path, model) as (served, studio):
        assert SECRET in await said(served, LONG, tools=[function_spec(RECALL)])
        assert len(names(turns_of(studio)[-1].body)) == 2
