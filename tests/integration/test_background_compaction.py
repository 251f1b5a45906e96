"""Behind an answer that has passed the trigger the conversation is compacted, so that the next turn need not wait."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, eventually, function_spec, stream_bytes
from flushes import background_ended
from scripted_pruner import is_prune_order
from serving import Served
from small_window import ANSWER, ask_whole, history, orders_of, small_window, turns_of

from elbowroom.agents.admission import pool
from elbowroom.agents.ask import Question, ask
from elbowroom.agents.turn import background, sending
from elbowroom.agents.turn import pruner as pruning
from elbowroom.context.budget import Budget
from elbowroom.demo import Script, SimulatedLMStudio, ToolCall, WaitFor
from elbowroom.server.state import SHARED, Timing

Message = dict[str, Any]
WINDOW = 4096
NEARLY_FULL = 31
"""Exchanges that stay just below the trigger."""
LONG_ANSWER = " ".join(["The ferry left at noon and came back in the evening."] * 20)
QUICK = Timing(quiet=0.02)


def body_of(messages: list[Message]) -> dict[str, Any]:
    """Return the request of a raw model."""
    return {"model": RAW_MODEL, "messages": messages}


def after(messages: list[Message], answer: str) -> list[Message]:
    """Return the history one turn later."""
    said = {"role": "assistant", "content": answer.strip()}
    return [*messages, said, {"role": "user", "content": "And the first one tomorrow?"}]


async def asked_or_idle(served: Served, studio: SimulatedLMStudio) -> None:
    """Wait until the pruning agent is asked, or nothing is left to do after the answer."""
    jobs = served.app[SHARED].background._jobs
    await eventually(lambda: orders_of(studio) or not jobs, "it never ends")


async def test_the_next_turn_finds_it_done(tmp_path: Path) -> None:
    """One order behind the answer, one token to warm the cache, and a next turn that begins with the same bytes."""
    first = history(NEARLY_FULL)
    async with small_window(tmp_path, lambda body: LONG_ANSWER, window=WINDOW, timing=QUICK) as (served, studio):
        status, answer = await ask_whole(served, body_of(first))
        assert status == 200
        assert not orders_of(studio)
        await eventually(lambda: len(turns_of(studio)) == 2, "the engine has not read what was compacted")
        [order] = orders_of(studio)
        warm = turns_of(studio)[1].body
        assert warm["max_tokens"] == 1
        said = answer["choices"][0]["message"]["content"]
        await ask_whole(served, body_of(after(first, said)))
        assert orders_of(studio) == [order]
        sent = turns_of(studio)[-1].body["messages"]
    assert sent[:-1] == warm["messages"][:-1]
    assert len(sent) < len(first)


async def test_what_is_read_ahead_belongs_to_its_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine with several slots reads it where the next turn will go on, and takes no other conversation's slot."""
    asked = list[Question]()

    def noted(question: Question, *given: Any, **more: Any) -> Any:
        asked.append(question)
        return ask(question, *given, **more)

    monkeypatch.setattr(sending, "ask", noted)
    monkeypatch.setattr(background, "ask", noted)
    first = history(NEARLY_FULL)
    async with small_window(tmp_path, lambda body: LONG_ANSWER, window=WINDOW, timing=QUICK) as (served, studio):
        _, answer = await ask_whole(served, body_of(first))
        await eventually(lambda: len(turns_of(studio)) == 2, "the engine has not read what was compacted")
        await ask_whole(served, body_of(after(first, answer["choices"][0]["message"]["content"])))
    assert [question.body["max_tokens"] == 1 for question in asked] == [False, True, False]
    assert asked[0].conversation is not None
    assert len({question.conversation for question in asked}) == 1


@pytest.mark.slow
async def test_a_title_afterwards_takes_nothing_away(tmp_path: Path) -> None:
    """An engine with one slot reads again what the compaction has made, not the conversation from before it."""
    first = history(NEARLY_FULL)
    async with small_window(tmp_path, lambda body: LONG_ANSWER, window=WINDOW, slots=1, timing=QUICK) as (
        served,
        studio,
    ):
        await ask_whole(served, body_of(first))
        await eventually(lambda: len(turns_of(studio)) == 2, "the engine has not read what was compacted")
        title, headers = body_of([{"role": "user", "content": "A title?"}]), {"X-Elbowroom-Task": "title_generation"}
        async with served.http.post(served.chat_url, json=title, headers=headers) as response:
            assert response.status == 200
        await eventually(lambda: len(turns_of(studio)) == 4, "the engine has not read it again")
        _, warm, _, again = turns_of(studio)
        assert again.body["messages"] == warm.body["messages"]


async def test_its_row_tells_as_long_as_the_gauge_may_change(tmp_path: Path) -> None:
    """From the end of the answer on it `works_ahead`; once it does not, the gauge is that of the shorter prompt."""
    async with small_window(tmp_path, lambda body: LONG_ANSWER, window=WINDOW, timing=QUICK) as (served, _):

        async def asked(path: str) -> Any:
            async with served.http.get(f"{served.url}/v1/conversations{path}") as response:
                return await response.json()

        await ask_whole(served, body_of(history(NEARLY_FULL)))
        [listed] = (await asked(""))["data"]
        row = full = await asked(f"/{listed['id']}")
        assert full["works_ahead"]
        async with asyncio.timeout(30):
            while row["works_ahead"]:
                row = await asked(f"/{listed['id']}")
        assert row["context"]["tokens"] < row["context"]["trigger"] < full["context"]["tokens"]
        assert row["compactions"]


async def test_an_agent_that_works_for_another(tmp_path: Path) -> None:
    """What ends while another chat waits for its tools is no longer talked to, and would take that chat's cache."""
    parent: Message = {"role": "user", "content": "Ask somebody."}

    def model(body: dict[str, Any]) -> Script | str:
        is_parent = body["messages"][0] == parent and len(body["messages"]) == 1
        return Script(ToolCall("ask", {"what": "all"})) if is_parent else LONG_ANSWER

    async with small_window(tmp_path, model, window=WINDOW, slots=1, timing=QUICK) as (served, studio):
        jobs, last = served.app[SHARED].background._jobs, served.app[SHARED].background._last_prompts
        asked = {**body_of([parent]), "tools": [function_spec("ask", what={"type": "string"})]}
        _, answer = await ask_whole(served, asked)
        called = answer["choices"][0]["message"]
        await ask_whole(served, body_of(history(NEARLY_FULL)))
        assert not jobs
        assert not last  # nor is it read again, where a title takes its place
        result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "All of it."}
        await ask_whole(served, {**asked, "messages": [parent, called, result]})
        await ask_whole(served, body_of(history(NEARLY_FULL)))
        assert last
        await eventually(lambda: len(orders_of(studio)) == 1, "nothing is compacted once the work is done")


async def test_the_person_is_told_with_the_next_turn(tmp_path: Path) -> None:
    """What was summarised while nobody waited is one line above the next answer, with its sizes, and no more later."""
    messages = history(NEARLY_FULL)
    async with small_window(tmp_path, lambda body: LONG_ANSWER, window=WINDOW, timing=QUICK) as (served, studio):
        _, answer = await ask_whole(served, body_of(messages))
        await eventually(lambda: len(turns_of(studio)) == 2, "the engine has not read what was compacted")
        for told in (1, 0):
            messages = after(messages, answer["choices"][0]["message"]["content"])
            stream = (await stream_bytes(served, body_of(messages))).decode()
            found = re.findall(r"Earlier part summarised while you read: ([\d,]+) to ([\d,]+) tokens", stream)
            assert len(found) == told
            for before, size in found:
                assert int(size.replace(",", "")) < int(before.replace(",", ""))


@pytest.mark.slow
async def test_a_turn_in_between_waits_for_it(tmp_path: Path) -> None:
    """A next turn that comes while it is compacted takes what comes of it: one order in all, and the person is told."""
    first = history(NEARLY_FULL)
    async with small_window(tmp_path, lambda body: LONG_ANSWER, window=WINDOW, timing=QUICK) as (served, studio):
        studio.tokens_per_second = 1000
        _, answer = await ask_whole(served, body_of(first))
        await eventually(lambda: len(orders_of(studio)) == 1, "nothing is compacted")
        follow = after(first, answer["choices"][0]["message"]["content"])
        status, _ = await ask_whole(served, body_of(follow))
        assert status == 200
        assert len(orders_of(studio)) == 1
        sent = turns_of(studio)[-1].body["messages"]
        assert len(sent) < len(first)


@pytest.mark.slow
async def test_it_gives_way_to_other_requests(tmp_path: Path) -> None:
    """A conversation that needs the room ends it before its time; it is done behind that one's answer."""
    first = history(NEARLY_FULL)
    ended = asyncio.Event()

    def says(body: dict[str, Any]) -> Script | str:
        return ANSWER if body["messages"][-1]["content"] == "Who are you?" else LONG_ANSWER

    async with small_window(tmp_path, says, window=WINDOW, timing=QUICK) as (served, studio):
        studio.enqueue(Script(WaitFor(ended), "{}"), when=is_prune_order)
        await ask_whole(served, body_of(first))
        await eventually(lambda: len(orders_of(studio)) == 1, "nothing is compacted")
        other = [*history(12)[:-1], {"role": "user", "content": "Who are you?"}]
        status, answer = await ask_whole(served, body_of(other))
        assert status == 200
        assert answer["choices"][0]["message"]["content"] == ANSWER
        await eventually(lambda: len(orders_of(studio)) == 2, "it is not tried again")
        ended.set()
        assert orders_of(studio)[0].phase != "done"


@pytest.mark.slow
async def test_a_silent_pruning_agent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it, but it keeps nothing busy for ever: code compacts once its prompt should have been read."""
    monkeypatch.setattr(pruning, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr(pool, "DEFAULT_RATE", 1e6)
    never = Script(WaitFor(asyncio.Event()))
    window = small_window(tmp_path, lambda body: LONG_ANSWER, prune=lambda body: never, window=WINDOW, timing=QUICK)
    async with window as (served, studio):
        await ask_whole(served, body_of(history(NEARLY_FULL)))
        await eventually(lambda: orders_of(studio), "it is not compacted in the background")
        await eventually(lambda: not served.app[SHARED].background._jobs, "it waits for a silent agent")
        assert len(orders_of(studio)) == 1


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    """With `background = false` nothing is sent behind an answer."""
    first = history(NEARLY_FULL)
    off = "background = false"
    async with small_window(tmp_path, lambda body: LONG_ANSWER, window=WINDOW, timing=QUICK, compaction=off) as (
        served,
        studio,
    ):
        await ask_whole(served, body_of(first))
        await asyncio.sleep(0.2)
        assert len(studio.chats) == 1


async def test_an_answer_below_the_trigger_leaves_nothing_to_do(tmp_path: Path) -> None:
    """Nothing is sent behind an answer that leaves room."""
    async with small_window(tmp_path, lambda body: ANSWER, window=WINDOW, timing=QUICK) as (served, studio):
        await ask_whole(served, body_of(history(NEARLY_FULL - 15)))
        await asyncio.sleep(0.2)
        assert len(studio.chats) == 1
        assert SHARED in served.app


async def test_a_next_message_of_the_usual_length_is_expected(tmp_path: Path) -> None:
    """A person of long questions has the room for the next one made behind the answer, though this one left some."""
    trigger = Budget(WINDOW).trigger
    messages: list[Message] = []
    async with small_window(tmp_path, lambda body: ANSWER, window=WINDOW, timing=QUICK) as (served, studio):
        for number in range(20):
            asked = f"Question {number}: " + "and what was noted about the boats on the way to the island? " * 30
            messages += [{"role": "user", "content": asked}]
            await ask_whole(served, body_of(messages))
            messages += [{"role": "assistant", "content": ANSWER}]
            await asked_or_idle(served, studio)
            if orders_of(studio):
                break
        sent = [turn.counted_tokens or 0 for turn in turns_of(studio)]
    assert len(orders_of(studio)) == 1
    assert all(Budget(WINDOW).occupied(size) < trigger for size in sent)


@pytest.mark.slow
async def test_a_turn_that_needs_no_compaction_leaves_none_behind_the_answer_before(tmp_path: Path) -> None:
    """A short question still fits: what was begun for a longer one is ended, and done once behind the new answer."""
    messages: list[Message] = []
    ended = asyncio.Event()
    async with small_window(tmp_path, lambda body: ANSWER, window=WINDOW, timing=QUICK) as (served, studio):
        studio.enqueue(Script(WaitFor(ended), "{}"), when=is_prune_order)
        for _ in range(20):
            asked = f"Question {len(messages)}: " + "and what was noted about the boats on the way to the island? " * 30
            messages += [{"role": "user", "content": asked}]
            await ask_whole(served, body_of(messages))
            messages += [{"role": "assistant", "content": ANSWER}]
            await asked_or_idle(served, studio)
            if orders_of(studio):
                break
        await ask_whole(served, body_of([*messages, {"role": "user", "content": "And now?"}]))
        await eventually(lambda: turns_of(studio)[-1].body["max_tokens"] == 1, "nothing is compacted")
        await eventually(lambda: not served.app[SHARED].background._jobs, "it never ends")
        ended.set()
        assert len(orders_of(studio)) == 2


@pytest.mark.slow
async def test_a_plan_that_came_to_nothing_is_asked_for_again_once_it_is_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not behind each answer that follows, and the log tells of no compaction that there was not."""
    caplog.set_level("INFO", logger="elbowroom")
    messages: list[Message] = []
    long = "and what was noted about the boats on the way to the island? " * 30
    window = small_window(tmp_path, lambda body: ANSWER, prune=lambda body: "No.", window=WINDOW, timing=QUICK)
    async with window as (served, studio):
        numbers = iter(range(20))

        async def turn(asked: str) -> int:
            messages.append({"role": "user", "content": f"Question {next(numbers)}: {asked}"})
            status, _ = await ask_whole(served, body_of(messages))
            assert status == 200
            messages.append({"role": "assistant", "content": ANSWER})
            orders = len(orders_of(studio))
            await background_ended(served)
            return orders

        while not orders_of(studio):
            assert await turn(long) == 0
        assert len(orders_of(studio)) == 2
        assert await turn("And now?") == 2
        assert len(orders_of(studio)) == 2
        assert "compacted from" not in caplog.text
        assert await turn(long) == 4
        assert caplog.text.count("compacted from") == 1
