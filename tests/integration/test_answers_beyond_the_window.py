"""An answer that alone is longer than the window: its beginning is compacted like anything else, its text stays whole."""

from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, chunks_of, finish_of, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import Served, text_of
from small_window import small_window, turns_of

from elbowroom.demo import SimulatedTokenizer

TOKENIZER = SimulatedTokenizer()
QUESTION = "Say all the words."
NOUNS = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def words(count: int, between: str) -> str:
    """Return so many numbered words; without an end of a sentence or a line it has no good place to stop."""
    return between.join(f"{NOUNS[number % 10]} {number}" for number in range(count))


def long_text(tokens: int, between: str) -> str:
    """Return a text of so many tokens, about."""
    return words(100 * tokens // len(TOKENIZER.split(words(100, between))), between)


async def said(served: Served) -> tuple[str, str]:
    """Return the text of the answer and why it ended."""
    body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": QUESTION}]}
    chunks = chunks_of(await stream_bytes(served, body))
    return text_of(chunks), finish_of(chunks) or ""


@pytest.mark.parametrize("between", [" ", ".\n"], ids=["one line", "lines"])
@pytest.mark.parametrize("window", [1024, *(pytest.param(size, marks=pytest.mark.long) for size in (4096, 8192))])
async def test_each_restart_of_an_answer_frees_a_quarter_of_the_window(
    tmp_path: Path, window: int, between: str
) -> None:
    """The whole text arrives once, though it is longer than the window, in one line or in many."""
    text = long_text(window * 3 // 2, between)

    def says(body: dict[str, Any]) -> str:
        last = content_of(body["messages"][-1])
        return text if last == QUESTION else rest_of(text, content_of(body["messages"][-2]))

    async with small_window(tmp_path, says, window=window) as (served, studio):
        answer, finish = await said(served)
        for turn in turns_of(studio):
            assert_fits(turn)
        prompts = [turn.counted_tokens or 0 for turn in turns_of(studio)]
        assert (answer == text, finish, len(prompts)) == (True, "stop", len(prompts)), prompts
        assert len(prompts) <= 4
        assert max(prompts) <= 0.9 * window - window / 4, prompts
