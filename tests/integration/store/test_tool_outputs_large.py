"""Outputs of up to 50 MB: kept and read in little time and memory, and without holding up anybody else."""

import asyncio
import random
from pathlib import Path

import pytest
from kept_outputs import ME, first_block, largest_stall, text_of
from ledger_files import file_store, query

from elbowroom.context.outputs.output import BLOCK_CHARACTERS


def log_of(megabytes: int) -> str:
    """Return a log of some size whose lines are all different."""
    generator = random.Random(megabytes)
    words = [f"{generator.getrandbits(48):x}" for _ in range(2000)]
    some = [" ".join(generator.choices(words, k=8)) for _ in range(5000)]
    line_bytes = sum(map(len, some)) / len(some) + 9
    return "".join(f"{number:08}{some[number % 4999]}\n" for number in range(int(megabytes * 10**6 / line_bytes)))


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [10, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("shape", ["lines", "one line"])
async def test_a_huge_output(tmp_path: Path, shape: str, megabytes: int) -> None:
    """A huge log, or one huge line, is kept whole, and a block from anywhere comes without reading the rest."""
    text = log_of(megabytes) if shape == "lines" else log_of(megabytes).replace("\n", " ")
    path = tmp_path / "elbowroom.db"
    async with file_store(path) as store:
        await store.ledger.keys()
        keeping = asyncio.create_task(store.tool_outputs.keep(ME, "read", text))
        assert await largest_stall(keeping) < 0.5
        ref = await keeping
        assert ref.bytes == len(text)
        assert ref.lines == (text.count("\n") or 1)
        assert query(path, "SELECT count(*) FROM tool_outputs") == [(1,)]
        generator = random.Random(1)
        for at in [generator.randrange(len(text)) for _ in range(20)]:
            line = text.count("\n", 0, at) + 1
            column = at - text.rfind("\n", 0, at) if line > 1 else at + 1
            block = await first_block(store.tool_outputs, ref.id, line, column)
            assert (block.line, block.column) == (line, column)
            assert text.startswith(block.text, at)
            assert 0 < len(block.text) <= BLOCK_CHARACTERS
        reading = asyncio.create_task(text_of(store.tool_outputs, ref.id))
        assert await largest_stall(reading) < 0.5
        assert await reading == text
