"""Clients that give up on a silent socket, and compactions that take longer than their patience."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import RAW_MODEL, chunks_of
from patient_counting import wait_for_counts
from scripted_pruner import valid_plan
from serving import text_of
from small_window import ANSWER, ask_whole, history, orders_of, small_window
from spread_variants import sample

from elbowroom.demo import Pause, Script
from elbowroom.server.state import Timing

LONG = {"model": RAW_MODEL, "messages": history(12)}


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def folder_in(parent: Path, name: str) -> Path:
    """Make a folder for one server's settings."""
    folder = parent / name
    folder.mkdir()
    return folder


async def outlast(folder: Path, notices: str, *, keep_alive: float, patience: float, compaction: float) -> None:
    """Compact for so long in front of a client that leaves a socket which is silent for longer than its patience."""
    is_first = True

    def prune(body: dict[str, object]) -> Script:
        nonlocal is_first
        pause, is_first = (compaction if is_first else 0), False
        return Script(Pause(pause), valid_plan(body))

    settings = f'notices = "{notices}"\nmax_pruning_seconds = {int(compaction) + 60}'
    timing = Timing(keep_alive=keep_alive)
    async with (
        small_window(folder, prune=prune, compaction=settings, timing=timing) as (served, studio),
        served.http.post(
            served.chat_url,
            json={**LONG, "stream": True},
            timeout=aiohttp.ClientTimeout(total=None, sock_read=patience),
        ) as response,
    ):
        stream = await response.read()
        assert orders_of(studio)
        first = orders_of(studio)[0]
        assert first.finished_at is not None
        assert first.finished_at - first.received_at >= compaction > patience
    assert text_of(chunks_of(stream)).endswith(ANSWER)
    assert stream.count(b": elbowroom\n\n") >= 2
    if notices == "off":  # nothing but comments has sent the headers
        assert stream.startswith(b": elbowroom\n\n")


@pytest.mark.slow
async def test_client_outlasts_a_compaction(tmp_path: Path) -> None:
    """Comments keep the connection awake, with notices and, before any frame was written, without."""
    async with asyncio.TaskGroup() as clients:
        for notices in ("off", "event", "content"):
            clients.create_task(
                outlast(folder_in(tmp_path, notices), notices, keep_alive=0.05, patience=0.7, compaction=0.9)
            )


@pytest.mark.long
async def test_client_outlasts_a_minute(tmp_path: Path) -> None:
    """The same at a twentieth of what people wait: a second, three seconds, and a minute, for which the settings ask.

    The pruning agent says nothing all that time: a person waits for its first word as long as the settings say.
    """
    async with asyncio.TaskGroup() as clients:
        for notices in ("off", "event"):
            clients.create_task(
                outlast(folder_in(tmp_path, notices), notices, keep_alive=1.0, patience=3.0, compaction=60.0)
            )


@pytest.mark.slow
@pytest.mark.parametrize("notices", sample(["auto", "content", "comment", "off"], "content", "comment"))
async def test_whole_answer_waits_in_silence(tmp_path: Path, notices: str) -> None:
    """Without streaming nothing can be sent meanwhile: the answer comes whole, and nothing but JSON with it."""
    settings = f'notices = "{notices}"'
    async with small_window(
        tmp_path,
        prune=lambda body: Script(Pause(0.1), valid_plan(body)),
        compaction=settings,
        timing=Timing(keep_alive=0.02, quiet=0.02),
    ) as (served, studio):
        status, answer = await ask_whole(served, LONG)
        assert status == 200
        assert orders_of(studio)
        message: dict[str, Any] = {"role": "assistant", "content": ANSWER, "refusal": None, "annotations": []}
        assert answer["choices"][0]["message"] == message
        assert "ompact" not in str(answer)
