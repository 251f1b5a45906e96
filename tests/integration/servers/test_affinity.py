"""Several servers before several LM Studios: a conversation goes to the machine whose engine has read it."""

import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from postgresql import new_place
from serving import Served, serve
from several_machines import NAME

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

Body = dict[str, Any]
MODEL = NAME.partition("/")[2]
SLOTS = 4
QUESTION = "The boat goes on over the sea, and nobody has seen the herons since. " * 12


class Engine:
    """What the cache of an engine holds: the last prompt of each slot, of which the longest beginning is taken."""

    def __init__(self) -> None:
        self._slots: list[str] = []

    def reads(self, messages: Sequence[Body]) -> tuple[int, int]:
        """Read a prompt; return how many characters it has, and how many had to be read."""
        prompt = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        shared = [_shared(prompt, slot) for slot in self._slots]
        best = max(range(len(shared)), key=shared.__getitem__, default=None)
        if best is not None and shared[best] > len(prompt) // 10:
            del self._slots[best]
        self._slots = [*self._slots[-SLOTS + 1 :], prompt]
        return len(prompt), len(prompt) - max(shared, default=0)


def _shared(one: str, other: str) -> int:
    return next((at for at, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), len(other))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "machines"), [(3, 3), *(pytest.param(*few, marks=pytest.mark.long) for few in ((1, 3), (3, 2)))]
)
async def test_a_conversation_is_read_once_whichever_server_it_comes_to(
    tmp_path: Path, count: int, machines: int
) -> None:
    """Each question comes to a server by chance; at most 30 % of all prompts has to be read by the engines."""
    chance = random.Random(5)
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(new_place())
        model = SimulatedModel(MODEL, loaded_context_length=32768, parallel=SLOTS)
        studios = [
            await stack.enter_async_context(SimulatedLMStudio([model], on_request=lambda _: "I see."))
            for _ in range(machines)
        ]
        addresses = ", ".join(f'"{studio.base_url}"' for studio in studios)
        settings = f'[server]\nport = 0\n[[providers]]\nid = "desk"\nkind = "lmstudio"\nbase_urls = [{addresses}]\n'
        servers: list[Served] = []
        for number in range(count):
            (own := tmp_path / str(number)).mkdir()
            started = serve(own, f'{settings}[store]\nurl = "{place.address}"\n')
            servers.append(await stack.enter_async_context(started))
        talks: list[list[Body]] = [[] for _ in range(6)]
        for turn in range(10):
            for number, talk in enumerate(talks):
                talk.append({"role": "user", "content": f"Question {turn} of {number}. {QUESTION}"})
                server, body = chance.choice(servers), {"model": NAME, "messages": talk}
                named = {"X-Conversation-Id": f"talk {number}"} if number % 2 else {}
                async with server.http.post(server.chat_url, json=body, headers=named) as response:
                    answer = await response.json()
                    assert response.status == 200, answer
                talk.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        read = [
            engine.reads(chat.body["messages"]) for studio in studios for engine in [Engine()] for chat in studio.chats
        ]
        share = sum(new for _, new in read) / sum(whole for whole, _ in read)
        sys.stdout.write(f"{count} servers, {machines} machines: {share:.1%} read anew\n")
        assert share <= 0.3
