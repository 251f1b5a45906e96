"""Two chats of one client that alternate in an engine with one slot: each has turns of several requests."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import RAW_MODEL, eventually, function_spec
from patient_counting import wait_for_counts
from small_window import ask_whole, small_window, turns_of

from elbowroom.agents.admission.turns import Turns
from elbowroom.demo import Script, ToolCall
from elbowroom.demo.journal import RecordedRequest

Message = dict[str, Any]
WINDOW: Final = 16_384
CALLS: Final = 5
READ: Final = function_spec("read", part={"type": "integer"})
TASKS: Final = {name: f"{name} reads every part. " + f"{name} keeps to the rules of the port. " * 200 for name in "ab"}


def works(body: dict[str, Any]) -> Script | str:
    """Call for one part after the other, up to the last."""
    done = sum(message["role"] == "tool" for message in body["messages"])
    return Script(ToolCall("read", {"part": done})) if done < CALLS else "Every part is read."


def switches(chats: list[RecordedRequest]) -> int:
    """Return how often the engine was asked for another chat than before."""
    firsts = [str(chat.body["messages"][0]["content"]) for chat in chats]
    return sum(one != other for one, other in pairwise(firsts))


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "most", "least"), [(1, CALLS, 1), (4, 2 * CALLS + 1, CALLS + 1)])
async def test_an_engine_with_one_slot_reads_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, most: int, least: int
) -> None:
    """Both come to their end, and the engine changes between them less often; one with more slots is left alone."""
    wait_for_counts(monkeypatch)
    async with small_window(tmp_path, works, window=WINDOW, slots=slots) as (served, studio):
        studio.prefill_tokens_per_second, studio.prefix_cache = 3000, True

        async def work(name: str) -> None:
            messages: list[Message] = [{"role": "user", "content": TASKS[name]}]
            while True:
                body = {"model": RAW_MODEL, "messages": messages, "tools": [READ]}
                status, answer = await ask_whole(served, body)
                assert status == 200, answer
                said = answer["choices"][0]["message"]
                if not said.get("tool_calls"):
                    return
                await asyncio.sleep(0.01)
                result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "Nothing new here."}
                messages = [*messages, said, result]

        await asyncio.gather(*map(work, TASKS))
        await eventually(lambda: studio.open_requests == 0, "something is still asked")
        chats = turns_of(studio)
    assert len([chat for chat in chats if chat.body["max_tokens"] != 1]) == 2 * (CALLS + 1)
    assert least <= switches(chats) <= most


@pytest.mark.parametrize("words", [None, "Stop. What have you found so far?"])
async def test_words_that_come_with_results_wait_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str | None
) -> None:
    """What a person adds to the results of a tool is answered at once; results alone wait for another chat's turn."""
    waits = list[bool]()
    taken = Turns.taken

    def noted(turns: Turns, pool: Any, owner: str, chat: Any, on_wait: Any) -> Any:
        waits.append(on_wait is not None)
        return taken(turns, pool, owner, chat, on_wait)

    monkeypatch.setattr(Turns, "taken", noted)
    call = {"id": "call-1", "type": "function", "function": {"name": "read", "arguments": '{"part": 1}'}}
    messages: list[Message] = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "Nothing new here."},
        *([{"role": "user", "content": words}] if words is not None else []),
    ]
    async with small_window(tmp_path, lambda body: "It is read.", window=WINDOW, slots=1) as (served, _):
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages, "tools": [READ]})
        assert status == 200, answer
    assert waits == [words is None]
