"""Runs of one character, however long: counted like shorter ones, and a library that gives up is an error in words."""

from itertools import product
from pathlib import Path

import pytest
import tiktoken
from cases import case
from gguf_kinds import SPLIT_KINDS, built
from spread_variants import sample
from text_samples import samples
from vocabulary_kinds import byte_level

from elbowroom.tokens.count import CannotCount
from elbowroom.tokens.errors import TokenizerFailed
from elbowroom.tokens.families.vocabularies import VOCABULARIES, VocabularyName, bundled_tokenizer
from elbowroom.tokens.file_counter import CountingTools, FileCounter
from elbowroom.tokens.files import engines
from elbowroom.tokens.files import tokenizer as tokenizer_module
from elbowroom.tokens.files.engines import FastBpe
from elbowroom.tokens.files.special_tokens import SPLIT_PATTERNS

FAST_KINDS = [pre for pre in SPLIT_KINDS if SPLIT_PATTERNS[pre].joined is not None]
RUNS = {
    "spaces": " ",
    "tabs": "\t",
    "no-break spaces": "\u00a0",
    "ideographic spaces": "\u3000",
    "new lines": "\n",
    "lines of Windows": "\r\n",
    "spaces and tabs": " \t",
    "letters": "a",
    "digits": "7",
    "Chinese": "\u4e2d",
    "emoji": "\U0001f600",
    "combining marks": "\u0301",
    "signs": "!",
}
ENDS = ("", "x", "7", "\u4e2d", "!", "\n", " \n x")
PANICS = 1_000_000
"""So many places to go back to are too many for the library that splits words."""


@pytest.mark.slow
@pytest.mark.fault("run of a million spaces", "first", "counted as the engine does")
@pytest.mark.parametrize(("name", "character"), [("qwen", " "), ("o200k", "\t"), ("tekken", "\u00a0")])
def test_a_million_spaces_are_counted(name: VocabularyName, character: str) -> None:
    """A run that the library cannot cut in one go takes a hundred times the tokens of a hundredth of it, nearly."""
    tokenizer = bundled_tokenizer(name, frozenset())
    short = tokenizer.count(f"x{character * (PANICS // 100)}x")
    assert tokenizer.count(f"x{character * PANICS}x") == pytest.approx(100 * short, rel=0.05, abs=300)


@pytest.mark.parametrize("pre", sample(FAST_KINDS, *FAST_KINDS[::4]))
def test_runs_are_cut_where_the_merges_cut_them(pre: str, tmp_path: Path) -> None:
    """Around every length at which spaces are taken in steps, the fast path gives the ids that the merges give."""
    tables = byte_level(pre, size=900)
    fast, slow = built(tmp_path, tables), built(tmp_path, tables, fast=False)
    assert isinstance(fast.engine, FastBpe)
    lengths = (1, 2, 127, 128, 129, 130, 255, 256, 257, 258, 384, 513)
    around = [(start, end) for start in ("", "x", "!") for end in ENDS]
    texts = [
        f"{start}{character * length}{end}"
        for at, (length, character) in enumerate(product(lengths, RUNS.values()))
        for start, end in around[at % 3 :: 3]
    ]
    assert fast.engine.encode_many(texts) == slow.engine.encode_many(texts)


@pytest.mark.long
@pytest.mark.parametrize("run", RUNS)
def test_long_runs_of_every_kind_are_cut_as_the_merges_cut_them(run: str, tmp_path: Path) -> None:
    """Ten thousand, a hundred thousand and a million characters, by every way to split words."""
    for pre in FAST_KINDS:
        tables = byte_level(pre, size=900)
        fast, slow = built(tmp_path, tables), built(tmp_path, tables, fast=False)
        for length in (10_000, 100_000, PANICS):
            with case(f"{pre} {length}"):
                text = f"x{RUNS[run] * (length // len(RUNS[run]))}x"
                assert fast.count(text) == slow.count(text)


@pytest.mark.parametrize(
    "pre",
    [
        pytest.param(pre, marks=pytest.mark.slow if pre in ("afmoe", "cohere2moe") else pytest.mark.long)
        for pre in SPLIT_KINDS
    ],
)
def test_no_way_to_split_words_gives_up_on_a_million_characters(pre: str, tmp_path: Path) -> None:
    """Kinds without the fast path count such runs as well, in seconds; those first that group digits from the right."""
    tokenizer = built(tmp_path, byte_level(pre, size=900))
    for run, characters in RUNS.items():
        with case(run):
            assert tokenizer.count(characters * (PANICS // len(characters))) > 0


@pytest.mark.slow
def test_a_long_text_is_counted_in_parts_with_the_same_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are cut where no token reaches across, in every kind of text; all together are the text."""
    monkeypatch.setattr(tokenizer_module, "PART", 200)
    for name in VOCABULARIES:
        tokenizer = bundled_tokenizer(name, frozenset())
        for kind, text in samples(3).items():
            with case(f"{name} {kind}"):
                parts = list(tokenizer_module.in_parts(text))
                assert "".join(parts) == text
                assert tokenizer.count(text) == len(tokenizer.encode(text))
        assert len(list(tokenizer_module.in_parts(samples(3)["prose"]))) > 3


def giving_up() -> FastBpe:
    """Return an engine whose library panics at a million spaces."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("panics", pat_str=r"\S+|\s+(?!\S)|\s", mergeable_ranks=ranks, special_tokens={})
    return FastBpe(encoding, {})


def test_a_panic_of_a_library_is_an_error_of_ours() -> None:
    """A panic is no Exception, and would end whoever waits for the count."""
    with pytest.raises(TokenizerFailed, match="The tokenizer's library cannot cut a text into tokens"):
        giving_up().encode(f"x{' ' * PANICS}x")


async def test_a_count_that_panics_is_left_to_the_next_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's file whose tokenizer gives up on a text cannot count it, and says so."""
    monkeypatch.setattr(engines, "SPACES_IN_STEPS", engines.SPACES_TO_COME)
    monkeypatch.setattr(tokenizer_module, "LONGEST_PART", PANICS + 100)
    built(tmp_path, byte_level("qwen2", size=900))
    tools = CountingTools()
    counter = FileCounter(tmp_path / "m.gguf", tools.loader, tools.renderer)
    text = f"x{' ' * PANICS}x"
    with pytest.raises(CannotCount, match="cannot cut a text"):
        await counter.count_text(text)
    with pytest.raises(CannotCount, match="cannot cut a text"):
        await counter.count_chat([{"role": "user", "content": text}], (), {})
    await tools.aclose()
