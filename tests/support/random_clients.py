"""Random sequences of clients that share conversations: a seed says what each does, and what must hold after it.

Three clients of one person ask, branch, leave, delete, rename, pin, queue, search and read at the same time. Each
answer has words of its own, so that one that is lost, or kept twice, is seen.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import ClientResponse
from chatting import RAW_MODEL, eventually
from read_conversations import conversations_of
from serving import Served

from elbowroom.context.conversation import Conversation
from elbowroom.demo import Script
from elbowroom.server.state import SHARED

CLIENTS: Final = 3
STEPS: Final = 8
WORDS: Final = 6
MODELS: Final = (RAW_MODEL, "writer")
Message = dict[str, Any]


def says(body: Message) -> Script | str:
    """Answer a question with words that only this answer has."""
    question = str(body["messages"][-1]["content"])
    marker = question.split()[0]
    return " ".join(f"{marker}-{number}" for number in range(WORDS))


@dataclass(slots=True)
class Chat:
    """A conversation as its clients know it: its name, who answers in it, and the history of each client.

    `said` are the words that a client was sent in turns that have ended since it was deleted last, and `queued` the
    messages that were accepted for its queue since then. What ends at the same time as it is deleted may be in either.
    """

    name: str
    model: str
    histories: dict[int, list[Message]] = field(default_factory=dict)
    id: str = ""
    said: set[str] = field(default_factory=set)
    queued: dict[str, str] = field(default_factory=dict)
    deletions: int = 0


class Sequence:
    """One seed: what its clients do, and what is wrong with it."""

    def __init__(self, served: Served, seed: int) -> None:
        self.random = random.Random(seed)  # a seed plays again
        self.owner = f"seed-{seed}"
        self.wrong: list[str] = []
        self._served = served
        self._numbers = iter(range(10**6))
        self._chats = [Chat(f"talk-{number}", self.random.choice(MODELS)) for number in range(2)]

    async def play(self) -> None:
        """Let all clients do what the seed says."""
        plans = [[self.random.choice(list(STEP)) for _ in range(STEPS)] for _ in range(CLIENTS)]
        dice = [random.Random(self.random.random()) for _ in plans]  # each client has its own

        async def client(number: int) -> None:
            for name in plans[number]:
                await STEP[name](self, number, dice[number])

        await asyncio.gather(*map(client, range(CLIENTS)))

    def goes_on_with(self, served: Served) -> None:
        """Ask another server from now on, which has the same store."""
        self._served = served

    async def check(self) -> None:
        """Compare what is kept with what the clients were told, by every way to read it, once nothing runs any more.

        A message that a turn has taken in neither waits nor is read, until its model answers or its turn ends.
        """
        running = self._served.app[SHARED].running
        await eventually(lambda: not running.of(self.owner), "an answer does not end")
        listed = {row["id"]: row for row in (await self._get("/v1/conversations?limit=100"))["data"]}
        for chat in self._chats:
            kept = await conversations_of(self._served).read(self.owner, chat.id) if chat.id else None
            if kept is None:
                self._expect(not chat.said and not chat.queued, f"{chat.name} is gone with {chat.said or chat.queued}")
                self._expect(not chat.id or chat.id not in listed, f"{chat.name} is listed and cannot be read")
                continue
            self._expect(kept.row.id in listed, f"{chat.name} is not listed")
            self._check_words(chat, kept)
            self._check_branches(chat, kept)
            await self._check_ways(chat, kept)

    def _check_words(self, chat: Chat, kept: Conversation) -> None:
        text = "\n".join(str(one.message.get("content")) for one in kept.messages)
        lost = sorted(word for word in chat.said if word not in text.split())
        self._expect(not lost, f"{chat.name} has lost {lost}")
        answers = Counter(
            str(one.message["content"]).split()[0]
            for one in kept.messages
            if one.turn and one.message["role"] == "assistant" and one.message["content"]
        )
        twice = [word for word, count in answers.items() if count > 1]
        self._expect(not twice, f"{chat.name} has {twice} twice: it was written by two")

    def _check_branches(self, chat: Chat, kept: Conversation) -> None:
        keys = {one.key for one in kept.messages if one.key}
        roots = {one.parent for one in kept.messages if not one.turn and one.parent not in keys}
        self._expect(len(roots) <= 1, f"{chat.name} has {len(roots)} beginnings")

    async def _check_ways(self, chat: Chat, kept: Conversation) -> None:
        one = f"/v1/conversations/{kept.row.id}"
        page = await self._get(f"{one}/messages?branch=all&limit=200")
        shown = {message["id"] for message in page["data"]}
        self._expect(shown == {each.id for each in kept.messages}, f"a page of {chat.name} shows others than are kept")
        exported = await self._get(f"{one}/export?format=json")
        for word in sorted(chat.said)[:1]:
            self._expect(word in json.dumps(exported), f"the export of {chat.name} lacks {word}")
            found = await self._get(f"/v1/conversations?q={word}")
            self._expect(kept.row.id in {row["id"] for row in found["data"]}, f"a search for {word} finds nothing")
        waiting = {item["id"] for item in (await self._get(f"{one}/queue"))["data"]}
        read = "\n".join(str(each.message.get("content")) for each in kept.messages)
        lost = [text for item, text in chat.queued.items() if item not in waiting and text not in read]
        self._expect(not lost, f"{lost} of the queue of {chat.name} neither wait nor were read")

    async def ask(self, client: int, dice: random.Random, *, leaves: bool = False, branches: bool = False) -> None:
        """Ask in one of the conversations, perhaps from an earlier message on, and perhaps leave before the end."""
        chat = dice.choice(self._chats)
        before = chat.histories.get(client, [])
        if branches:
            before = before[: 2 * dice.randrange(len(before) // 2 + 1)]
        question = {"role": "user", "content": f"{self.owner}-q{next(self._numbers)} please"}
        body = {"model": chat.model, "messages": [*before, question], "stream": True}
        headers = {**self._headers, "X-Conversation-Id": chat.name}
        async with self._served.http.post(self._served.chat_url, json=body, headers=headers) as response:
            self._note(response)
            if response.status != 200:
                return
            chat.id = response.headers.get("X-Conversation-Id") or chat.id
            said, deletions = "", 0
            with suppress(ConnectionError):
                async for line in response.content:
                    deletions = deletions if said else chat.deletions
                    said += _text_of(line)
                    if leaves and len(said.split()) > WORDS // 2:
                        break
            if leaves:
                response.close()
        if not leaves:
            chat.histories[client] = [*before, question, {"role": "assistant", "content": said}]
            if chat.deletions == deletions:
                chat.said.update(said.split())

    async def leave(self, client: int, dice: random.Random) -> None:
        """Ask, and leave before the end."""
        await self.ask(client, dice, leaves=True)

    async def branch(self, client: int, dice: random.Random) -> None:
        """Ask from an earlier message on."""
        await self.ask(client, dice, branches=True)

    async def delete(self, client: int, dice: random.Random) -> None:
        """Delete a conversation: all that was said in it until the answer comes may be gone, and nothing later."""
        chat = dice.choice(self._chats)
        answer = await self._send("DELETE", f"/v1/conversations/{chat.name}")
        if answer.get("deleted"):
            chat.deletions += 1
            chat.said.clear()
            chat.queued.clear()

    async def rename(self, client: int, dice: random.Random) -> None:
        """Give a conversation another title."""
        chat = dice.choice(self._chats)
        await self._send("PATCH", f"/v1/conversations/{chat.name}", {"title": f"Title {next(self._numbers)}"})

    async def pin(self, client: int, dice: random.Random) -> None:
        """Pin a message of a conversation."""
        chat = dice.choice(self._chats)
        page = await self._send("GET", f"/v1/conversations/{chat.name}/messages")
        if page.get("data"):
            message = dice.choice(page["data"])["id"]
            await self._send("PUT", f"/v1/conversations/{chat.name}/messages/{message}/pin", {})

    async def queue(self, client: int, dice: random.Random) -> None:
        """Put a message in the queue of a conversation: accepted, it waits or is read."""
        chat = dice.choice(self._chats)
        text, deletions = f"{self.owner}-m{next(self._numbers)} queued", chat.deletions
        accepted = await self._send("POST", f"/v1/conversations/{chat.name}/queue", {"content": text})
        if accepted.get("object") == "conversation.queued_message" and chat.deletions == deletions:
            chat.queued[accepted["id"]] = text

    async def read(self, client: int, dice: random.Random) -> None:
        """Read what is there, in one of the ways."""
        chat = dice.choice(self._chats)
        ways = ("", f"/{chat.name}", f"/{chat.name}/messages", f"/{chat.name}/export?format=markdown", "?q=please")
        await self._send("GET", f"/v1/conversations{dice.choice(ways)}")

    @property
    def _headers(self) -> dict[str, str]:
        return {"X-Elbowroom-User": self.owner}

    async def _get(self, path: str) -> Any:
        async with self._served.http.get(f"{self._served.url}{path}", headers=self._headers) as response:
            assert response.status == 200, f"{path}: {response.status} {await response.text()}"
            return await response.json(content_type=None)

    async def _send(self, method: str, path: str, body: Message | None = None) -> Message:
        url = f"{self._served.url}{path}"
        async with self._served.http.request(method, url, json=body, headers=self._headers) as response:
            self._note(response)
            text = await response.text()
        with suppress(ValueError):
            if isinstance(answer := json.loads(text), dict):
                return answer
        return {}

    def _note(self, response: ClientResponse) -> None:
        self._expect(response.status < 500, f"{response.method} {response.url.path} is a {response.status}")

    def _expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            self.wrong.append(f"{self.owner}: {otherwise}")


STEP: Final[dict[str, Callable[[Sequence, int, random.Random], Awaitable[None]]]] = {
    "ask": Sequence.ask,
    "ask again": Sequence.ask,
    "leave": Sequence.leave,
    "branch": Sequence.branch,
    "delete": Sequence.delete,
    "rename": Sequence.rename,
    "pin": Sequence.pin,
    "queue": Sequence.queue,
    "read": Sequence.read,
}


def _text_of(line: bytes) -> str:
    if not line.startswith(b"data: {"):
        return ""
    choices = json.loads(line[6:]).get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("content") or ""
