"""An answer that alone is longer than the window: its beginning is compacted, and its text stays whole."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from agent_teams import notices_of
from chatting import RAW_MODEL, calls_of, chunks_of, finish_of, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import Served, text_of
from small_window import small_window, turns_of

from elbowroom.demo import Script, SimulatedTokenizer, ToolCall
from elbowroom.logs.formats import FIELDS

LONGEST_LINE = 95  # characters that Open WebUI shows of a status

TOKENIZER = SimulatedTokenizer()
QUESTION = "Say all the words."
BODY = {"model": RAW_MODEL, "messages": [{"role": "user", "content": QUESTION}]}
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
    chunks = chunks_of(await stream_bytes(served, BODY))
    return text_of(chunks), finish_of(chunks) or ""


@pytest.mark.parametrize("between", [" ", ".\n"], ids=["one line", "lines"])
@pytest.mark.parametrize("window", [1024, *(pytest.param(size, marks=pytest.mark.long) for size in (4096, 8192))])
async def test_each_restart_of_an_answer_frees_a_quarter_of_the_window(
    tmp_path: Path, window: int, between: str
) -> None:
    """The whole text arrives once, though it is longer than the window, in one line or in many."""
    text = long_text(window * 3 // 2, between)

    async with small_window(tmp_path, lambda body: goes_on_well(text, body), window=window) as (served, studio):
        answer, finish = await said(served)
        for turn in turns_of(studio):
            assert_fits(turn)
        prompts = [turn.counted_tokens or 0 for turn in turns_of(studio)]
        assert (answer == text, finish, len(prompts)) == (True, "stop", len(prompts)), prompts
        assert len(prompts) <= 4
        assert max(prompts) <= 0.9 * window - window / 4, prompts


def goes_on_well(text: str, body: dict[str, Any]) -> str:
    """Say the text, and its rest where it was stopped."""
    is_first = content_of(body["messages"][-1]) == QUESTION
    return text if is_first else rest_of(text, content_of(body["messages"][-2]))


async def test_model_that_begins_anew_is_told_to_go_on(tmp_path: Path) -> None:
    """It is noticed in its first words and asked once more; the client's text is whole and has nothing twice."""
    text = long_text(1400, ".\n")
    asked: list[str] = []

    def says(body: dict[str, Any]) -> str:
        asked.append(content_of(body["messages"][-1]))
        return text if len(asked) == 2 else goes_on_well(text, body)

    async with small_window(tmp_path, says, window=1024) as (served, studio):
        answer, finish = await said(served)
        assert (answer, finish) == (text, "stop")
        begun_anew = turns_of(studio)[1]
        assert (begun_anew.completion_tokens or 0) < 100
        assert "you have begun your message anew" in asked[2]
        assert content_of(turns_of(studio)[2].body["messages"][-2])[-150:] in asked[2]


async def test_model_that_begins_anew_twice_ends_its_answer(tmp_path: Path) -> None:
    """The person reads why; nothing of the repetition is shown, and the model is asked no more."""
    text = long_text(1400, ".\n")
    async with small_window(tmp_path, lambda body: text, window=1024) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, BODY))
        told = [notice for _, notice in notices_of(chunks)]
        assert "begun the answer anew" in told[-1]
        assert finish_of(chunks) == "length"
        assert text.startswith(text_of(chunks))
        assert len(turns_of(studio)) == 3


async def test_song_that_repeats_its_first_line_is_not_taken_for_a_new_beginning(tmp_path: Path) -> None:
    """Where the first words come again in the text itself, they prove nothing."""
    refrain = "The ferry leaves the harbour when the bell has rung seven times.\n"
    text = "".join(f"{refrain}Verse {number} is about the sea.\n" for number in range(70))
    async with small_window(tmp_path, lambda body: goes_on_well(text, body), window=1024) as (served, _):
        assert await said(served) == (text, "stop")


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_limit_of_restarts_is_named_with_what_could_still_be_freed(
    tmp_path: Path, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The end tells the limit and its setting; each restart before it is a line in the log, with its sizes."""
    text = long_text(4000, ".\n")
    caplog.set_level("INFO", logger="elbowroom")
    setting = f"max_restarts = {most}"
    async with small_window(tmp_path, lambda body: goes_on_well(text, body), window=1024, compaction=setting) as (
        served,
        studio,
    ):
        chunks = chunks_of(await stream_bytes(served, BODY))
    assert finish_of(chunks) == "length"
    told = [notice for _, notice in notices_of(chunks)][-1]
    assert told.startswith(f"The answer ends here: ask it to go on, or raise max_restarts ({most}).")
    assert len(told) <= LONGEST_LINE
    [freed] = (int(found) for found in re.findall(r"([\d,]+) of 1,024 tokens can go", told))
    assert freed > 1024 // 4
    lines = [record for record in caplog.records if ": restart " in record.getMessage()]
    restarts = [getattr(record, FIELDS) for record in lines]
    assert [(each["event"], each["restart"], each["most"]) for each in restarts] == [
        ("restart", number, most) for number in range(1, most + 1)
    ]
    prompts = [turn.counted_tokens for turn in turns_of(studio)][1:]
    assert len(prompts) == most
    for line, each, prompt in zip(lines, restarts, prompts, strict=True):
        assert f"restart {each['restart']} of {most}" in line.getMessage()
        assert each["before"] >= int(0.9 * 1024) > each["after"] <= (prompt or 0)


async def test_whole_call_before_the_end_of_the_window_stays(tmp_path: Path) -> None:
    """Where the limit of restarts ends an answer within its second call, the client gets the first one alone."""
    first = ToolCall("note", {"text": "calm sea"})
    second = ToolCall("note", {"text": long_text(4000, ".\n")})
    tools = [{"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {}}}}]
    body = {**BODY, "tools": tools}
    async with small_window(
        tmp_path, lambda body: Script("I note it.", first, second), window=1024, compaction="max_restarts = 0"
    ) as (served, _):
        chunks = chunks_of(await stream_bytes(served, body))
        async with served.http.post(served.chat_url, json=body) as response:
            [choice] = (await response.json())["choices"]
    assert "raise max_restarts (0)" in [notice for _, notice in notices_of(chunks)][-1]
    for calls in (calls_of(chunks), [call["function"] for call in choice["message"]["tool_calls"]]):
        assert [json.loads(call["arguments"]) for call in calls] == [{"text": "calm sea"}]
