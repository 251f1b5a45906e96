"""Messages outlive the process that was told them, whether it is stopped or killed."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, Message, chat_body, chunks_of, eventually
from command_line import PATIENCE, running
from queueing import NAMED, notices_of, said_by_user
from serving import settings_for, text_of

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor


class Client:
    """A client of a server that may be another one later."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.url = ""

    async def ask(self, messages: list[Message], model: str) -> list[dict[str, Any]]:
        """Return the chunks of an answer."""
        body = {"model": model, "messages": messages, "stream": True}
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body, headers=NAMED) as response:
            return chunks_of(await response.read())

    async def say(self, text: str, mode: str = "steer") -> bool:
        """Put a message in the queue, whose text is its key; tell whether it is stored."""
        body, keyed = {"content": text, "mode": mode}, {"Idempotency-Key": text}
        async with self.http.post(f"{self.url}/v1/conversations/notes/queue", json=body, headers=keyed) as response:
            assert response.status == 202
            return bool((await response.json())["stored"])

    async def wait_for_the_store(self) -> None:
        """Wait until messages are stored: on a busy machine the store may open after the first answer."""
        async with asyncio.timeout(PATIENCE):
            while not await self.say("Is it open?"):  # noqa: ASYNC110  # only asking tells
                await asyncio.sleep(0.1)
        async with self.http.delete(f"{self.url}/v1/conversations/notes/queue") as response:
            assert response.status == 200

    async def waiting(self) -> list[str]:
        """Return what waits."""
        async with self.http.get(f"{self.url}/v1/conversations/notes/queue") as response:
            return [item["message"]["content"] for item in (await response.json())["data"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends_with", "model"),
    [
        (signal.SIGKILL, RAW_MODEL),
        pytest.param(signal.SIGKILL, "writer", marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, RAW_MODEL, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, "writer", marks=pytest.mark.long),
    ],
)
async def test_what_no_model_has_read_is_read_by_the_next_process(
    tmp_path: Path, ends_with: signal.Signals, model: str
) -> None:
    """What waited and what a turn had taken in is there again, in order and once, though it is sent again with its key.

    What was answered is not.
    """
    variables = {"ELBOWROOM_DATA_DIR": str(tmp_path)}
    async with (
        SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as http,
    ):
        (tmp_path / "settings.toml").write_text(settings_for(studio.base_url, agents=AGENT), encoding="utf-8")
        command, client = ("serve", "--config", str(tmp_path / "settings.toml")), Client(http)
        async with running(tmp_path, *command, variables=variables) as program:
            client.url = await program.address()
            studio.enqueue("Hello.", "Yes.", Script(WaitFor(asyncio.Event())))
            history = list(chat_body()["messages"])
            await client.ask(history, model)
            await client.wait_for_the_store()
            assert await client.say("read")
            history += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And?"}]
            assert text_of(await client.ask(history, model)) == "Yes."
            history += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
            assert await client.say("taken in")
            asking = asyncio.create_task(client.ask(history, model))
            await eventually(lambda: len(studio.chats) == 3, "the model is not asked", PATIENCE)
            assert await client.say("waiting", "follow_up")
            assert await client.waiting() == ["waiting"]
            await program.end(ends_with)
            await asyncio.wait([asking])
            asking.exception()
        async with running(tmp_path, *command, variables=variables) as program:
            client.url = await program.address()
            for text, mode in (("read", "steer"), ("taken in", "steer"), ("waiting", "follow_up")):
                assert await client.say(text, mode)  # which the process before has had
            assert await client.waiting() == ["taken in", "waiting"]
            studio.enqueue("I am back.")
            said = await client.ask(history, model)
            assert text_of(said) == "I am back."
            assert notices_of(said) == ["Taken in: taken in", "Taken in: waiting"]
            prompt = said_by_user(studio.chats[-1].body["messages"])
            assert prompt == ["Hello", "And?", "read", "Go on.", "taken in", "waiting"]
            assert await client.waiting() == []
