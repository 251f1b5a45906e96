"""The running count of an answer: right at any moment, however it is cut into chunks."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from cases import case
from text_samples import prose, samples, unbroken
from vocabulary_kinds import byte_level, gemma4, sentencepiece, write_header

from elbowroom.tokens.files import StreamCounter
from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.tokenizer import Engine, Tokenizer

KINDS = {"byte-level": lambda: byte_level("qwen2"), "sentencepiece": sentencepiece, "gemma4": gemma4}


class MeasuredEngine:
    """An engine that adds up how many characters it is given."""

    bytes_held = 0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.characters = 0

    def encode(self, text: str) -> list[int]:
        """Pass one text on."""
        self.characters += len(text)
        return self._engine.encode(text)

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Pass texts on."""
        self.characters += sum(map(len, texts))
        return self._engine.encode_many(texts)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer of each kind that answers are written with."""
    file = write_header(tmp_path_factory.mktemp("kind") / "m.gguf", KINDS[request.param]())
    return build_tokenizer(read_gguf_header(file))


def chunks(text: str, seed: int = 1) -> Iterator[str]:
    """Cut a text into chunks of one to eight characters."""
    chance = random.Random(seed)
    start = 0
    while start < len(text):
        end = start + chance.randint(1, 8)
        yield text[start:end]
        start = end


def test_count_is_that_of_the_whole(tokenizer: Tokenizer) -> None:
    """A text that has places to cut is counted exactly, in whatever chunks it comes."""
    for kind in [kind for kind, text in samples().items() if text]:
        with case(kind):
            text = samples(7)[kind] * 3
            counter = StreamCounter(tokenizer)
            for chunk in chunks(text):
                counter.feed(chunk)
            assert counter.value == tokenizer.count(text)


def test_count_is_right_at_every_moment(tokenizer: Tokenizer) -> None:
    """The value after each chunk is the count of the text so far, and the bound is never below it."""
    counter, text = StreamCounter(tokenizer), ""
    for chunk in chunks(prose(3, 200)):
        counter.feed(chunk)
        text += chunk
        assert counter.value == tokenizer.count(text)
        assert counter.at_most >= counter.value


def test_forced_cut_costs_a_token_at_most(tokenizer: Tokenizer) -> None:
    """Thousands of characters without a place to cut are counted with an error of a token for each forced cut."""
    text = unbroken(4, 20_000)
    counter = StreamCounter(tokenizer)
    for chunk in chunks(text):
        counter.feed(chunk)
    expected = tokenizer.count(text)
    assert expected <= counter.value <= expected + 5


def test_every_character_is_counted_once(tokenizer: Tokenizer) -> None:
    """A long answer is tokenized once in all, not again with every chunk."""
    engine = MeasuredEngine(tokenizer.engine)
    counter = StreamCounter(replace(tokenizer, engine=engine))
    text = prose(5, 3000)
    for chunk in chunks(text):
        counter.feed(chunk)
    assert engine.characters <= 1.1 * len(text)


def test_nothing_yet_is_no_token(tokenizer: Tokenizer) -> None:
    """Before the first chunk, and after empty ones, the value is 0."""
    counter = StreamCounter(tokenizer)
    counter.feed("")
    assert counter.value == 0
    assert counter.at_most >= 0


def test_odd_chunks_are_counted(tokenizer: Tokenizer) -> None:
    """Halves of a surrogate pair in two chunks count as the one character that they are."""
    counter = StreamCounter(tokenizer)
    for chunk in ("a ", "\ud83d", "\ude42", "\x00"):
        counter.feed(chunk)
    assert counter.value == tokenizer.count("a 🙂\x00")
