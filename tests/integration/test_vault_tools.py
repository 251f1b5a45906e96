"""Agents that work in a vault: from the settings to the model and back."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, READERS, chat_body, chunks_of, elbowroom_with_studio, stream_bytes
from hanging_folders import hanging
from serving import Served, text_of
from small_window import small_window

from elbowroom.demo import Script, SimulatedLMStudio, ToolCall
from elbowroom.elsewhere import MOST_AT_A_PLACE

CHANGES = "/api/vault/changes"
WRITES = '["vault", "vault.create", "vault.append"]'


@asynccontextmanager
async def with_vault(
    folder: Path, *, tools: str = '["vault"]', vault: str = ""
) -> AsyncIterator[tuple[Served, SimulatedLMStudio, Path]]:
    """Run elbowroom with an agent that has vault tools, in front of a simulated LM Studio."""
    notes = folder / "Notes"
    (notes / "Projects").mkdir(parents=True)
    (notes / "Projects" / "Plan.md").write_text("# Plan\n\nWater the plants. #garden\n\n## Tasks\n\n- [ ] buy seeds\n")
    (notes / "Private").mkdir()
    (notes / "Private" / "Diary.md").write_text("Nobody reads this.\n")
    agents = f"{AGENT}tools = {tools}\n[vault]\npath = '{notes}'\n{vault}\n"
    async with elbowroom_with_studio(folder, agents=agents) as (served, studio):
        yield served, studio, notes


async def result_of(served: Served, studio: SimulatedLMStudio, name: str, **arguments: Any) -> str:
    """Let the model call one tool and return what it got for it."""
    studio.enqueue(Script(ToolCall(name, arguments)), "Done.")
    assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Done."
    message = studio.chats[-1].body["messages"][-1]
    assert message["role"] == "tool"
    content = message["content"]
    assert isinstance(content, str)
    return content


async def test_an_agent_reads_a_note(tmp_path: Path) -> None:
    """What the settings name is enough: the model calls, the note's lines come back with its version."""
    async with with_vault(tmp_path) as (served, studio, _):
        content = await result_of(served, studio, "vault_read", path="Projects/Plan.md", heading="Tasks")
        head, *lines = content.splitlines()
        assert head.startswith("Projects/Plan.md: lines 5-7 of 7, version ")
        assert lines == ["   5  ## Tasks", "   6", "   7  - [ ] buy seeds"]


async def test_tools_by_name(tmp_path: Path) -> None:
    """`vault` is all that the settings allow, without those that change notes; single names give single tools."""
    async with with_vault(tmp_path) as (served, studio, _):
        await result_of(served, studio, "vault_list")
        names = [tool["function"]["name"] for tool in studio.chats[0].body["tools"]]
        assert names == ["vault_list", "vault_read", "vault_outline", "vault_search", "vault_count", *READERS]


async def test_single_tools(tmp_path: Path) -> None:
    """An agent has no tool that its settings do not name."""
    async with with_vault(tmp_path, tools='["vault.search", "vault.read"]') as (served, studio, _):
        content = await result_of(served, studio, "vault_search", query="plants")
        assert "Projects/Plan.md\n  3: Water the plants. #garden" in content
        assert [tool["function"]["name"] for tool in studio.chats[0].body["tools"]] == [
            "vault_read",
            "vault_search",
            *READERS,
        ]


@pytest.mark.slow
async def test_excluded_folders_are_closed(tmp_path: Path) -> None:
    """A folder that the settings exclude is not there for the model, by whatever tool."""
    async with with_vault(tmp_path, vault='exclude = ["private"]') as (served, studio, _):
        for name, arguments in [
            ("vault_list", {}),
            ("vault_list", {"folder": "Private"}),
            ("vault_read", {"path": "Private/Diary.md"}),
            ("vault_read", {"path": "Diary"}),
            ("vault_search", {"query": "nobody"}),
            ("vault_count", {}),
        ]:
            content = await result_of(served, studio, name, **arguments)
            assert "Nobody" not in content
            assert "Private/Diary" not in content.replace("'Private/Diary.md'", "")


async def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    """A misspelt or missing argument becomes one sentence that names those there are."""
    async with with_vault(tmp_path) as (served, studio, _):
        content = await result_of(served, studio, "vault_read", file="Plan.md")
        assert content.startswith("Error: ")
        assert "path, heading, offset, limit" in content
        content = await result_of(served, studio, "vault_read", path="Projects/Pla.md")
        assert content == "Error: There is no note 'Projects/Pla.md'. Near names: Projects/Plan.md."


@pytest.mark.slow
async def test_errors_are_short(tmp_path: Path) -> None:
    """Whatever the model wrote, it does not get it back at length."""
    async with with_vault(tmp_path) as (served, studio, _):
        for arguments in ({"path": "Plan", "heading": "x" * 10_000}, {"path": "x" * 10_000}, {"x" * 10_000: 1}):
            content = await result_of(served, studio, "vault_read", **arguments)
            assert content.startswith("Error: ")
            assert len(content) < 2100


async def test_the_tools_take_little_room(tmp_path: Path) -> None:
    """The descriptions of all tools together stay small, since every request carries them."""
    async with with_vault(tmp_path, vault="write = true") as (served, studio, _):
        await result_of(served, studio, "vault_list")
        assert len(json.dumps(studio.chats[0].body["tools"])) < 8_000


async def test_an_agent_changes_a_note_and_takes_it_back(tmp_path: Path) -> None:
    """Read, patch with the version that was read, undo: the file holds what it should at each step."""
    async with with_vault(tmp_path, vault="write = true") as (served, studio, notes):
        plan = notes / "Projects" / "Plan.md"
        before = plan.read_bytes()
        head = (await result_of(served, studio, "vault_read", path="Projects/Plan.md")).splitlines()[0]
        version = head.rsplit(" ", 1)[-1]
        patch = {"kind": "heading", "target": "Tasks", "operation": "append", "text": "- [ ] dig"}
        content = await result_of(served, studio, "vault_patch", path="Projects/Plan.md", if_match=version, **patch)
        assert content.startswith("Changed Projects/Plan.md (append heading Tasks): +1 lines, version ")
        assert plan.read_bytes() == before + b"- [ ] dig\n"
        content = await result_of(served, studio, "vault_patch", path="Projects/Plan.md", if_match=version, **patch)
        assert "has changed since you read it" in content
        content = await result_of(served, studio, "vault_undo")
        assert content == "Undone: changed Projects/Plan.md (append heading Tasks)."
        assert plan.read_bytes() == before


async def test_notes_stay_as_they_are_by_default(tmp_path: Path) -> None:
    """Without `write` there is no tool that changes anything, whatever the model calls."""
    async with with_vault(tmp_path) as (served, studio, notes):
        before = {path: path.read_bytes() for path in notes.rglob("*.md")}
        for name in ("vault_create", "vault_append", "vault_patch", "vault_rename", "vault_delete", "vault_undo"):
            await result_of(served, studio, name, path="Projects/Plan.md", text="x", new_path="y")
        assert {path: path.read_bytes() for path in notes.rglob("*") if path.is_file()} == before


@pytest.mark.slow
async def test_a_vault_is_read_in_a_small_window(tmp_path: Path) -> None:
    """Twelve calls over long notes and a log of a megabyte, with a window of 8192: never over it, and answered."""
    notes = tmp_path / "Notes"
    notes.mkdir()
    for number in range(6):
        (notes / f"Long {number}.md").write_text("".join(f"{number}: line {n} of it\n" for n in range(2000)))
    (notes / "server.log").write_text("".join(f"entry {n}\n" for n in range(80_000)))
    calls = [ToolCall("vault_read", {"path": f"Long {n}", "offset": n * 80 + 1}) for n in range(6)]
    calls += [ToolCall("vault_read", {"path": "server.log", "offset": n * 13_000 + 1}) for n in range(6)]
    waiting = iter(calls)

    def model(body: Any) -> Script | str:
        return Script(call) if (call := next(waiting, None)) else "All read."

    agents = f"{AGENT}tools = 'vault'\n[vault]\npath = '{notes}'\n"
    async with small_window(tmp_path, model, window=8192, agents=agents) as (served, studio):
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "All read."
        assert len(studio.chats) > len(calls)
        assert max(chat.prompt_tokens or 0 for chat in studio.chats) <= 8192


@pytest.mark.slow
async def test_a_vault_that_hangs_is_told_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked for, a few threads wait; other chats are answered, and settings are changed."""
    monkeypatch.setattr("elbowroom.agents.tools.vault.WORK_SECONDS", 0.2)
    async with with_vault(tmp_path, vault="write = true") as (served, studio, notes):
        with hanging(notes) as looked:
            for name, arguments in [
                *[("vault_read", {"path": "Projects/Plan.md"})] * 6,
                ("vault_list", {}),
                ("vault_search", {"query": "plants"}),
                ("vault_append", {"path": "Projects/Plan.md", "text": "More."}),
            ]:
                told = await result_of(served, studio, name, **arguments)
                assert told.startswith(f"Error: {notes} does not answer")
            hung = [thread for thread in threading.enumerate() if thread.name == "elsewhere"]
            assert len(hung) <= MOST_AT_A_PLACE
            async with served.http.post(served.chat_url, json=chat_body("a" * 300_000, model="nobody")) as response:
                assert response.status == 404  # read in a thread of the default pool
            own = {"Origin": served.url, "X-Elbowroom-Page": "1"}
            changed = {"compaction": {"threshold_ratio": 0.7}}
            async with served.http.patch(f"{served.url}/api/settings", json=changed, headers=own) as response:
                assert response.status == 200, await response.text()
            studio.enqueue("With other settings.")
            assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "With other settings."
        assert looked == {"elsewhere"}
        assert "buy seeds" in await result_of(served, studio, "vault_read", path="Projects/Plan.md")


async def changes_of(served: Served) -> list[dict[str, Any]]:
    """Return the changes that can be undone."""
    async with served.http.get(f"{served.url}{CHANGES}") as response:
        rows: list[dict[str, Any]] = (await response.json())["data"]
        return rows


async def test_a_person_takes_a_change_back(tmp_path: Path) -> None:
    """The list names each change with its notes, the newest first; any of them can be undone, and once only."""
    async with with_vault(tmp_path, tools=WRITES, vault="write = true") as (served, studio, notes):
        plan = notes / "Projects" / "Plan.md"
        before = plan.read_text()
        await result_of(served, studio, "vault_create", path="New.md", text="Hello.")
        await result_of(served, studio, "vault_append", path="Projects/Plan.md", text="More.", heading="", if_match="")
        listed = await changes_of(served)
        assert [(row["agent"], row["what"], row["notes"]) for row in listed] == [
            ("writer", "appended to Projects/Plan.md", ["Projects/Plan.md"]),
            ("writer", "created New.md", ["New.md"]),
        ]
        async with served.http.post(f"{served.url}{CHANGES}/{listed[0]['id']}/undo", json={}) as response:
            assert (await response.json())["told"] == "Undone: appended to Projects/Plan.md."
        assert plan.read_text() == before
        assert len(await changes_of(served)) == 1


async def test_nothing_of_a_persons_is_lost(tmp_path: Path) -> None:
    """A note that was changed since stays as it is: 409; a change that is gone, or a path for an id, is 404."""
    async with with_vault(tmp_path, tools=WRITES, vault="write = true") as (served, studio, notes):
        await result_of(served, studio, "vault_create", path="New.md", text="Hello.")
        (notes / "New.md").write_text("Mine.")
        change = (await changes_of(served))[0]["id"]
        for change_id, status in ((change, 409), ("..%2F..%2Fsettings", 404), ("none", 404)):
            async with served.http.post(f"{served.url}{CHANGES}/{change_id}/undo", json={}) as response:
                assert response.status == status
        assert (notes / "New.md").read_text() == "Mine."
