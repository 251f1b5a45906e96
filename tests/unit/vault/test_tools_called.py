"""The vault's tools as they are called: with what a model wrote, in threads, and given up in the middle."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loop_stall import longest_stall
from vaults import changes_of, files_in

from elbowroom.agents.tools.tool import ToolResult
from elbowroom.agents.tools.vault import vault_tools
from elbowroom.errors import ElbowroomError
from elbowroom.vault.changes import Changes


async def called(changes: Changes, name: str, **written: Any) -> str | ToolResult:
    """Call one of the tools."""
    [tool] = [tool for tool in vault_tools(["vault"], changes, may_write=True) if tool.name == f"vault_{name}"]
    return await tool.call(written)


async def test_what_models_write_instead(tmp_path: Path) -> None:
    """Null for what is left out, and numbers as text, are taken."""
    changes = changes_of(tmp_path, {"Note.md": "one\ntwo\n"})
    told = await called(changes, "read", path="Note", heading=None, offset="2", limit=None)
    assert isinstance(told, ToolResult)
    assert told.text.endswith("\n   2  two")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({}, "path: Field required. It takes: path, heading"),
        ({"path": ["Note"]}, "path: Input should be a valid string"),
        ({"path": "Note", "offset": -1}, "offset: Input should be greater"),
        ({"path": "Note", "p" * 50_000: 1}, "ppp: Extra inputs are not permitted"),
        ({"path": "No"}, "There is no note 'No'"),
    ],
)
async def test_refusals_are_sentences(tmp_path: Path, written: dict[str, Any], said: str) -> None:
    """Each is an error in words for the model, short whatever it wrote."""
    with pytest.raises(ElbowroomError) as refused:
        await called(changes_of(tmp_path, {"Note.md": ""}), "read", **written)
    assert said in refused.value.message
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("wait", [0.0, 0.001, 0.005, 0.02, 0.05])
async def test_a_change_that_is_given_up_is_whole_or_not_begun(tmp_path: Path, wait: float) -> None:
    """Cancelled at any moment, a renaming has reached all notes or none, and can be undone where it has."""
    notes = {"Old.md": "old", **{f"{n}.md": "[[Old]]" for n in range(60)}}
    changes = changes_of(tmp_path, notes)
    root = tmp_path / "vault"
    before, others = files_in(root), {*threading.enumerate()}
    task = asyncio.create_task(called(changes, "rename", path="Old", new_path="New"))
    await asyncio.sleep(wait)
    task.cancel()
    with suppress(asyncio.CancelledError):  # the last of the waits may be longer than the work
        await task
    for thread in {*threading.enumerate()} - others:  # the work goes on in one of its own
        await asyncio.to_thread(thread.join, 30)
    after = files_in(root)
    if "New.md" in after:
        assert after == {"New.md": b"old", **{f"{n}.md": b"[[New]]" for n in range(60)}}
        assert changes.undo() == "Undone: renamed Old.md to New.md."
    else:
        assert changes.journal.last("writer") is None
    assert files_in(root) == before


@pytest.mark.parametrize("query", ["(a+)+$", "(a|aa)+$", "x" * 100_000])
async def test_no_query_holds_the_server_up(tmp_path: Path, query: str) -> None:
    """Over notes of one line, the largest that are searched and one of 50 MB, other chats go on while it looks."""
    changes = changes_of(tmp_path, {f"{number}.md": "a" * (1 << 20) for number in range(8)})
    (tmp_path / "vault" / "Line.md").write_bytes(b"a" * 50_000_000)

    async def search() -> None:
        with suppress(ElbowroomError):  # for one that is too long
            await called(changes, "search", query=query)
        await called(changes, "read", path="Line")

    for attempt in range(3):  # a loaded machine may stall the loop by itself
        stall = await longest_stall(search())
        if stall < 0.25:
            return
        assert attempt < 2, stall


async def test_two_agents_at_once(tmp_path: Path) -> None:
    """Two agents that append to one note lose nothing of each other, and each undoes its own alone."""
    first = changes_of(tmp_path, {"Note.md": ""})
    second = Changes(first.vault, first.journal, "second")
    await asyncio.gather(
        *(called(changes, "append", path="Note", text=changes.agent) for changes in [first, second] * 10)
    )
    lines = (tmp_path / "vault" / "Note.md").read_text().split()
    assert sorted(lines) == ["second"] * 10 + ["writer"] * 10
    last, other = (second, first) if lines[-1] == "second" else (first, second)
    with pytest.raises(ElbowroomError, match="has changed since"):
        other.undo()
    last.undo()
    assert (tmp_path / "vault" / "Note.md").read_text().split() == lines[:-1]
