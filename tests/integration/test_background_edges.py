"""Background compaction where it meets other work: empty answers to its warm-up, other turns, the end of the server."""

import logging
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, eventually
from small_window import ask_whole, history, orders_of, small_window, turns_of

from elbowroom.demo import Script
from elbowroom.server.state import SHARED, Timing

LONG_ANSWER = " ".join(["The ferry left at noon and came back in the evening."] * 20)


async def test_an_empty_answer_to_the_warm_up_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One token may be none that shows: the engine has read the conversation all the same."""

    def model(body: dict[str, Any]) -> Script | str:
        return Script() if body.get("max_tokens") == 1 else LONG_ANSWER

    timing = Timing(quiet=0.02)
    caplog.set_level(logging.INFO)
    async with small_window(tmp_path, model, window=4096, timing=timing) as (served, studio):
        await ask_whole(served, {"model": RAW_MODEL, "messages": history(31)})
        await eventually(lambda: len(turns_of(studio)) == 2, "no warm-up")
        await eventually(lambda: not served.app[SHARED].background._jobs, "it never ends")
    assert len(orders_of(studio)) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
