"""Reads a tool's output back from the pages of `tool_output_cache`, as its rule says and by nothing else."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing

from memory_stores import MemoryToolOutputs

from elbowroom.agents.tools.outputs.tools import Quota
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.context.outputs.output import Block, ToolOutputRef

ROW = re.compile(r" *([0-9]+)(?::([0-9]+))?\| (.*)", re.DOTALL)
GOES_ON = re.compile(r"\[line ([0-9]+) goes on at column=([0-9]+)\]")
READ_ON = re.compile(r'\[.*\. To read on: tool_output_cache\(ref_id="\w+", offset=([0-9]+)(?:, column=([0-9]+))?\)\]')


class SmallBlocks(MemoryToolOutputs):
    """Outputs in memory, in blocks of at most `size` characters."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size_of_block = size
        self.open = 0

    async def blocks(self, owner: str, ref_id: str, line: int = 1, column: int = 1) -> AsyncIterator[Block]:
        """Yield the text from a place on in small blocks."""
        self.open += 1
        try:
            async with aclosing(super().blocks(owner, ref_id, line, column)) as blocks:  # type: ignore[type-var]
                async for block in blocks:
                    for piece in _pieces(block, self._size_of_block):
                        yield piece
        finally:
            self.open -= 1


def _pieces(block: Block, size: int) -> list[Block]:
    pieces, line, column = [], block.line, block.column
    for start in range(0, len(block.text), size):
        text = block.text[start : start + size]
        pieces.append(Block(line, column, text))
        line_break = text.rfind("\n")
        column = len(text) - line_break if line_break >= 0 else column + len(text)
        line += text.count("\n")
    return pieces


async def read_back(reader: ServerTool, ref: ToolOutputRef, quota: Quota, tokens: int) -> str:
    """Return the whole output, put together from as many pages as it takes, one in a step."""
    lines: dict[int, str] = {}
    ends_with_break = True
    todo: list[dict[str, int]] = [{"offset": 1}]
    while todo:
        asked = todo.pop()
        quota.begin_step(tokens)
        page = await reader.call({"ref_id": ref.id, **asked})
        assert isinstance(page, str)
        only = asked["offset"] if asked.get("limit") == 1 else None
        for shown in page.split("\n"):
            if row := ROW.fullmatch(shown):
                line, column = int(row[1]), int(row[2] or 1)
                assert column == len(lines.get(line, "")) + 1, shown
                lines[line] = lines.get(line, "") + row[3]
            elif cut := GOES_ON.fullmatch(shown):
                todo.insert(0, {"offset": int(cut[1]), "column": int(cut[2]), "limit": 1})
            elif on := READ_ON.fullmatch(shown):
                if only is None:
                    todo.append({"offset": int(on[1]), "column": int(on[2] or 1)})
                elif only == int(on[1]):
                    todo.append({"offset": only, "column": int(on[2] or 1), "limit": 1})
            else:
                assert shown.startswith("["), shown
                ends_with_break = ends_with_break and "without a line break" not in shown
    text = "\n".join(lines[number] for number in sorted(lines))
    assert sorted(lines) == list(range(1, len(lines) + 1))
    return text + "\n" if lines and ends_with_break else text
