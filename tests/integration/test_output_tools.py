"""The two tools that read kept outputs: what they answer, what bounds them, and that nothing makes them hang."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing

import pytest
from loop_stall import longest_stall
from memory_stores import MemoryToolOutputs
from output_pages import SmallBlocks, read_back
from waiting import until

from elbowroom.agents.tools.outputs.tools import Quota, output_tools
from elbowroom.agents.tools.tool import ServerTool, ToolResult
from elbowroom.context.outputs.output import Block, ToolOutputRef
from elbowroom.context.outputs.view import Limits, ref_in_view, view_of
from elbowroom.errors import ElbowroomError, NotFound, RequestError

LOG = "".join(f"line {n}{' error' if n % 100 == 0 else ''}\n" for n in range(1, 1001))
HUGE = 50_000_000


def quarter(text: str) -> int:
    """Count four characters as a token."""
    return (len(text) + 3) // 4


async def tools_on(
    text: str, tokens: int = 5000, outputs: MemoryToolOutputs | None = None
) -> tuple[ServerTool, ServerTool, ToolOutputRef, Quota]:
    """Return both tools, the reference of a text that was kept for them, and their quota."""
    outputs, quota = outputs or MemoryToolOutputs(), Quota(tokens, quarter)
    ref = await outputs.keep("anna", "shell", text)
    reader, searcher = output_tools(outputs, "anna", quota)
    return reader, searcher, ref, quota


async def test_matching_lines_come_with_their_numbers_and_how_to_go_on() -> None:
    """The first matches are shown, all are counted, and the next call begins at the next one."""
    _, searcher, ref, _ = await tools_on(LOG)
    assert await searcher.call({"ref_id": ref.id, "pattern": "err.r$", "limit": "2", "context": None}) == (
        "  100| line 100 error\n  200| line 200 error\n"
        "[10 matches; 2 shown. To go on: the same call with offset_line=300]"
    )
    assert await searcher.call({"ref_id": ref.id, "pattern": "ERROR", "ignore_case": True, "offset_line": 901}) == (
        " 1000| line 1000 error\n[1 match from line 901 on; the output has 1000 lines]"
    )
    assert await searcher.call({"ref_id": ref.id, "pattern": "nothing"}) == "[0 matches; the output has 1000 lines]"


async def test_lines_around_a_match_are_shown_once() -> None:
    """Context that overlaps is joined; a line of dashes stands where lines are missing between."""
    _, searcher, ref, _ = await tools_on("a\nb1\nc\nd\nb2\nb3\ne\nf\ng\nh\nb4\n")
    assert await searcher.call({"ref_id": ref.id, "pattern": "^b", "context": 1}) == (
        "    1- a\n    2| b1\n    3- c\n    4- d\n    5| b2\n    6| b3\n    7- e\n--\n   10- h\n   11| b4\n"
        "[4 matches; the output has 11 lines]"
    )
    assert await searcher.call({"ref_id": ref.id, "pattern": "^b", "context": 1, "limit": 2}) == (
        "    1- a\n    2| b1\n    3- c\n    4- d\n    5| b2\n    6- b3\n"
        "[4 matches; 2 shown. To go on: the same call with offset_line=6]"
    )


async def test_of_a_match_that_is_too_large_the_beginning_is_shown() -> None:
    """A small quota shows less of a line, or none of the lines around it, before it shows nothing."""
    text = "before " * 200 + "\n" + "word " * 300 + "\nword\n"
    _, searcher, ref, _ = await tools_on(text, tokens=150)
    answer = await searcher.call({"ref_id": ref.id, "pattern": "word", "context": 1})
    assert isinstance(answer, str)
    assert 120 < quarter(answer) <= 150
    assert answer.startswith("    2| word word word ")
    assert f'To read on in one: tool_output_cache(ref_id="{ref.id}", offset=2, column=1)]' in answer
    assert answer.endswith("[2 matches; 1 shown. To go on: the same call with offset_line=3]")


async def test_in_a_long_line_each_place_can_be_gone_on_from() -> None:
    """Matches in one line are shown with their surroundings, and the next call begins at a column of it."""
    line = ("." * 996 + "HERE") * 20
    reader, searcher, ref, _ = await tools_on(line)
    first = await searcher.call({"ref_id": ref.id, "pattern": "HERE", "limit": 1})
    assert isinstance(first, str)
    assert first.startswith("    1:897| " + "." * 100 + "HERE" + "." * 296 + "\n")
    assert f'tool_output_cache(ref_id="{ref.id}", offset=1, column=897)' in first
    assert first.endswith("[20 matches; 1 shown. To go on: the same call with offset_line=1, column=1997]")
    second = await searcher.call({"ref_id": ref.id, "pattern": "HERE", "limit": 1, "offset_line": 1, "column": 1997})
    assert isinstance(second, str)
    assert second.startswith("    1:1897| ")
    assert "[19 matches from line 1 on; 1 shown." in second
    page = await reader.call({"ref_id": ref.id, "offset": 1, "column": 897, "limit": 1})
    assert isinstance(page, str)
    assert page.startswith("    1:897| " + "." * 100 + "HERE")


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a?)+c", *(pytest.param(more, marks=pytest.mark.long) for more in ("(a|aa)+$", "(a+)+$x", "(a*)*b"))],
)
async def test_patterns_that_hang_other_engines_take_a_moment(pattern: str, huge_line: MemoryToolOutputs) -> None:
    """On one line of 50 MB: the search comes to its end in seconds, and the loop runs on meanwhile."""
    _, searcher, ref, quota = await tools_on("a" * HUGE, outputs=huge_line)
    for attempt in range(3):  # a loaded machine may stall the loop by itself
        quota.begin_step(5000)
        found: list[str | ToolResult] = []

        async def search(found: list[str | ToolResult] = found) -> None:
            found.append(await searcher.call({"ref_id": ref.id, "pattern": pattern}))

        stall = await longest_stall(search())
        assert "; the output has 1 line]" in str(found[0])
        if stall < 0.25:
            return
        assert attempt < 2, stall


@pytest.fixture(scope="module")
def huge_line() -> MemoryToolOutputs:
    """Return where the tests keep one line of 50 MB."""
    return MemoryToolOutputs()


async def test_a_pattern_of_100_kilobytes_is_refused() -> None:
    """It is neither compiled nor repeated to the model."""
    _, searcher, ref, _ = await tools_on(LOG)
    with pytest.raises(RequestError, match="more than the 1000 that are taken") as refused:
        await searcher.call({"ref_id": ref.id, "pattern": "(a|b)*" * 17_000})
    assert len(refused.value.message) < 200


async def test_a_page_in_the_middle_of_a_huge_line_costs_little(huge_line: MemoryToolOutputs) -> None:
    """Reading begins at the column that is asked for, not at the line's beginning."""
    reader, _, ref, _ = await tools_on("a" * HUGE, outputs=huge_line)
    started = time.process_time()
    page = await reader.call({"ref_id": ref.id, "column": HUGE - 3999})
    assert isinstance(page, str)
    assert page.endswith("aaa\n[Line 1 of 1: the end, without a line break]")
    assert time.process_time() - started < 0.5


async def test_a_search_ends_with_its_time_and_says_how_to_go_on() -> None:
    """Nobody waits for a search without end: what was found so far is told, and where the next one begins."""
    outputs, ticks = SmallBlocks(100), itertools.count()
    ref = await outputs.keep("anna", "shell", LOG)
    _, searcher = output_tools(outputs, "anna", Quota(5000, quarter), clock=lambda: float(next(ticks)))
    answer = await searcher.call({"ref_id": ref.id, "pattern": "error"})
    assert isinstance(answer, str)
    shown, outcome = answer.rsplit("\n", 1)
    assert shown == "  100| line 100 error\n  200| line 200 error"
    assert outcome.startswith("[2 matches up to line 2")
    assert "of 1000, where the time for a search was up; 2 shown. To go on: the same call with offset_line=2" in outcome
    assert outputs.open == 0


async def test_cancelling_ends_a_search() -> None:
    """A model that is stopped while it searches leaves no work behind."""
    outputs = SmallBlocks(50)
    _, searcher, ref, _ = await tools_on(LOG * 2000, outputs=outputs)
    searching = asyncio.ensure_future(searcher.call({"ref_id": ref.id, "pattern": "nothing"}))
    await until(lambda: outputs.open)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(searching, 60)
    await until(lambda: not outputs.open)


async def test_calls_of_one_step_share_its_quota() -> None:
    """However many calls a model makes at once, together they take no more than the step has."""
    reader, searcher, ref, quota = await tools_on(LOG, tokens=1000)
    calls: list[Awaitable[str | ToolResult]] = []
    for _ in range(4):
        calls += [reader.call({"ref_id": ref.id}), searcher.call({"ref_id": ref.id, "pattern": "line"})]
    answers = [str(answer) for answer in await asyncio.gather(*calls)]
    used_up = [answer for answer in answers if answer.startswith("[Nothing more fits this step")]
    pages = [answer for answer in answers if answer not in used_up]
    assert used_up
    assert sum(map(quarter, pages)) == 1000 - quota.left <= 1000
    assert all(quarter(answer) < 40 for answer in used_up)
    quota.begin_step(1000)
    assert str(await reader.call({"ref_id": ref.id})).startswith("    1| line 1\n")


async def test_what_is_read_back_is_no_output_again() -> None:
    """C34: a huge entry comes in a page of the quota's size, which names no reference of its own and is not kept."""
    text = "x" * 3_000_000
    reader, searcher, ref, quota = await tools_on(text, tokens=700)
    assert not reader.keeps_output
    assert not searcher.keeps_output
    for tool, asked in ((reader, {}), (searcher, {"pattern": "x"})):
        quota.begin_step(700)
        page = await tool.call({"ref_id": ref.id, **asked})
        assert isinstance(page, str)
        assert quarter(page) <= 700
        assert ref_in_view(page) is None
        assert page.count('ref_id="') == page.count(ref.id) >= 1


@pytest.mark.slow
async def test_every_reference_can_be_read_after_ten_rounds() -> None:
    """C33: views name what is kept and not other messages, so that viewing them again breaks nothing."""
    outputs, quota = MemoryToolOutputs(), Quota(0, quarter)
    reader, _ = output_tools(outputs, "anna", quota)
    limits = Limits(2000, 4000, 800)
    kept = {}
    for number in range(10):
        text = f"output {number}\n" * 2000
        ref = await outputs.keep("anna", "shell", text)
        kept[view_of(text, ref, limits, quarter).text] = text
    for shown, text in kept.items():
        view = shown
        for _ in range(10):
            view = view_of(view, await outputs.keep("anna", "shell", view), limits, quarter).text
        named = ref_in_view(view)
        assert named is not None
        found = await outputs.find("anna", named)
        assert found is not None
        assert await read_back(reader, found, quota, 5000) == text


@pytest.mark.parametrize("owner", ["anna", "ben"])
async def test_references_of_others_are_unknown(owner: str) -> None:
    """Another owner's reference is refused in the very words in which one is that never was."""
    outputs = MemoryToolOutputs()
    ref = await outputs.keep("carl", "shell", "secret")
    for tool in output_tools(outputs, owner, Quota(5000, quarter)):
        for name in (ref.id, "abcdefghijkm", "", "x" * 5000):
            with pytest.raises(NotFound, match=f"^There is no tool output with the reference '{name[:40]}'"):
                await tool.call({"ref_id": name, "pattern": "s"} if tool.kind == "query" else {"ref_id": name})


async def test_an_image_is_read_as_it_was_first_told() -> None:
    """The model reads what the output is, and where the user can open it; there are no lines to search."""
    outputs = MemoryToolOutputs()
    ref = await outputs.keep_media("anna", "camera", "image/png", b"\x89PNG")
    reader, searcher = output_tools(outputs, "anna", Quota(5000, quarter))
    assert await reader.call({"ref_id": ref.id}) == (
        f"[image/png, 4 bytes, is kept whole; ref={ref.id}; it cannot be shown to you. "
        f"The user can open it on this server: /v1/tool_outputs/{ref.id}]"
    )
    with pytest.raises(RequestError, match="no text but image/png"):
        await searcher.call({"ref_id": ref.id, "pattern": "a"})


@pytest.mark.parametrize(
    "asked", [{}, {"ref_id": "a", "offset": -1}, {"ref_id": "a", "limit": "many"}, {"ref_id": "a", "path": "b"}]
)
async def test_arguments_that_do_not_fit_are_named(asked: dict[str, object]) -> None:
    """A sentence says which one and what the tool takes."""
    for tool in output_tools(MemoryToolOutputs(), "anna", Quota(5000, quarter)):
        with pytest.raises(ElbowroomError, match="It takes: ref_id, "):
            await tool.call({"pattern": "a", **asked} if tool.kind == "query" else asked)


class Damaged(MemoryToolOutputs):
    """Outputs whose second half cannot be read."""

    async def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the first line alone."""
        if line == 1:
            async with aclosing(super().blocks(owner, ref_id, line, column)) as blocks:  # type: ignore[type-var]
                async for block in blocks:
                    yield Block(1, 1, block.text.split("\n")[0] + "\nli")
                    return


async def test_a_damaged_output_is_not_taken_for_its_end() -> None:
    """What cannot be read is said to be missing, not to be all there is."""
    reader, _, ref, _ = await tools_on(LOG, outputs=Damaged())
    page = await reader.call({"ref_id": ref.id})
    assert isinstance(page, str)
    assert page.startswith("    1| line 1\n    2| li\n[Lines 1-2 of 1000. To read on: ")
    assert "offset=2, column=3)" in page
    assert await reader.call({"ref_id": ref.id, "offset": 2, "column": 3}) == (
        "[Line 2 could not be read: what was kept is damaged. Call the tool itself again.]"
    )
