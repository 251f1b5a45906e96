"""The answer that a person has just read is there for the next message, in whatever words that comes."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from chatting import RAW_MODEL, chunks_of, eventually, finish_of, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import text_of
from small_window import many_words_at_once, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.demo import Script, SimulatedTokenizer
from elbowroom.server.state import SHARED, Timing

NOUNS = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")
QUESTION = "Write the whole log."
DONE = "Everything asked for above is done"
TOKENIZER = SimulatedTokenizer()


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def log_of(words: int) -> str:
    """Return a log of so many words; each sentence stands in it once."""
    sentences = [f"On day {at} the {NOUNS[at % 10]} lay {at * 3 % 17} miles off.\n" for at in range(words // 9 + 1)]
    return "".join(sentences)


def goes_on(text: str) -> Callable[[dict[str, Any]], Script]:
    """Return a model that writes the text, and goes on with it after the last words of it that it sees."""

    def says(body: dict[str, Any]) -> Script:
        last = next((each for each in reversed(body["messages"]) if each["role"] == "assistant"), None)
        return many_words_at_once(text if last is None else rest_of(text, content_of(last)))

    return says


def talk(said: str, last: str | None) -> dict[str, Any]:
    """Return a request after an answer."""
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": said}]
    return {"model": RAW_MODEL, "messages": [*messages, *([{"role": "user", "content": last}] if last else [])]}


@pytest.mark.parametrize("last", ["go on", "weiter", "What became of the boat in the last lines?", None])
@pytest.mark.parametrize(("window", "words"), [(4096, 6000), pytest.param(8192, 6000, marks=pytest.mark.long)])
async def test_next_message_finds_the_end_of_the_answer(
    tmp_path: Path, window: int, words: int, last: str | None
) -> None:
    """Most of the window holds it, and a model that is to go on does so at the next word."""
    text = log_of(2 * words)
    said = " ".join(text.split(" ")[:words]) + " "
    async with small_window(tmp_path, goes_on(text), window=window) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, {**talk(said, last), "max_tokens": 40}))
        [turn] = turns_of(studio)
        assert_fits(turn)
        [end] = [content_of(each) for each in turn.body["messages"] if each["role"] == "assistant"]
        assert said.endswith(end)
        assert len(TOKENIZER.split(end)) >= 0.6 * window
        assert text.startswith(said + text_of(chunks))
        assert text_of(chunks)


@pytest.mark.slow
@pytest.mark.parametrize("window", [4096, pytest.param(8192, marks=pytest.mark.long)])
async def test_end_of_an_answer_that_filled_the_window(tmp_path: Path, window: int) -> None:
    """A chat program that sets no limit has most of the window for it too: no room is kept that could not be enough."""
    text = log_of(12 * window)
    async with small_window(tmp_path, goes_on(text), window=window) as (served, studio):
        first = talk("", None)["messages"][:1]
        said = text_of(chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": first})))
        assert len(TOKENIZER.split(said)) > window
        asked = len(turns_of(studio))
        await stream_bytes(served, talk(said, "go on"))
        turn = turns_of(studio)[asked]
        assert_fits(turn)
        [end] = [content_of(each) for each in turn.body["messages"] if each["role"] == "assistant"]
        assert said.endswith(end)
        assert len(TOKENIZER.split(end)) >= 0.6 * window


STOPPED = [
    (4096, 0, 2500),
    (4096, 0, 4000),
    (4096, 1500, 1000),
    (8192, 0, 6000),
    (8192, 4000, 2000),
    (8192, 4000, 4500),
]
"""Windows, words of the answer before, and of one that is stopped in each window to make room."""


@pytest.mark.parametrize(
    ("last", "stopped"),
    spread(["go on", "continue", "weiter", "What became of the boat in the last lines?", None], STOPPED),
)
async def test_end_of_an_answer_that_was_stopped_to_make_room(
    tmp_path: Path, last: str | None, stopped: tuple[int, int, int]
) -> None:
    """While the person reads, more of it comes back than came after the stop, and the engine reads that ahead."""
    window, earlier, words = stopped
    text = log_of(2 * words)
    said = " ".join(text.split(" ")[:words]) + " "
    before = talk(log_of(earlier).replace("day", "trip"), QUESTION)["messages"][0 if earlier else -1 :]

    def says(body: dict[str, Any]) -> Script:
        texts = [content_of(each) for each in body["messages"]]
        is_next = last in texts or (last is None and body["messages"][-1]["role"] == "assistant")
        whole, begun = text if is_next else said, [each for each in texts if each[-80:] in text]
        return many_words_at_once(rest_of(whole, begun[-1]) if begun else whole)

    async with small_window(tmp_path, says, window=window, timing=Timing(quiet=0.02)) as (served, studio):
        assert text_of(chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": before}))) == said
        stops = len(turns_of(studio))
        assert stops > 1
        background = served.app[SHARED].background
        await eventually(lambda: not background._jobs, "the background never ends")
        ahead, orders = turns_of(studio)[-1], len(orders_of(studio))
        assert ahead.body["max_tokens"] == 1
        asked = talk(said, last)["messages"][1:]
        body = {"model": RAW_MODEL, "messages": [*before, *asked], "max_tokens": 40}
        more = text_of(chunks_of(await stream_bytes(served, body)))
        assert more
        assert text.startswith(said + more)
        assert len(orders_of(studio)) == orders
        turn = turns_of(studio)[stops + 1]
        assert_fits(turn)
        known = ahead.body["messages"][:-1]
        assert turn.body["messages"][: len(known)] == known
        end = [content_of(each) for each in turn.body["messages"] if each["role"] == "assistant"][-1]
        assert said.endswith(end)
        assert len(TOKENIZER.split(end)) >= min(0.6 * window, len(TOKENIZER.split(said)))


async def test_answer_that_a_limit_has_ended_is_not_told_as_done(tmp_path: Path) -> None:
    """The summary that is made while the person reads it says so, and "go on" continues it at the next word."""
    text = log_of(6000)
    async with small_window(tmp_path, goes_on(text), window=4096, compaction="max_restarts = 1") as (served, studio):
        chunks = chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": talk("", None)["messages"][:1]}))
        said, asked = text_of(chunks), len(turns_of(studio))
        assert finish_of(chunks) == "length"
        assert 0 < len(said) < len(text)
        more = text_of(chunks_of(await stream_bytes(served, talk(said, "Please go on with the log where it ended."))))
        assert more
        assert text.startswith(said + more)
        told = "".join(content_of(each) for turn in turns_of(studio)[asked:] for each in turn.body["messages"])
        assert DONE not in told
        assert all("it is not finished" in content_of(order.body["messages"][-1]) for order in orders_of(studio))


@pytest.mark.parametrize(("window", "words"), [(4096, 1850), (8192, 4000)])
async def test_an_answer_that_leaves_room_stays_whole(tmp_path: Path, window: int, words: int) -> None:
    """Its size is what the engine has reported, not a larger estimate: nothing of it goes while it is read."""
    said = log_of(words)
    async with small_window(tmp_path, lambda _: said, window=window, timing=Timing(quiet=0.02)) as (served, studio):
        await stream_bytes(served, {"model": RAW_MODEL, "messages": talk("", None)["messages"][:1]})
        assert len(TOKENIZER.split(said)) >= 0.6 * window
        background = served.app[SHARED].background
        await eventually(lambda: not background._jobs, "the background never ends")
        asked = len(turns_of(studio))
        await stream_bytes(served, {**talk(said, "What became of the boat in the last lines?"), "max_tokens": 40})
        assert said in [content_of(each) for each in turns_of(studio)[asked].body["messages"]]


async def test_an_answer_that_was_stopped_counts_once(tmp_path: Path) -> None:
    """What the prompt of its last part has already is not counted again: nothing is compacted while it is read."""
    text = " ".join(log_of(6000).split(" ")[:5000])
    async with small_window(tmp_path, goes_on(text), window=8192, timing=Timing(quiet=0.02)) as (served, studio):
        await stream_bytes(served, {"model": RAW_MODEL, "messages": talk("", None)["messages"][:1]})
        assert len(turns_of(studio)) > 1
        asked = len(orders_of(studio))
        background = served.app[SHARED].background
        await eventually(lambda: not background._jobs, "the background never ends")
        assert len(orders_of(studio)) == asked


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
async def test_go_on_again_and_again(tmp_path: Path, seed: int) -> None:
    """After an answer of any length, and each part that follows, the next word is the one that is next in the log."""
    chance = Random(seed)
    window, words = chance.choice((4096, 8192)), chance.randint(1000, 6000)
    text = log_of(4 * words + 9000)
    said = " ".join(text.split(" ")[:words]) + " "
    messages = talk(said, None)["messages"]
    async with small_window(tmp_path, goes_on(text), window=window) as (served, studio):
        for _ in range(4):
            messages = [*messages, {"role": "user", "content": chance.choice(("go on", "continue", "weiter"))}]
            most = chance.randint(40, window // 2)
            chunks = chunks_of(
                await stream_bytes(served, {"model": RAW_MODEL, "messages": messages, "max_tokens": most})
            )
            more = text_of(chunks)
            said += more
            assert more
            assert text.startswith(said), (window, words, most)
            messages = [*messages, {"role": "assistant", "content": more}]
        for turn in turns_of(studio):
            assert_fits(turn)
