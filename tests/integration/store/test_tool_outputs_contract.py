"""What the outputs of tools promise: in a file, in memory, and where the file cannot be opened."""

import random
from bisect import bisect_left
from itertools import accumulate

import pytest
import store_fixtures
from kept_outputs import ME, TEXTS, places_of, read, text_of

from elbowroom.context.outputs import BLOCK_CHARACTERS, ToolOutputs, is_ref_id, utf8
from elbowroom.store import Store

ODD_OWNERS = ["", "\ud800", "a\0b", "'; DROP TABLE tool_outputs; --", "\U0001f600" * 1000]
UNKNOWN = ["", "x", "a" * 12, "\ud800" * 12, "\0" * 12, "A" * 12, "a" * 10_000, "' OR 1=1; --"]


store = store_fixtures.store


@pytest.fixture
def outputs(store: Store) -> ToolOutputs:
    """The outputs of a store of each kind."""
    return store.tool_outputs


async def test_blocks_joined_are_the_text(outputs: ToolOutputs) -> None:
    """Whatever a tool returned comes back as it was, in blocks that are not empty and know their place."""
    for name, text in TEXTS.items():
        ref = await outputs.keep(ME, "read", text)
        assert await outputs.find(ME, ref.id) == ref
        assert ref.bytes == len(utf8(text))
        assert ref.lines == len(text.split("\n")) - (text == "" or text.endswith("\n")), name
        blocks = await read(outputs, ref.id)
        assert "".join(block.text for block in blocks) == text, name
        assert all(0 < len(block.text) <= BLOCK_CHARACTERS for block in blocks)
        starts = accumulate((len(block.text) for block in blocks[:-1]), initial=0)
        assert [(block.line, block.column) for block in blocks] == [places_of(text)[at] for at in starts if text], name


@pytest.mark.slow
async def test_reading_begins_anywhere(outputs: ToolOutputs) -> None:
    """From any place the blocks begin with the first character at or behind it."""
    for name, text in TEXTS.items():
        ref = await outputs.keep(ME, "read", text)
        places = places_of(text)
        generator = random.Random(name)
        asked = [(0, 0), (0, 7), (1, 0), (-5, -5), (1, 65_537), (2, 1), (2, 10**30), (10**30, 1)]
        asked += generator.sample(places, min(4, len(places)))
        asked += [(line, column + generator.choice([1, 2, 70_000])) for line, column in asked[-4:]]
        for place in asked:
            blocks = await read(outputs, ref.id, *place)
            at = bisect_left(places, place)
            assert "".join(block.text for block in blocks) == text[at:], (name, place)
            assert [(block.line, block.column) for block in blocks[:1]] == list(places[at : at + 1]), (name, place)


async def test_the_same_text_is_kept_once(outputs: ToolOutputs) -> None:
    """It has the same id whichever tool returned it, and another text has another."""
    one = await outputs.keep(ME, "read", "text")
    assert await outputs.keep(ME, "search", "text") == one
    other = await outputs.keep(ME, "read", "text\n")
    assert other.id != one.id
    assert is_ref_id(one.id)
    assert await text_of(outputs, one.id) == "text"
    assert await text_of(outputs, other.id) == "text\n"


async def test_owners_are_apart(outputs: ToolOutputs) -> None:
    """Nobody finds, reads or learns the id of what another owner's tools returned."""
    refs = {owner: await outputs.keep(owner, "read", "the same secret") for owner in ["me", "you", *ODD_OWNERS]}
    assert len({ref.id for ref in refs.values()}) == len(refs)
    for owner, ref in refs.items():
        assert await text_of(outputs, ref.id, owner=owner) == "the same secret"
        for other in refs:
            if other != owner:
                assert await outputs.find(other, ref.id) is None
                assert await read(outputs, ref.id, owner=other) == []
                assert await outputs.media(other, ref.id) is None


async def test_an_unknown_id_finds_nothing(outputs: ToolOutputs) -> None:
    """Whatever a model writes in the place of an id, nothing is found and nothing raised."""
    await outputs.keep(ME, "read", "text")
    await outputs.in_use(ME, UNKNOWN)
    for ref_id in UNKNOWN:
        assert await outputs.find(ME, ref_id) is None
        assert await read(outputs, ref_id) == []
        assert await outputs.media(ME, ref_id) is None


async def test_any_name_of_a_tool_is_taken(outputs: ToolOutputs) -> None:
    """A tool's name can be any text."""
    for tool in ("", "\ud800", "a\0b", "x" * 100_000):
        ref = await outputs.keep(ME, tool, f"text of {len(tool)}")
        assert await text_of(outputs, ref.id) == f"text of {len(tool)}"


async def test_what_is_no_text_is_kept_whole(outputs: ToolOutputs) -> None:
    """An image comes back with its type, byte for byte; it has no lines, and is no text."""
    for size in (0, 1, 65_536, 300_000):
        data = random.Random(size).randbytes(size)
        ref = await outputs.keep_media(ME, "camera", "image/png", data)
        assert (ref.bytes, ref.lines, ref.mime_type) == (size, 0, "image/png")
        assert await outputs.keep_media(ME, "scanner", "image/png", data) == ref
        assert await outputs.find(ME, ref.id) == ref
        assert await outputs.media(ME, ref.id) == ("image/png", data)
        assert await read(outputs, ref.id) == []


async def test_types_tell_outputs_apart(outputs: ToolOutputs) -> None:
    """The same bytes as a text, as one type and as another are three outputs; any text may be the type."""
    text = await outputs.keep(ME, "read", "data")
    others = [await outputs.keep_media(ME, "read", kind, b"data") for kind in ("image/png", "image/gif", "\ud800\0")]
    assert len({ref.id for ref in (text, *others)}) == 4
    assert [(await outputs.media(ME, ref.id)) for ref in others] == [(ref.mime_type, b"data") for ref in others]
    assert await outputs.media(ME, text.id) is None


async def test_readers_do_not_disturb_each_other(outputs: ToolOutputs) -> None:
    """Two that read at once each get all of it, also where one stops in the middle."""
    text = TEXTS["many blocks"]
    ref = await outputs.keep(ME, "read", text)
    one, two, stopped = (outputs.blocks(ME, ref.id) for _ in range(3))
    assert (await anext(stopped)).line == 1
    pairs = [(block, await anext(two)) async for block in one]
    assert "".join(block.text for block, _ in pairs) == text
    assert all(first == second for first, second in pairs)
    assert await anext(two, None) is None
