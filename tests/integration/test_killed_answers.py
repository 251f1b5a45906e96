"""The whole program is killed while it answers: what was said is there afterwards, and says that it is not whole."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, said_until
from command_line import PATIENCE, running
from scripted_pruner import is_prune_order
from serving import settings_for
from small_window import history

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor

NAMED = {"X-Conversation-Id": "notes"}
QUESTION = {"role": "user", "content": "What is in the vault?"}


@asynccontextmanager
async def serving(folder: Path, studio: SimulatedLMStudio, agents: str = "") -> AsyncIterator[tuple[Any, str, Any]]:
    """Run the program on the folder's data; gives its process, its address and a session to ask it with."""
    settings = folder / "settings.toml"
    settings.write_text(settings_for(studio.base_url, agents=agents), encoding="utf-8")
    data = {"ELBOWROOM_DATA_DIR": str(folder / "data")}
    async with running(folder, "serve", "--config", str(settings), variables=data) as program:
        address = await program.address()
        async with aiohttp.ClientSession() as http:
            yield program, address, http


async def kept_at(address: str, http: aiohttp.ClientSession) -> list[dict[str, Any]]:
    """Return the messages of the conversation, as the program shows them."""
    async with http.get(f"{address}/v1/conversations/notes/messages?limit=200") as response:
        assert response.status == 200, await response.text()
        messages: list[dict[str, Any]] = (await response.json())["data"]
        return messages


async def in_file(folder: Path, words: str) -> None:
    """Wait until a part of a message in the database ends with these words, without asking the program for it."""
    path = folder / "data" / "elbowroom.db"
    async with asyncio.timeout(PATIENCE):
        while not path.exists() or not any(part.endswith(words) for part in _parts(path)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _parts(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        try:
            rows = database.execute("SELECT content FROM message_parts").fetchall()
        except sqlite3.OperationalError:  # there is no table yet
            return []
    return [str(content).strip('"').rstrip() for (content,) in rows]


@pytest.mark.fault("kill -9", "streaming", "all that was said, as interrupted")
@pytest.mark.long
async def test_killed_in_a_pause(tmp_path: Path) -> None:
    """What was said before a pause is written in it; it is marked as interrupted, and the conversation goes on."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        words = f"{'word ' * 100}last"
        body = {"model": RAW_MODEL, "messages": [QUESTION], "stream": True}
        async with serving(tmp_path, studio) as (program, address, http):
            studio.enqueue(Script(words, WaitFor(asyncio.Event())))
            response = await http.post(f"{address}/v1/chat/completions", json=body, headers=NAMED)
            assert await said_until(response, len(words)) == words
            await in_file(tmp_path, "last")
            await program.end(signal.SIGKILL)
        async with serving(tmp_path, studio) as (_, address, http):
            question, answer = await kept_at(address, http)
            assert question["message"] == QUESTION
            assert (answer["message"]["content"], answer["status"]) == (words, "interrupted")
            studio.enqueue("And on.")
            again = [QUESTION, {"role": "assistant", "content": words}, {"role": "user", "content": "Go on."}]
            url, more = f"{address}/v1/chat/completions", {**body, "messages": again}
            async with http.post(url, json=more, headers=NAMED) as response:
                await said_until(response, len("And on."))
            kept = await kept_at(address, http)
            assert kept[0] == question
            assert kept[-1]["message"]["content"] == "And on."


@pytest.mark.fault("kill -9", "tool", "the reply and the result whole")
@pytest.mark.long
async def test_killed_behind_a_tool(tmp_path: Path) -> None:
    """A reply that was whole stays so, with the result of its call behind it; the words after it are interrupted."""
    agents = f'{AGENT}tools = ["search_memory"]\n[memory]\nenabled = true\n'
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        body = {"model": "writer", "messages": [QUESTION], "stream": True}
        async with serving(tmp_path, studio, agents) as (program, address, http):
            call = ToolCall("search_memory", {"query": "vault"})
            studio.enqueue(Script("Searching.", call), Script("Nothing. But", WaitFor(asyncio.Event())))
            response = await http.post(f"{address}/v1/chat/completions", json=body, headers=NAMED)
            await said_until(response, len("Searching.\n\nNothing. But"))
            await in_file(tmp_path, "But")
            await program.end(signal.SIGKILL)
        async with serving(tmp_path, studio, agents) as (_, address, http):
            _, calling, result, answer = await kept_at(address, http)
            [called] = calling["message"]["tool_calls"]
            assert (calling["message"]["content"], calling["status"]) == ("Searching.", "complete")
            assert (result["message"]["tool_call_id"], result["status"]) == (called["id"], "complete")
            assert (answer["message"]["content"], answer["status"]) == ("Nothing. But", "interrupted")


@pytest.mark.fault("kill -9", "streaming", "the beginning of what was said")
@pytest.mark.long
async def test_killed_in_mid_stream(tmp_path: Path) -> None:
    """What is kept is the beginning of what was said, however the process ended."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        words = " ".join(map(str, range(3000)))
        body = {"model": RAW_MODEL, "messages": [QUESTION], "stream": True}
        async with serving(tmp_path, studio) as (program, address, http):
            studio.tokens_per_second = 300
            studio.enqueue(words)
            response = await http.post(f"{address}/v1/chat/completions", json=body, headers=NAMED)
            await said_until(response, 400)
            await in_file(tmp_path, "")
            await said_until(response, 400)
            await program.end(signal.SIGKILL)
        async with serving(tmp_path, studio) as (_, address, http):
            _, answer = await kept_at(address, http)
            assert answer["status"] == "interrupted"
            assert answer["message"]["content"]
            assert words.startswith(answer["message"]["content"])


@pytest.mark.long
@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_killed_and_asked_on(tmp_path: Path, model: str) -> None:
    """A client that has lost the answer sends two questions in a row: the model reads what was said between them.

    The person is told once where it is.
    """
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        words = f"{'word ' * 100}last"
        body = {"model": model, "messages": [QUESTION], "stream": True}
        async with serving(tmp_path, studio, AGENT) as (program, address, http):
            studio.enqueue(Script(words, WaitFor(asyncio.Event())))
            response = await http.post(f"{address}/v1/chat/completions", json=body, headers=NAMED)
            await said_until(response, len(words))
            await in_file(tmp_path, "last")
            await program.end(signal.SIGKILL)
        async with serving(tmp_path, studio, AGENT) as (_, address, http):
            await kept_at(address, http)
            on = {"role": "user", "content": "Go on."}
            lost = {"role": "assistant", "content": words}
            again = [QUESTION, on]
            for told in (1, 0):
                async with http.post(
                    f"{address}/v1/chat/completions", json={**body, "messages": again}, headers=NAMED
                ) as response:
                    stream = await response.text()
                assert stream.count("The answer that broke off is kept: 101 words") == told
                sent = [one for one in studio.chats[-1].body["messages"] if one["role"] != "system"]
                assert sent == [QUESTION, lost, *again[1:]]
                again += [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": "And then?"}]


@pytest.mark.long
@pytest.mark.fault("kill -9", ("first", "compaction"), "the question is kept")
@pytest.mark.parametrize("exchanges", [1, 40])
async def test_killed_before_its_first_word(tmp_path: Path, exchanges: int) -> None:
    """While the prompt is read, or the conversation compacted: what was asked is there after the next start."""
    messages = history(exchanges)
    body = {"model": RAW_MODEL, "messages": messages, "stream": True}
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=4096)]) as studio:
        async with serving(tmp_path, studio) as (program, address, http):
            studio.enqueue(Script(WaitFor(asyncio.Event())), repeat=True)
            asking = asyncio.create_task(http.post(f"{address}/v1/chat/completions", json=body, headers=NAMED))
            await in_file(tmp_path, messages[-1]["content"])
            async with asyncio.timeout(PATIENCE):
                while not studio.chats:  # noqa: ASYNC110  # the simulated engine knows no event for this
                    await asyncio.sleep(0.02)
            assert is_prune_order(studio.chats[0].body) == (exchanges > 1)
            await program.end(signal.SIGKILL)
            await asyncio.wait([asking])
        async with serving(tmp_path, studio) as (_, address, http):
            assert (await kept_at(address, http))[-1]["message"] == messages[-1]
