"""The people of the soak: they chat, use agents, search, look at the page, and leave in the middle of answers."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from soak_studio import MODEL
from soak_words import Received

Message = dict[str, Any]
AGENT: Final = "reader"
PEOPLE: Final = 12
TURNS: Final = (6, 30)
PATIENCE: Final = 60.0
FILLER: Final = "The river runs slowly past old houses and people walk along it every morning before work begins. "
LOST: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What a client sees of a server that is killed, or of an answer that is cut."""


@dataclass(slots=True)
class Chat:
    """One person's conversation: its name, its history as the client has it, and after how many turns it ends."""

    name: str
    model: str
    turns: int
    messages: list[Message] = field(default_factory=list)
    response: str = ""
    is_busy: bool = False


class People:
    """All clients of one server: `done` counts what they did, `statuses` what answers had, by route."""

    def __init__(self, label: str, port: int, rng: random.Random) -> None:
        self.port = port
        self.received = Received()
        self.done: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.waits: list[float] = []
        self._label = label
        self._rng = rng
        self._chats: list[Chat] = []
        self._begun = 0
        self._http: aiohttp.ClientSession
        self._tasks: set[asyncio.Task[None]] = set()

    async def live(self, rate: float, until: float) -> None:
        """Begin something `rate` times a second until then, at random moments, and wait for the last to end."""
        loop, kinds = asyncio.get_running_loop(), self._kinds()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as self._http:
            while loop.time() < until:
                await asyncio.sleep(min(self._rng.expovariate(rate), 10 / rate))
                ((name, visit, _),) = self._rng.choices(kinds, [weight for _, _, weight in kinds])
                task = asyncio.create_task(self._visit(name, visit))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.gather(*self._tasks)

    def _kinds(self) -> list[tuple[str, Callable[[], Awaitable[None]], int]]:
        """Return what people do, and how often."""
        return [
            ("chat", lambda: self._chat(f"soak/{MODEL}"), 40),
            ("agent with tools", lambda: self._chat(AGENT), 20),
            ("response", self._respond, 12),
            ("leaver", lambda: self._chat(f"soak/{MODEL}", leaves=self._rng.uniform(0.05, 2.0)), 10),
            ("search", self._search, 9),
            ("page", self._page, 9),
        ]

    async def _visit(self, name: str, visit: Callable[[], Awaitable[None]]) -> None:
        self.done[name] += 1
        try:
            await visit()
        except LOST as error:
            self.statuses[f"{name}: {type(error).__name__}"] += 1

    def _idle_chat(self, model: str) -> Chat:
        """Return a conversation that nobody is in, or a new one."""
        self._chats = [chat for chat in self._chats if len(chat.messages) < 2 * chat.turns]
        idle = [chat for chat in self._chats if chat.model == model and not chat.is_busy]
        if len(self._chats) >= PEOPLE and idle:
            return self._rng.choice(idle)
        self._begun += 1
        name = f"{self._label}-{self._rng.randrange(2**32):08x}-{self._begun}"
        self._chats.append(Chat(name, model, self._rng.randint(*TURNS)))
        return self._chats[-1]

    def _question(self) -> str:
        return f"What about {self._rng.randrange(10**9)}? " + FILLER * self._rng.randint(1, 12)

    async def _chat(self, model: str, leaves: float = PATIENCE) -> None:
        chat = self._idle_chat(model)
        chat.is_busy = True
        chat.messages.append({"role": "user", "content": self._question()})
        body = {"model": model, "messages": chat.messages, "stream": True}
        try:
            async with asyncio.timeout(leaves):
                text = await self._stream("/v1/chat/completions", body, chat.name, content_of)
            chat.messages.append({"role": "assistant", "content": text or "Nothing."})
        except LOST:
            chat.messages.pop()
            if leaves == PATIENCE:
                raise
        finally:
            chat.is_busy = False

    async def _respond(self) -> None:
        chat = self._idle_chat("responses")
        chat.is_busy = True
        previous = {"previous_response_id": chat.response} if chat.response else {}
        body = {"model": f"soak/{MODEL}", "input": self._question(), "stream": True, **previous}

        def text_in(event: Message) -> str:
            if event.get("type") == "response.created":
                chat.response = event["response"]["id"]
            return str(event["delta"]) if event.get("type") == "response.output_text.delta" else ""

        try:
            await self._stream("/v1/responses", body, chat.name, text_in)
            chat.messages += [{}, {}]
        finally:
            chat.is_busy = False

    async def _stream(self, path: str, body: Message, name: str, text_in: Callable[[Message], str]) -> str:
        """Ask for a stream and note its words as they come; return its text."""
        said, noted = "", 0
        headers = {"X-Conversation-Id": name}
        began = asyncio.get_running_loop().time()
        async with self._http.post(f"http://127.0.0.1:{self.port}{path}", json=body, headers=headers) as response:
            self._answered(path, response)
            async for line in response.content:
                if line.startswith(b"data: {"):
                    if not said:
                        self.waits.append(asyncio.get_running_loop().time() - began)
                    said += text_in(json.loads(line[6:]))
                    noted = self.received.note(said, noted)
        return said

    async def _search(self) -> None:
        word = self._rng.choice(["river", "a1.", f"b{self._rng.randrange(100)}", "nowhere to be found", "zz"])
        await self._get(f"/v1/conversations?search={word}")

    async def _page(self) -> None:
        for path in ("/", "/v1/conversations", "/api/live", "/api/agents", "/metrics", "/v1/models"):
            await self._get(path)
        if self._chats:
            await self._get(f"/v1/conversations/{self._rng.choice(self._chats).name}/messages?limit=50")

    async def _get(self, path: str) -> None:
        async with self._http.get(f"http://127.0.0.1:{self.port}{path}") as response:
            self._answered(path, response)
            await response.read()

    def _answered(self, path: str, response: aiohttp.ClientResponse) -> None:
        route = "/".join(path.partition("?")[0].split("/")[:3])
        self.statuses[f"{route}: {response.status}"] += 1


def content_of(chunk: Message) -> str:
    """Return the words of a chunk of a chat."""
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))
