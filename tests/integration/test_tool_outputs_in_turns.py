"""What tools have returned stays within reach of the model from turn to turn, and the prompt as it was."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, AGENT_WITHOUT_CACHE, chunks_of, stream_bytes
from own_tools import own_tool
from request_checks import assert_fits, assert_little_is_read_again, assert_paired
from scripted_pruner import text_of as content_of
from serving import Served, text_of
from small_window import Body, Message, ask_whole, orders_of, small_window, turns_of

from elbowroom.agents.tools.tool import ServerTool
from elbowroom.context.outputs.output import ref_to, references_in
from elbowroom.context.outputs.view import ref_in_view
from elbowroom.demo import Script, ToolCall
from elbowroom.server.state import SHARED

READER = f'{AGENT}tools = ["tool_output_cache"]\n'
"""An agent that has nothing but what reads results again: all tools are the client's."""
ANSWER = "The ninth boat."
QUESTION: Message = {"role": "user", "content": "Which boat was late?"}


def report(number: int, lines: int = 60) -> str:
    """Return what a tool of the client returns."""
    return "\n".join(f"{number}.{line}: boat {number * line * 7919} was in time" for line in range(lines))


def round_of(number: int, text: str) -> list[Message]:
    """Return a question, a call of a client's tool with its result, and the next question."""
    function = {"name": "get_report", "arguments": json.dumps({"path": f"reports/{number}.md"})}
    call = {"id": f"call{number:05d}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text},
    ]


async def kept(served: Served, ref_id: str, owner: str = "") -> str:
    """Return an output."""
    outputs = served.app[SHARED].store.tool_outputs
    async with aclosing(outputs.blocks(owner, ref_id)) as blocks:  # type: ignore[type-var]
        return "".join([block.text async for block in blocks])


async def reachable(served: Served, messages: Sequence[Message]) -> set[str]:
    """Return every reference that a model finds which has these messages and reads what they refer to."""
    known: set[str] = set()
    todo = set().union(*(references_in(content_of(message)) for message in messages))
    while todo:
        known |= todo
        lists = [text for ref_id in todo if (text := await kept(served, ref_id)).startswith("[")]
        todo = set().union(*map(references_in, lists)) - known
    return known


async def ask(served: Served, messages: Sequence[Message], **headers: str) -> str:
    """Ask as a client does that sends all it has."""
    body = {"model": "writer", "messages": list(messages), "stream": True}
    return text_of(chunks_of(await stream_bytes(served, body, **headers)))


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "rounds"), [(60, 16), (900, 8)], ids=["small", "viewed"])
async def test_the_next_turn_begins_as_the_last_one_ended(tmp_path: Path, lines: int, rounds: int) -> None:
    """Views and stubs of a client's results come back byte for byte, though the client sends them whole each time."""
    async with small_window(tmp_path, lambda body: ANSWER, window=8192, agents=READER) as (served, studio):
        messages = [QUESTION]
        for number in range(rounds):
            messages += round_of(number, report(number, lines))
            assert await ask(served, messages) == ANSWER
            messages += [{"role": "assistant", "content": ANSWER}, {**QUESTION, "content": f"And after {number}?"}]
        turns = [chat.body["messages"] for chat in turns_of(studio)]
        for chat in turns_of(studio):
            assert_fits(chat)
            assert_paired(chat.body["messages"])
        changes = sum(after[: len(before)] != before for before, after in pairwise(turns))
        assert changes >= 1
        if lines == 60:  # a large result leaves no room for the one before it
            assert changes <= len(turns) // 5
        assert_little_is_read_again(turns)
        refs = {ref_to("", report(number, lines)).id for number in range(rounds)}
        present = {text for text in map(content_of, turns[-1]) if text}
        whole = {ref_to("", text).id for text in present}
        assert refs <= await reachable(served, turns[-1]) | whole


async def test_an_edited_conversation_is_viewed_as_before(tmp_path: Path) -> None:
    """Who asks an earlier question in another way has the same beginning: what stands before it has not changed."""
    async with small_window(tmp_path, lambda body: ANSWER, window=8192, agents=READER) as (served, studio):
        messages = [QUESTION, *round_of(1, report(1, 900))]
        await ask(served, messages)
        for text in ("And now?", "What about the third boat?"):
            await ask(served, [*messages, {"role": "assistant", "content": ANSWER}, {**QUESTION, "content": text}])
        first, *later = [chat.body["messages"] for chat in turns_of(studio)]
        assert ref_in_view(content_of(first[-1])) == ref_to("", report(1, 900)).id
        assert all(messages[: len(first)] == first for messages in later)


@pytest.mark.slow
async def test_results_that_nobody_remembers_are_shortened_anew(tmp_path: Path) -> None:
    """A long history of which nothing is known, huge results in it, fits at once and loses nothing."""
    huge = report(3, 20_000)
    async with small_window(tmp_path, lambda body: ANSWER, window=8192, agents=READER) as (served, studio):
        messages = [QUESTION, *round_of(1, report(1)), *round_of(2, huge), *round_of(3, report(4))]
        await ask(served, [*messages, {"role": "assistant", "content": ANSWER}, QUESTION])
        [turn] = turns_of(studio)
        assert_fits(turn)
        assert not orders_of(studio)
        assert ref_to("", huge).id in await reachable(served, turn.body["messages"])
        assert await kept(served, ref_to("", huge).id) == huge


@pytest.mark.slow
@pytest.mark.parametrize(("count", "window"), [(1, 1000), (8, 2048), (8, 8192), (30, 4096)])
async def test_results_that_come_in_together_are_viewed_together(tmp_path: Path, count: int, window: int) -> None:
    """Many large results at once share the room, each with the reference under which it is whole."""
    texts = [report(number, 900) for number in range(count)]
    calls = [round_of(number, text) for number, text in enumerate(texts)]
    made = [call for asked, _ in calls for call in asked["tool_calls"]]
    together = [{"role": "assistant", "content": "", "tool_calls": made}, *(result for _, result in calls)]
    async with small_window(tmp_path, lambda body: ANSWER, window=window, agents=READER) as (served, studio):
        assert await ask(served, [QUESTION, *together]) == ANSWER
        [turn] = turns_of(studio)
        assert_fits(turn)
        results = [content_of(message) for message in turn.body["messages"] if message["role"] == "tool"]
        assert [references_in(text) for text in results] == [{ref_to("", text).id} for text in texts]


@pytest.mark.slow
async def test_a_compaction_by_hand_names_the_list_too(tmp_path: Path) -> None:
    """Results that a person's own compaction takes out can be read again, as any others."""
    messages = [QUESTION]
    for number in range(6):
        messages += [*round_of(number, report(number)), {"role": "assistant", "content": ANSWER}, QUESTION]
    async with small_window(tmp_path, lambda body: ANSWER, window=16_384, agents=READER) as (served, _):
        url = f"{served.url}/v1/conversations/any/compact"
        async with served.http.post(url, json={"model": "writer", "messages": messages}) as response:
            compacted = await response.json()
        assert response.status == 200, compacted
        shorter = compacted["messages"]
        assert sum(message["role"] == "tool" for message in shorter) < 6
        assert {ref_to("", report(number)).id for number in range(6)} <= await reachable(served, shorter)


async def test_each_person_reads_their_own(tmp_path: Path) -> None:
    """A reference of one person's leads another nowhere, in the same chat program."""
    asked_for: list[str] = []

    def reads(body: Body) -> Script | str:
        results = [content_of(message) for message in body["messages"] if message["role"] == "tool"]
        asked_for.append(results[-1])
        if len(results) > 1:
            return ANSWER
        ref_id = ref_in_view(results[0]) or "a" * 12
        return Script(ToolCall("tool_output_cache", {"ref_id": stolen or ref_id, "offset": 300, "limit": 2}))

    stolen = ""
    async with small_window(tmp_path, reads, window=8192, agents=READER) as (served, _):
        messages = [QUESTION, *round_of(1, report(1, 900))]
        await ask(served, messages, **{"X-OpenWebUI-User-Id": "ann"})
        assert "1.299: boat" in asked_for[1]
        stolen = ref_in_view(asked_for[0]) or ""
        assert stolen
        await ask(served, messages, **{"X-OpenWebUI-User-Id": "bob"})
        assert "There is no tool output with the reference" in asked_for[3]


async def test_without_the_cache_nothing_refers_to_it(tmp_path: Path) -> None:
    """Where it is switched off, the model is offered no such tool, and results stand as they are where they fit."""
    async with small_window(tmp_path, lambda body: ANSWER, window=8192, agents=AGENT_WITHOUT_CACHE) as (served, studio):
        await ask(served, [QUESTION, *round_of(1, report(1))])
        [turn] = turns_of(studio)
        assert content_of(turn.body["messages"][-1]) == report(1)
        assert "tools" not in turn.body


@pytest.mark.parametrize("odd", [["a"], {"a": 1}], ids=str)
async def test_ids_that_are_none_are_refused(tmp_path: Path, odd: Any) -> None:
    """A call's id is a text: the client reads which one is not."""
    call, result = round_of(1, report(1))
    async with small_window(tmp_path, agents=READER) as (served, studio):
        unsound = {**call["tool_calls"][0], "id": odd}
        for messages, where in (
            ([QUESTION, call, {**result, "tool_call_id": odd}], "messages[2].tool_call_id"),
            (
                [QUESTION, {**call, "tool_calls": [unsound]}],
                "messages[1].tool_calls[0].id",
            ),
        ):
            status, body = await ask_whole(served, {"model": "writer", "messages": messages})
            assert status == 400
            assert body["error"]["param"] == where
        assert not studio.chats


async def test_who_leaves_while_a_result_is_kept_may_ask_again(tmp_path: Path) -> None:
    """Leaving in the middle of it breaks nothing: the same call is viewed, and kept to its last line."""
    text = report(5, 20_000)
    returned = asyncio.Event()

    @own_tool
    async def look() -> str:
        """Look."""
        returned.set()
        return text

    def says(body: Body) -> Script | str:
        return ANSWER if body["messages"][-1]["role"] == "tool" else Script(ToolCall("look", {}))

    tools: list[ServerTool] = [look]
    async with small_window(tmp_path, says, window=8192, toolbox=lambda target: tools) as (served, studio):
        for pause in (0, 0.005, 0.02):
            returned.clear()
            chat = asyncio.create_task(ask(served, [QUESTION]))
            await returned.wait()
            await asyncio.sleep(pause)
            chat.cancel()
            await asyncio.gather(chat, return_exceptions=True)
        assert await ask(served, [QUESTION]) == ANSWER
        assert ref_in_view(content_of(turns_of(studio)[-1].body["messages"][-1])) == ref_to("", text).id
        assert await kept(served, ref_to("", text).id) == text


@pytest.mark.slow
@pytest.mark.parametrize("window", [4096, pytest.param(8192, marks=pytest.mark.long)])
async def test_a_long_run_loses_no_result(tmp_path: Path, window: int) -> None:
    """Through prunings and compactions within one answer each result can be found, and so it can in the next turn."""
    returned: list[str] = []

    @own_tool
    async def look(number: int) -> str:
        """Look at a report."""
        returned.append(report(number, 5 + number * 13 % 40))
        return returned[-1]

    def says(body: Body) -> Script | str:
        number = len(returned)
        return Script(*(ToolCall("look", {"number": number + more}) for more in range(2))) if number < 50 else ANSWER

    tools: list[ServerTool] = [look]
    agent = f"{AGENT}max_turns = 100\n"
    async with small_window(tmp_path, says, window=window, agents=agent, toolbox=lambda target: tools) as (
        served,
        studio,
    ):
        assert await ask(served, [QUESTION]) == ANSWER
        for chat in turns_of(studio):
            assert_fits(chat)
        last = turns_of(studio)[-1].body["messages"]
        present = {content_of(message) for message in last}
        refs = {ref_to("", text).id for text in returned if text not in present}
        assert len(refs) > 20
        assert refs <= await reachable(served, last)
        assert orders_of(studio)
        await ask(served, [QUESTION, {"role": "assistant", "content": ANSWER}, {**QUESTION, "content": "And now?"}])
        later = turns_of(studio)[-1].body["messages"]
        assert later[: len(last)] == last
