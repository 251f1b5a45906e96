"""The gauge of a conversation is the size of its next prompt: after tools, thoughts, compactions and edits."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chatting import RAW_MODEL, eventually
from ferry_log import AGENT, TURNS, WINDOW, Body, check, read_log, says
from own_tools import own_tool
from serving import Served
from small_window import orders_of, small_window, turns_of

from elbowroom.demo import SimulatedLMStudio
from elbowroom.server.state import SHARED, Timing
from elbowroom.status.asking import Place, ask


@dataclass
class Chat:
    """A chat as its program keeps it, with the gauge after each turn and the prompts that the engine got."""

    served: Served
    studio: SimulatedLMStudio
    model: str
    messages: list[Body] = field(default_factory=list)
    conversation: str = ""
    off: list[tuple[int, int, int]] = field(default_factory=list)

    async def turn(self, number: int) -> None:
        """Ask the next question; compare the first prompt of its turn with the gauge before it."""
        gauge = await self.gauge() if self.conversation else None
        before = len(turns_of(self.studio))
        self.messages.append({"role": "user", "content": f"And crossing {number}"})
        body = {"model": self.model, "messages": self.messages}
        async with self.served.http.post(self.served.chat_url, json=body) as response:
            assert response.status == 200, await response.text()
            self.conversation = response.headers["X-Conversation-Id"]
            answer = await response.json()
        self.messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        prompt = turns_of(self.studio)[before].counted_tokens
        assert prompt
        if gauge is not None:
            self.off.append((number, gauge, prompt))

    async def settled(self) -> None:
        """Wait until nothing is done in the background, and all is written."""
        shared = self.served.app[SHARED]
        await eventually(lambda: not shared.background._jobs, "the background never ends")
        await shared.store.conversations.settled()

    async def gauge(self) -> int:
        """Return what the page and the plugin show, which is what is listed and what `status` draws."""
        await self.settled()
        address = f"{self.served.url}/v1/conversations"
        async with self.served.http.get(f"{address}/{self.conversation}") as response:
            shown = (await response.json())["context"]
        async with self.served.http.get(address) as response:
            [listed] = [row for row in (await response.json())["data"] if row["id"] == self.conversation]
        assert listed["context"] == shown
        told = await asyncio.to_thread(ask, Place("127.0.0.1", self.served.port))
        [row] = [row for row in told.conversations if row["id"] == self.conversation]
        assert row["context"] == shown
        tokens: int = shown["tokens"]
        return tokens

    async def by_hand(self, method: str, route: str, **body: str) -> None:
        """Compact the conversation, or change its summary, as the page does."""
        await self.settled()
        address = f"{self.served.url}/v1/conversations/{self.conversation}/{route}"
        async with self.served.http.request(method, address, json=body) as response:
            assert response.status == 200, await response.text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "turns"),
    [("writer", 24), *(pytest.param(model, TURNS, marks=pytest.mark.long) for model in ("writer", RAW_MODEL))],
)
async def test_many_turns(tmp_path: Path, model: str, turns: int) -> None:
    """With tools, thoughts, compactions behind answers and by hand, and edits it is at most 2 % off each time."""
    tools = [own_tool(read_log)]
    async with small_window(
        tmp_path, says, window=WINDOW, agents=AGENT, timing=Timing(quiet=0.02), toolbox=lambda target: tools
    ) as (served, studio):
        chat = Chat(served, studio, model, [{"role": "system", "content": "You help. " * 100}])
        for number in range(1, turns + 1):
            if number % 13 == 0:  # the person edits the question before the last, and asks it anew
                del chat.messages[-4:]
                await chat.turn(number)
                chat.off.pop()
            else:
                await chat.turn(number)
            if number == 20:
                await chat.by_hand("POST", "compact")
            if number == 21:
                await chat.by_hand("PUT", "summary", summary="The log was kept. " * 30)
        assert len(orders_of(studio)) >= 2
        check(chat.off)
