"""The watch over a streaming answer: where it stops near the edge of the window, and that no word is lost there."""

import asyncio
import random
from collections.abc import Iterable, Iterator

import pytest
from vocabulary_kinds import byte_level, write_header

from elbowroom.agents.admission.pool import Pool, Priority, Ticket
from elbowroom.agents.turn.stream import StreamWatch
from elbowroom.context.budget import Budget
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.seam import StopFinder
from elbowroom.tokens.files import StreamCounter
from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.tokenizer import Tokenizer

WINDOW = 1000
PROMPT = 400
SENTENCE = "The boat left the harbour at noon, and nobody saw it again. "
LINE = "- a boat, a rope and 3 bottles\n"
UNBROKEN = "and another boat and "
CODE = "Total += 1000. Then it is more. "


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A byte-level tokenizer with a small vocabulary."""
    path = write_header(tmp_path_factory.mktemp("model") / "m.gguf", byte_level("qwen2"))
    return build_tokenizer(read_gguf_header(path))


def watch_over(tokenizer: Tokenizer, *, said: str = "", prompt: int = PROMPT) -> StreamWatch:
    """Return a watch over an answer to a prompt of this size."""
    manager = AgentContextManager(Budget(WINDOW))
    manager.sent(prompt)
    return StreamWatch(manager, StreamCounter(tokenizer), said)


def deltas_of(text: str, seed: int) -> Iterator[str]:
    """Cut a text into deltas of one to nine characters."""
    chance = random.Random(seed)
    start = 0
    while start < len(text):
        end = start + chance.randint(1, 9)
        yield text[start:end]
        start = end


def heard(watch: StreamWatch, deltas: Iterable[str]) -> str:
    """Stream visible text until the watch stops it; return what belongs to the answer."""
    kept = []
    for delta in deltas:
        watch.count(delta)
        kept.append(watch.keep_text(delta))
        if watch.is_stopped:
            break
    return "".join(kept)


def filled(tokenizer: Tokenizer, text: str, prompt: int = PROMPT) -> float:
    """Return which share of the window a prompt and this text take."""
    return (prompt + tokenizer.count(text)) / WINDOW


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("unit", [SENTENCE, LINE, "灯が見えた。船が出た。"], ids=["sentences", "lines", "japanese"])
def test_an_answer_stops_at_a_good_place(unit: str, seed: int, tokenizer: Tokenizer) -> None:
    """Behind 90 % of the window, the kept text is the answer's beginning up to the end of a sentence or line."""
    text = unit * 200
    watch = watch_over(tokenizer)
    kept = heard(watch, deltas_of(text, seed))
    assert watch.is_stopped
    assert text.startswith(kept)
    assert len(kept) in StopFinder().places(text)
    assert 0.9 - 10 / WINDOW <= filled(tokenizer, kept) < 0.95


@pytest.mark.parametrize("seed", range(5))
def test_without_a_good_place_it_stops_by_force(seed: int, tokenizer: Tokenizer) -> None:
    """A text without sentences is stopped at 95 % of the window, before the next word."""
    text = UNBROKEN * 500
    watch = watch_over(tokenizer)
    kept = heard(watch, deltas_of(text, seed))
    assert watch.is_stopped
    assert text.startswith(kept)
    assert kept.endswith(" ")
    assert 0.95 - 10 / WINDOW <= filled(tokenizer, kept) < 0.95 + 10 / WINDOW


def test_word_without_end_is_stopped_within(tokenizer: Tokenizer) -> None:
    """A text without a blank is not waited for: a little after 95 % of the window it is stopped where it is."""
    watch = watch_over(tokenizer, prompt=940)
    kept = heard(watch, ["a"] * 500)
    assert watch.is_stopped
    assert 0.95 <= filled(tokenizer, kept, prompt=940) < 1


@pytest.mark.parametrize("seed", range(5))
def test_an_answer_that_fits_comes_whole(seed: int, tokenizer: Tokenizer) -> None:
    """Nothing is held back, changed or stopped below 90 % of the window."""
    text = SENTENCE + LINE + "```\n" + CODE + "\n```\n" + UNBROKEN
    while filled(tokenizer, text + text) < 0.89:
        text += text
    deltas = list(deltas_of(text, seed))
    watch = watch_over(tokenizer)
    for delta in deltas:
        watch.count(delta)
        assert watch.keep_text(delta) == delta
    assert not watch.is_stopped
    assert watch.generated == tokenizer.count(text)


@pytest.mark.parametrize("seed", range(5))
def test_code_is_stopped_at_a_line_end(seed: int, tokenizer: Tokenizer) -> None:
    """Within a code fence, even one that was opened long before the edge, only the end of a line is a good place."""
    text = "Look:\n\n```python\n" + f"{CODE}{CODE.rstrip()}\n" * 60
    watch = watch_over(tokenizer)
    kept = heard(watch, deltas_of(text, seed))
    assert watch.is_stopped
    assert text.startswith(kept)
    assert kept.endswith("\n")
    assert filled(tokenizer, kept) < 0.95


def test_a_fence_of_the_part_before_is_remembered(tokenizer: Tokenizer) -> None:
    """What the client has had from an earlier request tells that code goes on; the same words in prose may stop."""
    text = CODE * 200
    in_code = heard(watch_over(tokenizer, said="```python\n"), deltas_of(text, 1))
    in_prose = heard(watch_over(tokenizer, said="Look: "), deltas_of(text, 1))
    assert filled(tokenizer, in_code) >= 0.95
    assert filled(tokenizer, in_prose) < 0.95
    assert in_prose.endswith(". ")


def test_what_was_said_before_is_not_counted_again(tokenizer: Tokenizer) -> None:
    """It stands in the prompt already."""
    watch = watch_over(tokenizer, said=SENTENCE * 100)
    assert watch.generated == 0
    assert heard(watch, [SENTENCE]) == SENTENCE
    assert watch.generated == tokenizer.count(SENTENCE)
    assert not watch.is_stopped


def test_one_large_piece_is_cut_within(tokenizer: Tokenizer) -> None:
    """A delta that passes the edge all by itself is kept up to its first good place."""
    watch = watch_over(tokenizer)
    assert heard(watch, [SENTENCE * 100]) == SENTENCE
    assert watch.is_stopped


def test_a_delta_that_begins_a_sentence_is_left_out(tokenizer: Tokenizer) -> None:
    """A full stop and a space may be the end of a sentence or not: the next letter tells, and is not kept."""
    watch = watch_over(tokenizer, prompt=920)
    assert heard(watch, ["It", " rained", ".", " ", "Then"]) == "It rained. "
    assert watch.is_stopped


@pytest.mark.parametrize(("prompt", "is_stopped"), [(880, False), (920, True), (949, True)])
def test_thoughts_stop_behind_a_line(prompt: int, is_stopped: bool, tokenizer: Tokenizer) -> None:
    """Between 90 and 95 % a line's end stops the thinking, below nothing does."""
    watch = watch_over(tokenizer, prompt=prompt)
    watch.count("Hm.\n")
    watch.pass_thought("Hm.\n")
    assert watch.is_stopped is is_stopped


@pytest.mark.parametrize(("prompt", "is_stopped"), [(920, False), (949, True)])
def test_thoughts_within_a_line_stop_only_by_force(prompt: int, is_stopped: bool, tokenizer: Tokenizer) -> None:
    """The end of a sentence does not stop the thinking; 95 % does."""
    watch = watch_over(tokenizer, prompt=prompt)
    watch.count("Hm. Well")
    watch.pass_thought("Hm. Well")
    assert watch.is_stopped is is_stopped


@pytest.mark.parametrize(
    ("filled", "prompt", "is_stopped"),
    [(949, 824, False), (950, 824, True), (950, 825, False), (999, 825, False)],
)
def test_a_call_is_stopped_only_where_it_must_be(
    filled: int, prompt: int, is_stopped: bool, tokenizer: Tokenizer
) -> None:
    """A call may go on to 95 % of the window, whatever line ends stand in it, or to its end where nothing can go."""
    watch = watch_over(tokenizer, prompt=prompt)
    for _ in range(filled - prompt):
        watch.count("1")
    assert watch.generated == filled - prompt
    watch.pass_call()
    assert watch.is_stopped is is_stopped


def test_everything_generated_counts(tokenizer: Tokenizer) -> None:
    """Thoughts and calls fill the window just as text does, and what comes of them stops the text behind them."""
    thoughts = "I wonder about boats\n" * 20
    call = '{"name": "look"}'
    watch = watch_over(tokenizer, prompt=900 - tokenizer.count(thoughts + call))
    for text, look in ((thoughts, watch.pass_thought), (call, lambda _: watch.pass_call())):
        watch.count(text)
        look(text)
    assert watch.generated == tokenizer.count(thoughts + call)
    watch.count(SENTENCE)
    assert watch.keep_text(f"{SENTENCE}Then") == SENTENCE
    assert watch.is_stopped


@pytest.mark.parametrize("seed", range(5))
def test_count_is_right_however_it_comes(seed: int, tokenizer: Tokenizer) -> None:
    """Asked once or again and again, the watch knows the tokens of the whole."""
    text = SENTENCE * 20 + "灯が見えた。" * 20 + LINE
    often, once = watch_over(tokenizer), watch_over(tokenizer)
    for delta in deltas_of(text, seed):
        often.count(delta)
        once.count(delta)
        assert often.generated > 0
    assert often.generated == once.generated == tokenizer.count(text)


def test_broken_characters_break_nothing(tokenizer: Tokenizer) -> None:
    """Half a surrogate pair, as some servers send it, is counted and kept like any character."""
    watch = watch_over(tokenizer)
    assert heard(watch, ["\ud83d", "\ude00", SENTENCE]) == f"\ud83d\ude00{SENTENCE}"
    assert watch.generated > 0


async def beside(others: int) -> tuple[Pool, Ticket]:
    """Return a pool of the window's size in which others hold so much, and the ticket of an answer to the prompt."""
    pool = Pool(asyncio.get_running_loop())
    pool.ask(WINDOW, Priority.CHAT, others, others)
    return pool, pool.ask(WINDOW, Priority.CHAT, PROMPT + 100, PROMPT)


def watch_with(tokenizer: Tokenizer, ticket: Ticket) -> StreamWatch:
    """Return a watch over the answer that holds this ticket."""
    manager = AgentContextManager(Budget(WINDOW))
    manager.sent(PROMPT)
    return StreamWatch(manager, StreamCounter(tokenizer), "", ticket)


async def test_a_growing_answer_holds_what_it_takes(tokenizer: Tokenizer) -> None:
    """An answer that outgrows its reserve holds more, always as much as has come, up to where it stops anyway."""
    _, ticket = await beside(0)
    watch = watch_with(tokenizer, ticket)
    for delta in deltas_of(SENTENCE * 100, 1):
        watch.count(delta)
        watch.keep_text(delta)
        if watch.is_stopped:
            break
        assert ticket.tokens >= PROMPT + watch.generated
    assert watch.is_stopped
    assert not watch.lacks_room
    assert PROMPT + watch.generated >= Budget(WINDOW).stop_at


async def test_an_answer_stops_where_others_leave_no_room(tokenizer: Tokenizer) -> None:
    """Beside another request an answer ends with a sentence before the window is full for both."""
    others = 350
    pool, ticket = await beside(others)
    watch = watch_with(tokenizer, ticket)
    said = heard(watch, deltas_of(SENTENCE * 100, 2))
    assert watch.is_stopped
    assert watch.lacks_room
    assert said.rstrip().endswith(".")
    assert pool.held <= WINDOW
    assert PROMPT + watch.generated + others <= WINDOW


async def test_an_answer_goes_on_where_room_comes_back(tokenizer: Tokenizer) -> None:
    """Once the others have ended, an answer that was about to stop is not stopped before the window's own edge."""
    pool = Pool(asyncio.get_running_loop())
    other = pool.ask(WINDOW, Priority.CHAT, 400, 400)
    ticket = pool.ask(WINDOW, Priority.CHAT, PROMPT + 100, PROMPT)
    watch = watch_with(tokenizer, ticket)
    for at, delta in enumerate(deltas_of(UNBROKEN * 200, 3)):
        watch.count(delta)
        watch.keep_text(delta)
        if watch.lacks_room:
            pool.free(other)
        if watch.is_stopped:
            break
        assert at < 2000
    assert not watch.lacks_room
    assert PROMPT + watch.generated >= Budget(WINDOW).stop_at


class Uncounting(StreamCounter):
    """A counter that must not be asked."""

    def feed(self, text: str) -> None:
        """Fail."""
        raise AssertionError("the answer is counted far from every edge")


async def test_far_from_the_edge_nothing_is_counted(tokenizer: Tokenizer) -> None:
    """A long answer that nobody is in the way of is held by its bytes; the tokenizer is not asked."""
    window = 100 * WINDOW
    pool = Pool(asyncio.get_running_loop())
    ticket = pool.ask(window, Priority.CHAT, PROMPT + 100, PROMPT)
    manager = AgentContextManager(Budget(window))
    manager.sent(PROMPT)
    watch = StreamWatch(manager, Uncounting(tokenizer), "", ticket)
    text = SENTENCE * 1000
    assert heard(watch, deltas_of(text, 4)) == text
    assert ticket.tokens >= PROMPT + len(text)


async def test_what_is_held_by_bytes_is_given_back_to_others(tokenizer: Tokenizer) -> None:
    """Somebody who needs room gets what an answer holds beyond its tokens, at once."""
    pool = Pool(asyncio.get_running_loop())
    ticket = pool.ask(WINDOW, Priority.CHAT, PROMPT + 20, PROMPT)
    watch = watch_with(tokenizer, ticket)
    heard(watch, deltas_of(SENTENCE * 5, 5))
    held, needed = ticket.tokens, PROMPT + watch.generated
    other = pool.ask(WINDOW, Priority.CHAT, WINDOW - held + 1, 100)
    assert other.state == "held"
    assert needed <= ticket.tokens < held
    assert pool.held <= WINDOW
