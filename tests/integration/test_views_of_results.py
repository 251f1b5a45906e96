"""How much a model gets of a tool's result, what the person reads of it, and where the whole is."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, chunks_of, function_spec, stream_bytes
from measured_views import BEGIN, DOCUMENT, END, measured, reading, table
from own_tools import own_tool
from request_checks import assert_fits
from scripted_pruner import text_of as content_of
from serving import text_of
from small_window import Body, orders_of, small_window, turns_of

from elbowroom.agents.tools.tool import ServerTool
from elbowroom.context.outputs import ref_to
from elbowroom.demo import Script, ToolCall

ANSWER = "The ninth boat."
ASKED = {"model": "writer", "messages": [{"role": "user", "content": "Which boat was late?"}], "stream": True}


def lines(size: int, number: int = 1) -> str:
    """Return a report of about so many bytes."""
    row = f"{number}: the engine of the boat ran well and the sea was calm on that day\n"
    return row * (size // len(row))


def calling(*names: str) -> Any:
    """Return a model that calls these tools in one step and then answers."""
    return lambda body: ANSWER if body["messages"][-1]["role"] == "tool" else Script(*(ToolCall(n, {}) for n in names))


def returning(name: str, text: str) -> ServerTool:
    """Return a tool that returns a text."""

    async def look() -> str:
        """Look."""
        return text

    look.__name__ = name
    return own_tool(look)


def results_in(body: Body) -> list[str]:
    """Return the results as the model reads them."""
    return [content_of(message) for message in body["messages"] if message["role"] == "tool"]


@pytest.mark.slow
async def test_a_page_of_12_kb_takes_at_most_three_calls_in_8192(tmp_path: Path) -> None:
    """Every row is shown, by the one offset that each page names, and later pages are as large as the first."""
    read = await reading(tmp_path, 8192, 12_000)
    assert len(read.pages) <= 3
    assert read.read == set(range(1, read.rows + 1))
    assert read.prompt_tokens < 81_024 / 4
    long = await reading(tmp_path / "long", 8192, 30_000)
    assert long.read == set(range(1, long.rows + 1))
    assert all(len(page) >= 0.9 * long.first for page in long.pages[:-1])


@pytest.mark.long
async def test_the_table_of_the_document_is_measured(tmp_path: Path) -> None:
    """What docs/tools.md says of windows and notes is what `scripts/measured_views` prints."""
    told = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert told.strip() == "".join(table(await measured(tmp_path))).strip()


@pytest.mark.parametrize(("window", "size"), [(4096, 4_000), (8192, 14_000), (131_072, 48_000)])
async def test_a_result_is_whole_as_long_as_it_and_a_reply_fit(tmp_path: Path, window: int, size: int) -> None:
    """Nothing of it is cut, nothing is compacted, and nobody is told anything but that a tool ran."""
    tools = [returning("look", lines(size))]
    async with small_window(tmp_path, calling("look"), window=window, toolbox=lambda target: tools) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, ASKED))
        assert results_in(turns_of(studio)[-1].body) == [lines(size)]
        assert not orders_of(studio)
        kinds = [chunk["elbowroom"]["kind"] for chunk in chunks if "event" in chunk]
        assert [kind for kind in kinds if not kind.startswith("tool ")] == []


@pytest.mark.parametrize(("window", "least", "most"), [(131_072, 48_000, 51_200), (8192, 12_000, 30_000)])
async def test_a_large_result_gets_what_is_free_up_to_the_most_bytes(
    tmp_path: Path, window: int, least: int, most: int
) -> None:
    """In a huge window `max_message_bytes` is what bounds it, in a small one the trigger."""
    tools = [returning("look", lines(124_000))]
    async with small_window(tmp_path, calling("look"), window=window, toolbox=lambda target: tools) as (served, studio):
        await stream_bytes(served, ASKED)
        [view] = results_in(turns_of(studio)[-1].body)
        assert least < len(view) <= most
        assert_fits(turns_of(studio)[-1])


async def test_several_results_of_one_step_share_the_room_by_size(tmp_path: Path) -> None:
    """A small one stays whole, and two large ones get about the same."""
    tools = [returning("a", lines(60_000)), returning("b", lines(900, 2)), returning("c", lines(90_000, 3))]
    async with small_window(tmp_path, calling("a", "b", "c"), window=8192, toolbox=lambda target: tools) as (
        served,
        studio,
    ):
        await stream_bytes(served, ASKED)
        a, b, c = results_in(turns_of(studio)[-1].body)
        assert b == lines(900, 2)
        assert 0.8 < len(a) / len(c) < 1.25
        assert len(a) > 6000


@pytest.mark.parametrize(
    ("setting", "least", "most"),
    [("context_budget_tokens = 6000", 20_000, 30_000), ("max_message_bytes = 3000", 2000, 3000)],
)
async def test_a_limit_that_is_set_is_obeyed(tmp_path: Path, setting: str, least: int, most: int) -> None:
    """No hidden share makes it smaller."""
    tools = [returning("look", lines(124_000))]
    agent = f"[tool_output]\n{setting}\n{AGENT}"
    async with small_window(tmp_path, calling("look"), window=32_768, agents=agent, toolbox=lambda target: tools) as (
        served,
        studio,
    ):
        await stream_bytes(served, ASKED)
        [view] = results_in(turns_of(studio)[-1].body)
        assert least < len(view) <= most


@pytest.mark.parametrize("count", [34, 36, 42])
async def test_tools_that_take_the_window_up_to_the_trigger_leave_a_result_the_rest(tmp_path: Path, count: int) -> None:
    """Where the fixed part alone passes the trigger, what is free of the window beside a reply is used."""
    way = {"type": "string", "description": "way to the file in the folder of the boat " * 4}
    tools = [returning("look", lines(400))]
    whole = f'{AGENT}client_tools = "pass"\n'
    async with small_window(tmp_path, calling("look"), window=8192, agents=whole, toolbox=lambda target: tools) as (
        served,
        studio,
    ):
        specs = [function_spec(f"tool_{number}", path=way) for number in range(count)]
        await stream_bytes(served, {**ASKED, "tools": specs})
        asked, answered = turns_of(studio)
        assert (asked.counted_tokens or 0) > 0.6 * 8192
        assert results_in(answered.body) == [lines(400)]
        assert_fits(answered)


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_log_is_read_on_in_pages_as_large_as_the_first(tmp_path: Path, calls: int) -> None:
    """Each page names its lines and the one line to go on from; nothing is left out, skipped or cut twice."""
    text = "".join(f"{number}: the engine of boat {number * 7919} ran well\n" for number in range(1, 1500))
    pages: list[str] = []

    def says(body: Body) -> Script | str:
        if body["messages"][-1]["role"] != "tool":
            return Script(*(ToolCall("look", {}) for _ in range(calls)))
        page = results_in(body)[-1]
        pages.append(page)
        on = re.findall(r'tool_output_cache\(ref_id="(\w+)", offset=([0-9]+)\)', page)
        return (
            Script(ToolCall("tool_output_cache", {"ref_id": on[0][0], "offset": int(on[0][1]), "limit": 10_000}))
            if on
            else ANSWER
        )

    agent = f"{AGENT}max_turns = 60\n"
    tools = [returning("look", text)]
    async with small_window(tmp_path, says, window=8192, agents=agent, toolbox=lambda target: tools) as (
        served,
        studio,
    ):
        await stream_bytes(served, ASKED)
        for chat in studio.chats:
            assert_fits(chat)
    first, *later, last = [set(re.findall(r"(?m)([0-9]+): the engine", page)) for page in pages]
    assert all(page.count("To read on: ") <= 1 for page in pages)
    assert set().union(first, *later, last) == {str(number) for number in range(1, 1500)}
    assert all(len(page) >= 0.7 * len(later[0]) for page in later)
    assert len(later[0]) >= 0.7 * len(first)


OBSIDIAN = {"Origin": "app://obsidian.md"}
SHOWS_EVENTS = {"X-Elbowroom-Events": "1"}


def told_in(chunks: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the statuses of one kind."""
    return [chunk for chunk in chunks if chunk.get("elbowroom", {}).get("kind") == kind]


@pytest.mark.parametrize(
    ("notices", "headers", "events", "texts"),
    [
        ("auto", {}, 1, 0),
        ("auto", OBSIDIAN, 1, 1),
        ("content", {}, 0, 1),
        ("off", {}, 0, 0),
        ("auto", OBSIDIAN | SHOWS_EVENTS, 1, 0),
        ("content", SHOWS_EVENTS, 1, 0),
        ("off", OBSIDIAN | SHOWS_EVENTS, 0, 0),
        ("comment", OBSIDIAN | SHOWS_EVENTS, 0, 0),
        ("auto", OBSIDIAN | {"X-Elbowroom-Events": "0"}, 1, 1),
    ],
)
async def test_the_person_is_told_once_that_results_were_cut(
    tmp_path: Path, notices: str, headers: dict[str, str], events: int, texts: int
) -> None:
    """One notice for a step names the tools with the size before and after; a client of text gets a line.

    A client that shows events itself gets no line, whatever its origin, and nothing where notices are off.
    """
    tools = [returning("read_log", lines(124_000)), returning("read_list", lines(90_000, 2))]
    async with small_window(
        tmp_path,
        calling("read_log", "read_list"),
        window=8192,
        compaction=f'notices = "{notices}"',
        toolbox=lambda target: tools,
    ) as (served, _):
        chunks = chunks_of(await stream_bytes(served, ASKED, **headers))
        told = told_in(chunks, "results cut")
        assert len(told) == events
        assert text_of(chunks).count("Results of read_log, read_list are too large") == texts
        if told:
            sizes = told[0]["elbowroom"]
            assert sizes["before"] > 30_000 > 5_000 > sizes["after"] > 2_000
            assert "Results of read_log, read_list are too large" in told[0]["event"]["data"]["description"]


async def test_the_person_is_told_when_old_results_are_shortened(tmp_path: Path) -> None:
    """One notice for each batch, with the sizes of the prompt before and after."""
    made: list[int] = []

    def says(body: Body) -> Script | str:
        made.append(1)
        return ANSWER if len(made) > 4 else Script(ToolCall("look", {}))

    tools = [returning("look", lines(9_000))]
    async with small_window(tmp_path, says, window=8192, toolbox=lambda target: tools) as (served, studio):
        told = told_in(chunks_of(await stream_bytes(served, ASKED)), "results shortened")
        assert told
        for each in told:
            assert each["elbowroom"]["before"] > each["elbowroom"]["after"] + 1000
        changed = sum("[tool output trimmed" in text for text in results_in(turns_of(studio)[-1].body))
        assert 1 <= len(told) <= changed


async def test_the_whole_of_a_result_is_one_path_away(tmp_path: Path) -> None:
    """The list of messages and both exports name where the full output is, and there it is to the letter."""
    text = lines(124_000)
    tools = [returning("look", text)]
    async with small_window(tmp_path, calling("look"), window=8192, toolbox=lambda target: tools) as (served, _):
        await stream_bytes(served, ASKED)
        async with served.http.get(f"{served.url}/v1/conversations") as response:
            [row] = (await response.json())["data"]
        url = f"{served.url}/v1/conversations/{row['id']}"
        async with served.http.get(f"{url}/messages") as response:
            paths = [message["full_output"] for message in (await response.json())["data"]]
        path = f"/v1/tool_outputs/{ref_to('', text).id}"
        assert [each for each in paths if each] == [path]
        for form, named in (("json", f'"full_output":"{path}"'), ("markdown", f"Full output on this server: {path}")):
            async with served.http.get(f"{url}/export?format={form}") as response:
                assert named in await response.text()
        async with served.http.get(f"{served.url}{path}") as response:
            assert await response.text() == text
