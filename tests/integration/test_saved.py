"""`GET /api/saved`: what caching and compaction have saved, which outlives the server."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from noted_conversations import milk
from serving import Served
from small_window import ask_whole, history, orders_of, small_window

from elbowroom.context.conversation import SavedTokens, Savings
from elbowroom.server.conversations.encode import describe_savings
from elbowroom.server.state import SHARED


async def saved(served: Served, query: str = "", status: int = 200) -> Any:
    """Return what the route tells."""
    async with served.http.get(f"{served.url}/api/saved{query}") as response:
        assert response.status == status
        return await response.json()


async def test_it_outlives_a_restart(tmp_path: Path) -> None:
    """After a compaction the day has what it freed, and has it still when the server runs anew."""
    async with small_window(tmp_path) as (served, studio):
        assert (await saved(served))["data"] == []
        status, _ = await ask_whole(served, {"model": "writer", "messages": history(12)})
        assert status == 200
        assert orders_of(studio)
        await served.app[SHARED].store.conversations.settled()
        before = await saved(served)
        [day] = before["data"]
        assert day["freed"] > 0
        assert day["compactions"] >= 1
        assert day["day"] == str(datetime.fromtimestamp(time.time(), UTC).date())
    async with small_window(tmp_path) as (served, _):
        assert await saved(served) == before


async def test_days_are_those_of_the_caller(tmp_path: Path) -> None:
    """A zone moves them; one that nobody lives in is refused."""
    async with small_window(tmp_path) as (served, _):
        await milk(served.app[SHARED].store.conversations, at=1_700_000_000.0)
        days = {zone: (await saved(served, f"?zone={zone}"))["data"][0]["day"] for zone in (0, 240, -240)}
        assert days == {0: "2023-11-14", 240: "2023-11-15", -240: "2023-11-14"}
        for odd in ("x", "841", "-841", "1e3"):
            assert "zone" in (await saved(served, f"?zone={odd}", 400))["error"]["message"]


@pytest.mark.parametrize(
    ("waits", "seconds"),
    [
        ((), None),
        (((900, 2.0),), None),
        (((900, 2.0), (900, 3.0)), None),
        (((1000, 1.5), (3000, 2.5)), 0.0005),
        (((1000, 2.5), (3000, 1.5)), None),
    ],
)
def test_seconds_of_a_token(waits: tuple[tuple[int, float], ...], seconds: float | None) -> None:
    """What each wait has anyway is left out; without waits of several lengths nothing can be told."""
    days = (SavedTokens("c", 2, 100, 1), SavedTokens("c", 2, cached=30), SavedTokens("d", 5, 7, 2))
    told = describe_savings(Savings(days, waits))
    assert told["seconds_a_token"] == (None if seconds is None else pytest.approx(seconds))
    assert told["data"] == [
        {"day": "1970-01-06", "freed": 7, "cached": 0, "compactions": 2},
        {"day": "1970-01-03", "freed": 100, "cached": 30, "compactions": 1},
    ]
