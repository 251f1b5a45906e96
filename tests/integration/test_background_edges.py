"""Background compaction where it meets other work: empty answers to its warm-up, other turns, the end of the server."""

import logging
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, eventually
from small_window import SYSTEM, ask_whole, history, orders_of, small_window, turns_of

from elbowroom.demo import Script
from elbowroom.server.state import SHARED, Timing

LONG_ANSWER = " ".join(["The ferry left at noon and came back in the evening."] * 20)
QUICK = Timing(quiet=0.02)


@pytest.mark.slow
async def test_an_empty_answer_to_the_warm_up_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One token may be none that shows: the engine has read the conversation all the same."""

    def model(body: dict[str, Any]) -> Script | str:
        return Script() if body.get("max_tokens") == 1 else LONG_ANSWER

    caplog.set_level(logging.INFO)
    async with small_window(tmp_path, model, window=4096, timing=QUICK) as (served, studio):
        await ask_whole(served, {"model": RAW_MODEL, "messages": history(31)})
        await eventually(lambda: len(turns_of(studio)) == 2, "no warm-up")
        await eventually(lambda: not served.app[SHARED].background._jobs, "it never ends")
    assert len(orders_of(studio)) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.slow
async def test_answers_that_fill_the_window_are_followed_by_one_compaction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It aims at what the next turn needs: that one asks no pruning agent, and begins with the answer just read.

    What is kept of the answer before that one leaves a third of the window for the next.
    """
    caplog.set_level("INFO", logger="elbowroom")
    ferries = [f"Ferry {number} left at noon and came back in the evening." for number in range(115)]
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]

    def model(body: dict[str, Any]) -> str:
        return " ".join(ferries[:100] if "day after" in body["messages"][-1]["content"] else ferries)

    async with small_window(tmp_path, model, window=4096, timing=QUICK) as (served, studio):
        for number in range(2):
            messages.append({"role": "user", "content": f"Tell me of all ferries of day {number}."})
            status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages})
            assert (status, answer["choices"][0]["finish_reason"]) == (200, "stop")
            messages.append(answer["choices"][0]["message"])
        await eventually(lambda: turns_of(studio)[-1].body["max_tokens"] == 1, "nothing is compacted")
        [order] = orders_of(studio)
        messages.append({"role": "user", "content": "And what of the day after?"})
        read_ahead = turns_of(studio)[-1].body["messages"]
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages})
        assert (status, answer["choices"][0]["finish_reason"]) == (200, "stop")
        assert answer["choices"][0]["message"]["content"] == " ".join(ferries[:100])
        assert orders_of(studio) == [order]
        sent = turns_of(studio)[-1].body["messages"]
    assert [message["content"] for message in sent[:-1]] == [message["content"] for message in read_ahead[:-1]]
    assert [message["content"] for message in sent[-3:]] == [message["content"] for message in messages[-3:]]
    assert not [record for record in caplog.records if "too large" in record.getMessage()]
