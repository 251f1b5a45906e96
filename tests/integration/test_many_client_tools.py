"""Thirty-six tools of the client take most of a window of 8,192 tokens, as Open WebUI's do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, chunks_of, finish_of, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import text_of
from small_window import ANSWER, small_window, turns_of

from elbowroom.demo.journal import RecordedRequest

WINDOW = 8192
REQUEST = "Say all the words about the ferry, from the first to the last."
N = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
EARLIER = "Say exactly 500 words about the harbour."


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def tools(words: int, parameters_each: int = 1) -> list[dict[str, Any]]:
    """Return thirty-six tools with descriptions of so many words."""
    description = " ".join(["notes"] * words)
    queries = {f"query{'s' * number}": {"type": "string"} for number in range(parameters_each)}
    parameters = {"type": "object", "properties": queries}
    return [
        {"type": "function", "function": {"name": f"tool_{n}", "description": description, "parameters": parameters}}
        for n in range(36)
    ]


@pytest.mark.parametrize("sentences", [13, 56], ids=["94 tokens", "395 tokens"])
@pytest.mark.parametrize("words", [95, 105, 112])
async def test_small_result_stays_whole(tmp_path: Path, words: int, sentences: int) -> None:
    """It fits what is free of the window, though tools and conversation have passed the trigger."""
    result = "The last ferry leaves at nine. " * sentences
    call = {"id": "call00001", "type": "function", "function": {"name": "tool_1", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "When does the last ferry leave?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "content": result},
    ]
    async with small_window(tmp_path, window=WINDOW, server='client_tools = "pass"') as (served, studio):
        body = {"model": RAW_MODEL, "messages": messages, "tools": tools(words), "stream": True}
        assert text_of(chunks_of(await stream_bytes(served, body))) == ANSWER
        [turn] = turns_of(studio)
        assert (turn.counted_tokens or 0) > WINDOW // 2
        assert content_of(turn.body["messages"][-1]) == result
        assert_fits(turn)


async def test_tools_are_shortened_also_after_one_of_them_was_forced(tmp_path: Path) -> None:
    """How large all of them are is not taken from a request in which the model was told of one alone."""
    many = tools(250)
    choice = {"type": "function", "function": {"name": "tool_1"}}
    body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": REQUEST}], "tools": many, "stream": True}
    async with small_window(tmp_path, window=WINDOW) as (served, studio):
        await stream_bytes(served, body | {"tool_choice": choice})
        assert text_of(chunks_of(await stream_bytes(served, body))) == ANSWER
        forced, free = turns_of(studio)
        assert [len(turn.body["tools"]) for turn in (forced, free)] == [1, len(many)]
        assert_fits(free)


@pytest.mark.parametrize("restarts", [1, pytest.param(3, marks=pytest.mark.long), 5])
async def test_what_is_summarised_stands_before_the_request(tmp_path: Path, restarts: int) -> None:
    """After each restart of its answer the request that is being answered is the last one that the model reads."""
    lines = "".join(f"Boat {number} left the pier.\n" for number in range(restarts * 75 + 60))
    messages = [
        {"role": "user", "content": EARLIER},
        {"role": "assistant", "content": "The harbour is old. " * 40},
        {"role": "user", "content": REQUEST},
    ]

    def says(body: dict[str, Any]) -> str:
        is_first = content_of(body["messages"][-1]) == REQUEST
        return lines if is_first else rest_of(lines, content_of(body["messages"][-2]))

    setting = f"max_restarts = {restarts + 2}"
    async with small_window(tmp_path, says, window=1024, compaction=setting) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": messages, "stream": True}))
        assert (text_of(chunks), finish_of(chunks)) == (lines, "stop")
        later = turns_of(studio)[1:]
        assert len(later) >= restarts
        for turn in later:
            texts = [content_of(message) for message in turn.body["messages"]]
            summaries = [at for at, text in enumerate(texts) if "<elbowroom-summary>" in text]
            assert summaries[-1] < texts.index(REQUEST)
            assert EARLIER not in texts[texts.index(REQUEST) :]
            assert_fits(turn)


def all_words(between: str) -> str:
    """Return 2,400 words, twelve after each other without an end of a sentence or a line."""
    lines = (f"{N[n // 100]} {N[n // 10 % 10]} {N[n % 10]} boats left the pier at noon in the rain" for n in range(200))
    return between.join(lines)


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of an answer, and the requests upstream."""

    text: str
    finish: str | None
    turns: list[RecordedRequest]

    @property
    def generated(self) -> list[int]:
        """Return how many tokens each request has brought."""
        return [turn.completion_tokens or 0 for turn in self.turns]


async def heard(folder: Path, said: str, window: int, tools: list[dict[str, Any]], most: int = 3) -> Heard:
    """Ask for this text beside these tools, whose descriptions stay as they are, with at most so many restarts."""
    messages = [
        {"role": "user", "content": EARLIER},
        {"role": "assistant", "content": "The harbour is old. " * 40},
        {"role": "user", "content": REQUEST},
    ]

    def says(body: dict[str, Any]) -> str:
        is_first = content_of(body["messages"][-1]) == REQUEST
        return said if is_first else rest_of(said, content_of(body["messages"][-2])).lstrip()

    compaction, server = f"max_restarts = {most}", 'client_tools = "pass"'
    async with small_window(folder, says, window=window, compaction=compaction, server=server) as (served, studio):
        body = {"model": RAW_MODEL, "messages": messages, "tools": tools, "stream": True}
        chunks = chunks_of(await stream_bytes(served, body))
        turns = turns_of(studio)
        for turn in turns:
            assert_fits(turn)
        return Heard(text_of(chunks), finish_of(chunks), turns)


@pytest.mark.parametrize("between", ["\n", " "], ids=["lines", "one line"])
async def test_three_restarts_bring_a_long_answer_to_its_end(tmp_path: Path, between: str) -> None:
    """Beside tools that take three quarters of the window each restart makes half of the rest free, and more.

    The model that goes on writes no blank first: no two words are glued to each other.
    """
    said = all_words(between)
    assert len(said.split()) == 2400
    answer = await heard(tmp_path, said, WINDOW, tools(32, 4))
    first, *restarted = answer.turns
    fixed = (first.counted_tokens or 0) - 200  # the earlier exchange
    assert fixed > 0.75 * WINDOW
    assert (answer.text == said, answer.finish) == (True, "stop"), answer.generated
    for turn in restarted:
        assert 0.9 * WINDOW - (turn.counted_tokens or 0) > (0.9 * WINDOW - fixed) / 2


@pytest.mark.long
@pytest.mark.parametrize(("window", "words"), [(4096, 1), (8192, 60), (8192, 80), (8192, 95)])
async def test_long_answer_arrives_to_the_last_word(tmp_path: Path, window: int, words: int) -> None:
    """2,400 words come once and whole, also where tools leave a tenth of the window; no restart brings just a word."""
    said = all_words("\n")
    answer = await heard(tmp_path, said, window, tools(words), most=10)
    assert (answer.text == said, answer.finish) == (True, "stop"), answer.generated
    assert min(answer.generated[:-1]) > 100, answer.generated


async def test_answer_for_which_three_restarts_are_too_few_is_told_how_to_go_on(tmp_path: Path) -> None:
    """All that came of it is a beginning of the text, and a line says what to do."""
    said = all_words("\n")
    answer = await heard(tmp_path, said, 4096, tools(1))
    assert answer.finish == "length"
    assert said.startswith(answer.text)
    assert min(answer.generated[1:]) > 150
