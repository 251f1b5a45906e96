"""Outputs of tools in the hands of a test: kinds of stores, texts that are hard to keep, and reading back."""

import asyncio
import random
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from elbowroom.context.memories import Memories
from elbowroom.context.outputs import Block, ToolOutputs

ME: Final = "me"
TEXTS: Final = {
    "empty": "",
    "one line": "hello",
    "ended line": "hello\n",
    "line breaks alone": "\n\n\n",
    "Windows": "one\r\ntwo\r\n\r\nthree",
    "other line separators": "a\u2028b\u2029c\x85d\x0be\x0cf\rg",
    "NUL": "\0a\0\n\0",
    "lone surrogates": "\ud800\n\udfff\udc00 \U0001f600",
    "many blocks": "".join(f"line {number} of many, \u00e9\u4e2d\n" for number in range(6_000)),
    "one huge line": "0123456789abcdef" * 9_000,
    "emoji in one line": "\U0001f600" * 70_000,
    "a break at each end of a block": ("x" * 65_535 + "\n") * 3,
    "a break behind each block": "x" * 65_536 + "\n" + "y" * 65_535 + "\n\n" + "z" * 65_536,
}


async def read(outputs: ToolOutputs, ref_id: str, line: int = 1, column: int = 1, owner: str = ME) -> list[Block]:
    """Return all blocks from a place on."""
    return [block async for block in outputs.blocks(owner, ref_id, line, column)]


async def text_of(outputs: ToolOutputs, ref_id: str, line: int = 1, column: int = 1, owner: str = ME) -> str:
    """Return the text from a place on."""
    return "".join(block.text for block in await read(outputs, ref_id, line, column, owner))


async def first_block(outputs: ToolOutputs, ref_id: str, line: int, column: int) -> Block:
    """Return the block with which reading from a place begins."""
    async for block in outputs.blocks(ME, ref_id, line, column):
        return block
    raise AssertionError("there is no block")


@cache
def places_of(text: str) -> Sequence[tuple[int, int]]:
    """Return the line and column of each character."""
    places = []
    line = column = 1
    for character in text:
        places.append((line, column))
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    return places


async def largest_stall(until: "asyncio.Task[Any]") -> float:
    """Return how much of the time until a task was done the event loop was held at a stretch, from 0 to 1."""
    clock = asyncio.get_running_loop().time
    begun, longest = clock(), 0.0
    while not until.done():
        before = clock()
        await asyncio.sleep(0.001)
        longest = max(longest, clock() - before)
    return longest / (clock() - begun)


async def written_down(memories: Memories, agent: str = "agent") -> list[str]:
    """Return the texts that an agent of ours remembers."""
    return [memory.text for memory in await memories.all(ME, agent)]


def numbered(name: str, number: int) -> str:
    """Return one of many texts; most are short, some take dozens of chunks."""
    generator = random.Random(f"{name} {number}")
    return f"{name} {number}\n" + generator.randbytes(generator.choice([10, 10_000, 600_000])).hex()
