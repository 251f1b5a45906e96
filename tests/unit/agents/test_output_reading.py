"""Pages of tool outputs: every character can be read, and no page is larger than it may be."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from output_pages import SmallBlocks, read_back

from elbowroom.agents.tools.outputs.tools import Quota, output_tools
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.context.outputs.output import ToolOutputRef

characters = st.one_of(st.sampled_from("ab| \n\r\t\0\f\x0b\x85\u2028\u2029é漢😀\ud800\udfff["), st.characters())
pieces = st.one_of(
    st.text(characters, max_size=30),
    st.builds(lambda text, times: text * times, st.text(characters, min_size=1, max_size=5), st.integers(1, 60)),
    st.sampled_from(["\n", "\n\n", "\r\n", "    1| text\n", "[line 1 goes on at column=3]\n", "[the end]"]),
)
texts = st.lists(pieces, max_size=10).map("".join)


def bytes_of(text: str) -> int:
    """Count a byte as a token."""
    return len(text.encode("utf-8", "surrogatepass"))


async def kept(text: str, block: int, width: int, max_bytes: int) -> tuple[ServerTool, ToolOutputRef, Quota]:
    """Return the tool that reads a text which has been kept."""
    outputs, quota = SmallBlocks(block), Quota(0, bytes_of)
    ref = await outputs.keep("anna", "shell", text)
    return output_tools(outputs, "anna", quota, max_line_length=width, max_bytes=max_bytes)[0], ref, quota


@pytest.mark.slow
@given(texts, st.integers(1, 40), st.integers(1, 50), st.integers(160, 700))
def test_every_output_can_be_put_together_from_its_pages(text: str, block: int, width: int, tokens: int) -> None:
    """Following the notes alone, a reader gets every character, whatever it is and wherever the pages are cut."""

    async def read() -> str:
        reader, ref, quota = await kept(text, block, width, 5000)
        return await read_back(reader, ref, quota, tokens)

    assert asyncio.run(read()) == text


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
async def test_a_long_output_is_read_back_byte_for_byte(ending: str) -> None:
    """Many lines, long ones among them, with every character that is told from others only by its number."""
    nasty = "".join(map(chr, range(0x3000))) + "\ud800\udc00\udfff\U0010ffff"
    text = "\n".join([nasty * 3, "short\r", "", *(f"line {n}\t\0" for n in range(3000)), "x" * 20_000]) + ending
    reader, ref, quota = await kept(text, 65_536, 2000, 51_200)
    back = await read_back(reader, ref, quota, 20_000)
    assert back.encode("utf-8", "surrogatepass") == text.encode("utf-8", "surrogatepass")


@pytest.mark.slow
@given(texts, st.integers(0, 900), st.integers(200, 900), st.integers(0, 60), st.integers(0, 60))
def test_no_page_takes_more_than_it_may(text: str, tokens: int, max_bytes: int, offset: int, column: int) -> None:
    """Tokens and bytes bound a page, the notes in it included; only the sentence that nothing fits has its own size."""

    async def read() -> str:
        reader, ref, quota = await kept(text, 30, 80, max_bytes)
        quota.begin_step(tokens)
        page = await reader.call({"ref_id": ref.id, "offset": offset, "column": column})
        assert isinstance(page, str)
        assert quota.left == (tokens if page.startswith("[There is no room") else tokens - bytes_of(page))
        return page

    page = asyncio.run(read())
    assert bytes_of(page) <= min(tokens, max_bytes) or page.startswith("[There is no room")


@pytest.mark.slow
@given(texts, st.sampled_from(["a", "b|é", "^", "x$"]), st.integers(0, 900), st.integers(250, 900), st.integers(0, 3))
def test_no_search_tells_more_than_it_may(text: str, pattern: str, tokens: int, max_bytes: int, context: int) -> None:
    """What is bound for pages is bound for searches, with lines around what they find."""

    async def search() -> str:
        outputs, quota = SmallBlocks(30), Quota(tokens, bytes_of)
        ref = await outputs.keep("anna", "shell", text)
        _, searcher = output_tools(outputs, "anna", quota, max_line_length=80, max_bytes=max_bytes)
        answer = await searcher.call({"ref_id": ref.id, "pattern": pattern, "context": context})
        assert isinstance(answer, str)
        assert quota.left == (tokens if answer.startswith("[There is no room") else tokens - bytes_of(answer))
        return answer

    answer = asyncio.run(search())
    assert bytes_of(answer) <= min(tokens, max_bytes) or answer.startswith("[There is no room")


async def test_a_page_numbers_lines_and_says_how_to_read_on() -> None:
    """The form that the model sees."""
    reader, ref, quota = await kept("".join(f"line {n}\n" for n in range(1, 101)), 65_536, 2000, 51_200)
    quota.begin_step(5000)
    assert await reader.call({"ref_id": f' "{ref.id}" ', "offset": "40", "limit": "2", "column": None}) == (
        "   40| line 40\n   41| line 41\n"
        f'[Lines 40-41 of 100. To read on: tool_output_cache(ref_id="{ref.id}", offset=42)]'
    )
    assert await reader.call({"ref_id": ref.id, "offset": 100}) == "  100| line 100\n[Line 100 of 100: the end]"


async def test_a_long_line_is_cut_and_read_on_by_its_column() -> None:
    """Among others a long line is cut; asked for by its column it fills the page."""
    reader, ref, quota = await kept("a\n" + "0123456789" * 1000 + "\nlast", 65_536, 2000, 51_200)
    quota.begin_step(50_000)
    page = await reader.call({"ref_id": ref.id})
    assert isinstance(page, str)
    assert page.split("\n")[2:] == [
        "[line 2 goes on at column=2001]",
        "    3| last",
        "[Lines 1-3 of 3: the end, without a line break]",
    ]
    page = await reader.call({"ref_id": ref.id, "offset": 2, "column": 2001, "limit": 1})
    assert isinstance(page, str)
    assert [row.split("|")[0] for row in page.split("\n")[:-1]] == [f"    2:{n}001" for n in (2, 4, 6, 8)]


@pytest.mark.parametrize(
    ("text", "asked", "told"),
    [
        ("", {}, "[The output is empty.]"),
        ("a\nb\n", {"offset": 9}, "[There is no line 9: the output has 2.]"),
        ("a\nb\n", {"offset": 2, "column": 9}, "[Line 2 ends before column 9, and is the last one.]"),
        ("a\nb\n", {"offset": 1, "column": 9}, "[line 1 ends before column 9]\n    2| b\n[Line 2 of 2: the end]"),
    ],
)
async def test_places_that_are_not_there(text: str, asked: dict[str, int], told: str) -> None:
    """The model is told what there is instead."""
    reader, ref, quota = await kept(text, 65_536, 2000, 51_200)
    quota.begin_step(5000)
    assert await reader.call({"ref_id": ref.id, **asked}) == told
