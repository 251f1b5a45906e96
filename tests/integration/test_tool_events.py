"""Calls of the server's tools are told: in the stream, in `/api/live`; and what they return is not."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, chunks_of, eventually, stream_bytes
from serving import Served, serve, settings_for, text_of
from small_window import Body

from elbowroom.agents.tools import ServerTool
from elbowroom.demo import Script, SimulatedLMStudio, ToolCall

AGENT = f'[[agents]]\nid = "writer"\nmodel = "{MODEL}"\ntools = ["vault.read", "vault.search"]\n'
SECRET = "the gate code is 4711"
ASKED = {"model": "writer", "messages": [{"role": "user", "content": "What is in the garden?"}]}
CALLS = [
    ToolCall("vault_read", {"path": "Garden/long.md"}),
    ToolCall("vault_search", {"query": f"frost\n{'x' * 300}"}),
    ToolCall("vault_read", {"path": "Nowhere"}),
]


def garden(folder: Path, url: str, more: str = "", server: str = "") -> str:
    """Return the settings of an agent with a vault."""
    (folder / "Notes" / "Garden").mkdir(parents=True)
    (folder / "Notes" / "Garden" / "long.md").write_text(f"# Beds\n\n{SECRET}\n")
    return settings_for(url, agents=f"{AGENT}[vault]\npath = '{folder / 'Notes'}'\n{more}", server=server)


def model(body: Body) -> Script | str:
    """Call each tool once, one after another, and answer."""
    used = sum(message["role"] == "tool" for message in body["messages"])
    return Script(CALLS[used]) if used < len(CALLS) else "Beds."


def told(chunks: Sequence[Body]) -> list[tuple[str, str, bool]]:
    """Return the kind, the text and the end of each status about a tool."""
    statuses = [(chunk["elbowroom"]["kind"], chunk["event"]["data"]) for chunk in chunks if "event" in chunk]
    return [(kind, data["description"], data["done"]) for kind, data in statuses if kind.startswith("tool ")]


async def answered(served: Served) -> list[Body]:
    """Return the chunks of an answer."""
    chunks = chunks_of(await stream_bytes(served, ASKED))
    assert text_of(chunks) == "Beds."
    return chunks


async def test_each_call_and_its_result_is_a_status(tmp_path: Path) -> None:
    """It names what is done, on one short line, and how much came, but nothing of what the tool returned."""
    async with SimulatedLMStudio(on_request=model) as studio:
        async with serve(tmp_path, garden(tmp_path, studio.base_url)) as served:
            statuses = told(await answered(served))
    assert statuses[0] == ("tool call", "Reading Garden/long.md ...", False)
    assert statuses[1][0] == "tool result"
    assert statuses[1][1].startswith("Read Garden/long.md: ")
    assert statuses[1][1].endswith(" lines")
    assert statuses[-1] == ("tool result", "Read Nowhere: failed", True)
    assert [kind for kind, _, _ in statuses] == ["tool call", "tool result"] * 3
    assert statuses[2][1].startswith("Searching 'frost xxx")
    assert all(len(text) < 95 and "\n" not in text and "4711" not in text for _, text, _ in statuses)


@pytest.mark.parametrize(("server", "more"), [("tool_events = false", ""), ("", '[compaction]\nnotices = "off"\n')])
async def test_a_setting_turns_tool_events_off(tmp_path: Path, server: str, more: str) -> None:
    """Without `server.tool_events`, and without notices, nothing is told of tools."""
    async with SimulatedLMStudio(on_request=model) as studio:
        async with serve(tmp_path, garden(tmp_path, studio.base_url, more, server)) as served:
            assert told(await answered(served)) == []


async def test_tool_events_are_no_lines_of_the_text(tmp_path: Path) -> None:
    """Where notices are lines of the text, twenty calls would fill it."""
    async with SimulatedLMStudio(on_request=model) as studio:
        settings = garden(tmp_path, studio.base_url, '[compaction]\nnotices = "content"\n')
        async with serve(tmp_path, settings) as served:
            await answered(served)


async def test_the_tool_that_runs_now_is_in_the_live_list(tmp_path: Path) -> None:
    """`doing` says what the agent does while a tool runs."""
    begun, free = asyncio.Event(), asyncio.Event()

    async def read(arguments: Any) -> str:
        begun.set()
        await free.wait()
        return SECRET

    fetches = ServerTool("fetch_page", "Fetches.", {"type": "object", "properties": {}}, read)

    def fetch(body: Body) -> Script | str:
        is_first = body["messages"][-1]["role"] == "user"
        return Script(ToolCall("fetch_page", {"url": "https://example.org/a"})) if is_first else "Beds."

    async with SimulatedLMStudio(on_request=fetch) as studio:
        async with serve(tmp_path, garden(tmp_path, studio.base_url), toolbox=lambda *_: [fetches]) as served:
            asking = asyncio.create_task(answered(served))
            await eventually(begun.is_set, "the tool was not called")
            async with served.http.get(f"{served.url}/api/live") as response:
                (turn,) = (await response.json())["data"]
            assert (turn["phase"], turn["doing"]) == ("tool", "Calling fetch_page https://example.org/a ...")
            free.set()
            await asking
