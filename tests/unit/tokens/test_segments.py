"""Counting a prompt by its pieces: equal to the whole, cheap for what is known, bounded, safe in threads."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from text_samples import prose, samples
from vocabularies import Vocabulary
from vocabulary_kinds import byte_level, gemma4, sentencepiece, wordpiece, write_header

from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.segments import SegmentCounter
from elbowroom.tokens.files.tokenizer import Engine, Tokenizer, special_token_pattern

KINDS: dict[str, tuple[Callable[[], Vocabulary], str, bool]] = {
    "byte-level, fast": (lambda: byte_level("qwen2"), "tiny", True),
    "byte-level, by merges": (lambda: byte_level("qwen2"), "tiny", False),
    "sentencepiece": (sentencepiece, "tiny", True),
    "sentencepiece that strips spaces": (sentencepiece, "phi-3", True),
    "gemma4": (gemma4, "tiny", True),
    "wordpiece": (wordpiece, "tiny", True),
}


class WatchedEngine:
    """An engine that notes the texts that it is asked for."""

    bytes_held = 0

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: list[str] = []

    def encode(self, text: str) -> list[int]:
        """Pass one text on."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Note the texts and pass them on."""
        self.asked += texts
        return self._engine.encode_many(texts)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer of each kind."""
    make, name, fast = KINDS[request.param]
    file = write_header(tmp_path_factory.mktemp("kind") / "m.gguf", make(), name=name)
    return build_tokenizer(read_gguf_header(file), fast=fast)


def chat(tokenizer: Tokenizer, messages: int, seed: int = 1) -> str:
    """Return a prompt of many messages between special tokens, spaces and odd text beside them."""
    chance = random.Random(seed)
    marks = sorted(tokenizer.special_tokens)
    texts = [*samples(seed).values(), prose(seed, 30), " ", "\n", "  a", ""]
    return "".join(chance.choice(marks) + chance.choice(texts)[: chance.randint(0, 300)] for _ in range(messages))


def test_sum_of_pieces_is_the_whole(tokenizer: Tokenizer) -> None:
    """The count by pieces is the tokenizer's own, on first sight and when all is known."""
    counter = SegmentCounter(tokenizer)
    for seed in range(6):
        prompt = chat(tokenizer, 60, seed)
        assert "".join(counter.pieces(prompt)) == prompt
        assert counter.count(prompt) == tokenizer.count(prompt) == counter.count(prompt)


def test_growing_prompt_counts_only_what_is_new(tokenizer: Tokenizer) -> None:
    """After one exchange more, only its own pieces are tokenized."""
    engine = WatchedEngine(tokenizer.engine)
    watched = replace(tokenizer, engine=engine)
    counter = SegmentCounter(watched)
    prompt = f"{chat(tokenizer, 200)} {prose(1, 30)}"
    counter.count(prompt)
    engine.asked.clear()
    mark = max(tokenizer.special_tokens, key=len)
    assert counter.count(f"{prompt}{mark}one more{mark}answer") == tokenizer.count(
        f"{prompt}{mark}one more{mark}answer"
    )
    assert engine.asked == [f"{mark}one more", f"{mark}answer"]


def test_memory_is_bounded(tokenizer: Tokenizer) -> None:
    """The pieces used last are remembered, and no more than the capacity."""
    engine = WatchedEngine(tokenizer.engine)
    counter = SegmentCounter(replace(tokenizer, engine=engine), capacity=10)
    mark = sorted(tokenizer.special_tokens)[0]
    for number in range(50):
        counter.count(f"{mark}first{mark}text {number}")
    assert len(counter._counts) == 10
    assert engine.asked.count(f"{mark}first") == 1


def test_many_threads_count_alike(tokenizer: Tokenizer) -> None:
    """Threads that share a counter and its small memory all get the right counts."""
    counter = SegmentCounter(tokenizer, capacity=40)
    prompts = [chat(tokenizer, 40, seed) for seed in range(8)]
    expected = [tokenizer.count(prompt) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(counter.count, prompts * 5))
    assert results == expected * 5


def test_prompt_includes_what_the_engine_adds(tokenizer: Tokenizer) -> None:
    """The count of a prompt has the engine's BOS and EOS in it."""
    counter = SegmentCounter(tokenizer)
    assert counter.count_prompt("Hello") == tokenizer.count("Hello") + tokenizer.added_tokens("Hello")


def test_odd_text_is_counted(tokenizer: Tokenizer) -> None:
    """Nothing, lone surrogates and NUL are counted as the tokenizer counts them."""
    counter = SegmentCounter(tokenizer)
    for text in ("", "\ud83d", "a\x00b", "<|im_start|"):
        assert counter.count(text) == tokenizer.count(text)


def test_longest_special_token_is_found_first() -> None:
    """Of special tokens that begin alike the longest is found, and signs in them mean themselves."""
    pattern = special_token_pattern(["<a>", "<a>+", "<a>+b", "[x]", "a.c", "a"])
    assert pattern is not None
    assert pattern.findall("<a>+b <a>+ <a> [x] x a.c abc") == ["<a>+b", "<a>+", "<a>", "[x]", "a.c", "a"]
    assert special_token_pattern([]) is None


def test_long_runs_may_be_special_tokens() -> None:
    """Special tokens that are runs of one character, up to hundreds long, are found, the longest first."""
    pattern = special_token_pattern([" " * length for length in range(2, 600)])
    assert pattern is not None
    assert [len(run) for run in pattern.findall(f"a b{'':599}c{'':900}d{'':7}")] == [599, 599, 301, 7]
