"""Open WebUI's own compaction: its summary is a system message, or the end of one, and stays word for word."""

from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, chunks_of, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import text_of as content_of
from serving import text_of
from small_window import ANSWER, history, orders_of, small_window, turns_of
from spread_variants import spread

SUMMARY = (
    "[CONVERSATION SUMMARY]\nAda keeps the ferry's log in ~/log/2026.md; she asked for 4,711 crates on pier 9 and "
    "never on pier 3.\n\n- Open: who was the pilot on 21 November?"
)
PROMPT = "You are a careful harbour clerk."


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def compacted_there(exchanges: int, form: str) -> list[dict[str, Any]]:
    """Return a history as it comes after such a compaction: with the summary alone, beside a prompt, or within it."""
    _, *kept = history(exchanges)
    systems = {"alone": [SUMMARY], "beside": [PROMPT, SUMMARY], "within": [f"{PROMPT}\n{SUMMARY}"]}
    return [*({"role": "system", "content": text} for text in systems[form]), *kept]


@pytest.mark.parametrize(("form", "model"), spread(["alone", "beside", "within"], ["writer", RAW_MODEL]))
async def test_the_summary_survives_compactions(tmp_path: Path, form: str, model: str) -> None:
    """What is kept behind it is compacted as ever, over several turns; the summary itself reaches the model whole."""
    async with small_window(tmp_path) as (served, studio):
        for exchanges in (12, 14, 16):
            body = {"model": model, "messages": compacted_there(exchanges, form)}
            assert text_of(chunks_of(await stream_bytes(served, body))) == ANSWER
        assert orders_of(studio), "nothing was compacted"
        for turn in turns_of(studio):
            assert_fits(turn)
            systems = [content_of(message) for message in turn.body["messages"] if message["role"] == "system"]
            assert sum(text.count(SUMMARY) for text in systems) == 1
            others = [content_of(message) for message in turn.body["messages"] if message["role"] != "system"]
            assert not any("[CONVERSATION SUMMARY]" in text for text in others)


async def test_the_chain_begins_anew(tmp_path: Path) -> None:
    """A later summary stands for more: what was kept behind the one before it is found again where it is the same."""
    async with small_window(tmp_path) as (served, studio):
        before = {"model": "writer", "messages": history(12)}
        await stream_bytes(served, before)
        first = len(orders_of(studio))
        after = {"model": "writer", "messages": [{"role": "system", "content": SUMMARY}, *history(12)[5:]]}
        await stream_bytes(served, after)
        assert len(orders_of(studio)) > first, "the compaction of another beginning was taken for this one's"
        [*_, turn] = turns_of(studio)
        assert SUMMARY in content_of(turn.body["messages"][0])
        again = len(orders_of(studio))
        await stream_bytes(served, after)
        assert len(orders_of(studio)) == again, "the same conversation was compacted twice"
