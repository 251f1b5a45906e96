"""A chat that its client calls temporary is kept in memory alone: nobody finds it, and no file has a word of it."""

import asyncio
from pathlib import Path

import pytest
from agent_teams import agent
from chatting import elbowroom_with_studio
from note_reader import Person, knows, note_reader, prompt_of, reading
from serving import Served

from elbowroom.demo import Script, WaitFor

WORD = "marzipan"
MEMORY = "[memory]\nenabled = true\n"


async def listed(served: Served, path: str) -> list[object]:
    """Return the rows of a list."""
    async with served.http.get(f"{served.url}{path}") as response:
        assert response.status == 200, await response.text()
        rows: list[object] = (await response.json())["data"]
        return rows


def files_with(folder: Path, word: str) -> list[Path]:
    """Return the files in a folder that hold a word."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if word.encode() in path.read_bytes()]


@pytest.mark.parametrize("name", ["temporary:Xy-12", "local:Xy-12"])
async def test_nothing_of_it_is_kept_or_shown(tmp_path: Path, name: str) -> None:
    """It is in no list, no search and no file, also while it is answered; the next message finds what was read."""
    async with note_reader(tmp_path) as (served, studio):
        ada, on = Person(served, {"X-Conversation-Id": name}), asyncio.Event()
        studio.enqueue(reading(f"{WORD}.md"), Script("One", WaitFor(on), f" {WORD}."), "Two.")
        asked = asyncio.create_task(ada.say(f"What of {WORD}?"))
        while len(studio.chats) < 2:  # noqa: ASYNC110  # the studio knows no events
            await asyncio.sleep(0.005)
        assert await listed(served, "/api/live") == []
        on.set()
        await asked
        await ada.say("Thanks.")
        assert knows(prompt_of(studio))
        for path in ("conversations", f"conversations?search={WORD}"):
            assert await listed(served, f"/v1/{path}") == []
        async with served.http.get(f"{served.url}/v1/conversations/{name}") as response:
            assert response.status == 404
        message = {"model": "writer", "input": WORD}
        async with served.http.post(f"{served.url}/v1/responses", json=message, headers=ada.headers) as response:
            assert (await response.json())["store"] is False
    assert not files_with(tmp_path, WORD)


async def test_nobody_remembers_it(tmp_path: Path) -> None:
    """An agent with a memory has no tool for it in such a chat, and is told nothing of other chats."""
    agents = agent("writer", tools=["save_memory"]) + MEMORY
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        for name in ("temporary:1", "chat"):
            studio.enqueue("One.")
            await Person(served, {"X-Conversation-Id": name}).say("Remember this.")
        temporary, other = (str(chat.body) for chat in studio.chats)
        assert "save_memory" in other
        assert "save_memory" not in temporary


async def test_other_chats_are_kept(tmp_path: Path) -> None:
    """A chat with any other name is in the list."""
    async with note_reader(tmp_path) as (served, studio):
        studio.enqueue("One.")
        await Person(served, {"X-Conversation-Id": "not temporary:1"}).say("Hello?")
        assert len(await listed(served, "/v1/conversations")) == 1
