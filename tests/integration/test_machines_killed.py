"""Thirty clients before three LM Studios that die at random: nobody sees an error, and no prompt is over a window."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from chatting import MODEL
from serving import Served, parse_frames, text_of
from several_machines import NAME, Body, machines

from elbowroom.demo import SimulatedLMStudio
from elbowroom.server.state import SHARED

CLIENTS, TURNS = 30, 3


async def talk(served: Served, number: int) -> list[str]:
    """Hold a conversation of some turns; return what was wrong with each of them."""
    messages: list[Body] = []
    wrong = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Question {turn} of {number}. " + f"Boat {number} sails. " * 30})
        body = {"model": NAME, "messages": messages, "stream": True}
        async with served.http.post(served.chat_url, json=body) as response:
            text = await response.read()
        said = text_of(parse_frames(text)) if response.status == 200 else ""
        if not said:
            wrong.append(text[-300:].decode())
        messages.append({"role": "assistant", "content": said or "-"})
    return wrong


async def kill(studios: Sequence[SimulatedLMStudio], chance: random.Random, done: asyncio.Event) -> int:
    """Stop one LM Studio at a time for a moment, until all clients have what they want; return how often."""
    times = 0
    while not done.is_set():
        studio = chance.choice(studios)
        await studio.stop()
        await asyncio.sleep(chance.uniform(0.02, 0.3))
        await studio.start()
        await asyncio.sleep(chance.uniform(0.3, 1.5))
        times += 1
    return times


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_thirty_clients_and_machines_that_die(tmp_path: Path, seed: int) -> None:
    """Before its first word an answer is given by another machine; afterwards nothing is held, and nobody waits."""
    answer = "It is a long story. " * 20
    async with machines(tmp_path, 8192, 8192, 4096, answer=answer, tokens_per_second=500) as (served, studios):
        done = asyncio.Event()
        killing = asyncio.create_task(kill(studios, random.Random(seed), done))
        wrong = await asyncio.gather(*(talk(served, number) for number in range(CLIENTS)))
        done.set()
        assert await killing > 3
        assert [one for some in wrong for one in some] == []
        for studio in studios:
            assert studio.chats
            assert all(chat.fitted for chat in studio.chats if chat.counted_tokens is not None)
        shared = served.app[SHARED]
        assert not shared.places.claims
        assert sum(shared.admission.waiting_for_all().values()) == 0
        assert MODEL in str(list(shared.admission.waiting_for_all()))
