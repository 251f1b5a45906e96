"""What is compacted once stays compacted: for the next turn, for another answer, after an edit, and in a branch."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL
from scripted_pruner import valid_plan
from serving import Served
from small_window import ANSWER, ask_whole, history, orders_of, small_window, turns_of

from elbowroom.demo import Script, SimulatedLMStudio, WaitFor

Message = dict[str, Any]
WINDOW = 4096
LONG = 33
"""Exchanges that fill the small window past the trigger."""


async def ask(served: Served, messages: list[Message], **fields: Any) -> str:
    """Ask without streaming and return the answer's text."""
    status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages, **fields})
    assert status == 200, answer
    return str(answer["choices"][0]["message"]["content"])


def last_prompt(studio: SimulatedLMStudio) -> list[Message]:
    """Return the messages of the last request that was a turn."""
    messages: list[Message] = turns_of(studio)[-1].body["messages"]
    return messages


def after(messages: list[Message], question: str) -> list[Message]:
    """Return the history one turn later."""
    return [*messages, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": question}]


async def test_the_next_turn_is_not_compacted_again(tmp_path: Path) -> None:
    """A client that sends everything again gets the earlier compaction, with the same bytes, and no order is given."""
    async with small_window(tmp_path, compaction="background = false", window=WINDOW) as (served, studio):
        first = history(LONG)
        await ask(served, first)
        sent_first = last_prompt(studio)
        assert len(orders_of(studio)) == 1
        await ask(served, after(first, "And the first one tomorrow?"))
        assert len(orders_of(studio)) == 1
        sent_next = last_prompt(studio)
    assert sent_next[: len(sent_first)] == sent_first
    assert sent_next[len(sent_first) :] == after([], "And the first one tomorrow?")


async def test_compactions_outlive_the_server(tmp_path: Path) -> None:
    """After a restart of the server the next turn finds the compaction in the database."""
    first = history(LONG)
    async with small_window(tmp_path, compaction="background = false", window=WINDOW) as (served, studio):
        await ask(served, first)
        assert len(orders_of(studio)) == 1
    async with small_window(tmp_path, compaction="background = false", window=WINDOW) as (served, studio):
        await ask(served, after(first, "And the first one tomorrow?"))
        assert not orders_of(studio)


@pytest.mark.slow
@pytest.mark.fault("two clients at once", "compaction", "one compaction for both")
async def test_the_same_request_at_the_same_moment_pays_once(tmp_path: Path) -> None:
    """Of several requests with the same history one compacts; the others wait for it and send the same bytes."""
    async with small_window(tmp_path, compaction="background = false", window=WINDOW) as (served, studio):
        studio.tokens_per_second = 400
        first = history(LONG)
        answers = await asyncio.gather(*(ask(served, first) for _ in range(3)))
        assert len(orders_of(studio)) == 1
        assert answers == [ANSWER] * 3
        prompts = [turn.body["messages"] for turn in turns_of(studio)]
    assert prompts == [prompts[0]] * 3


async def test_who_waited_for_one_that_was_stopped_pays_once(tmp_path: Path) -> None:
    """The request that compacts is stopped: one of those that waited for it compacts, and the others wait for that."""
    pruned = asyncio.Event()

    def prune(body: dict[str, Any]) -> Script:
        plan = valid_plan(body)
        return Script(plan[:40], WaitFor(pruned), plan[40:])

    async with small_window(tmp_path, prune=prune, compaction="background = false", window=WINDOW) as (served, studio):
        first = history(LONG)
        stopped = asyncio.create_task(ask(served, first))
        await studio.wait_until(lambda: orders_of(studio) and orders_of(studio)[0].completion_tokens)
        waiting = [asyncio.create_task(ask(served, first)) for _ in range(3)]
        await asyncio.sleep(0.1)
        stopped.cancel()
        await asyncio.wait([stopped])
        pruned.set()
        assert await asyncio.gather(*waiting) == [ANSWER] * 3
        assert len(orders_of(studio)) == 2
