"""Tokenizers built from GGUF files: special tokens, odd text, and a clear word where a kind is not known."""

from pathlib import Path

import pytest
from cases import case
from gguf import GGUFValueType
from gguf_kinds import SPLIT_KINDS, built
from gguf_metadata import Entry
from text_samples import samples
from vocabularies import Vocabulary
from vocabulary_kinds import (
    CONTROL,
    NORMAL,
    byte_level,
    gemma4,
    sentencepiece,
    vocabulary,
    wordpiece,
    write_header,
)

from elbowroom.tokens.errors import TokenizerError, UnreadableModelFile, UnsupportedTokenizer
from elbowroom.tokens.files.engines import FastBpe
from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import model_text
from elbowroom.tokens.files.special_tokens import SPLIT_PATTERNS

ALL_KINDS = {
    "byte-level": lambda: byte_level("qwen2"),
    "sentencepiece": sentencepiece,
    "gemma4": gemma4,
    "wordpiece": wordpiece,
}


def with_tokens(tables: Vocabulary, *texts: str) -> Vocabulary:
    """Return a vocabulary with more ordinary tokens at its end."""
    tokens = [*tables.tokens, *texts]
    entries = dict(tables.entries)
    entries["tokenizer.ggml.tokens"] = Entry(tokens, GGUFValueType.ARRAY, GGUFValueType.STRING)
    types = [*entries["tokenizer.ggml.token_type"].value, *[NORMAL] * len(texts)]  # type: ignore[misc]
    entries["tokenizer.ggml.token_type"] = Entry(types, GGUFValueType.ARRAY, GGUFValueType.INT32)
    return Vocabulary(entries)


@pytest.mark.slow
def test_fast_path_equals_the_merges(tmp_path: Path) -> None:
    """However words are split, the fast path gives the ids that the merges give."""
    for pre in SPLIT_KINDS:
        with case(pre):
            tables = byte_level(pre, size=900)
            fast, slow = built(tmp_path, tables), built(tmp_path, tables, fast=False)
            assert isinstance(fast.engine, FastBpe) is (SPLIT_PATTERNS[pre].joined is not None)
            assert not isinstance(slow.engine, FastBpe)
            for text in samples(5).values():
                assert fast.encode(text) == slow.encode(text)


def test_fast_path_is_declined_for_merges_out_of_order(tmp_path: Path) -> None:
    """Merges that do not follow the ids are left to the library, which goes by their order."""
    tables = byte_level("qwen2", size=900)
    merges = tables.entries["tokenizer.ggml.merges"].value
    backwards = Entry(list(reversed(merges)), GGUFValueType.ARRAY, GGUFValueType.STRING)  # type: ignore[arg-type]
    tables = Vocabulary({**tables.entries, "tokenizer.ggml.merges": backwards})
    assert not isinstance(built(tmp_path, tables).engine, FastBpe)


def test_token_without_a_merge_is_never_made(tmp_path: Path) -> None:
    """A token that no merge makes is not in the result, though its text is in the input."""
    tables = with_tokens(byte_level("qwen2", size=900), "zqxjkv")
    for fast in (True, False):
        tokenizer = built(tmp_path, tables, fast=fast)
        assert len(tables.tokens) - 1 not in tokenizer.encode("zqxjkv zqxjkv")


def test_whole_word_token_is_taken_where_the_kind_says_so(tmp_path: Path) -> None:
    """Kinds that ignore the merges take a word that is a token as it stands, and the others do not."""
    for pre, expected in (("llama-bpe", True), ("qwen2", False)):
        tables = with_tokens(byte_level(pre, size=900), "zqxjkv")
        assert (built(tmp_path, tables).encode("zqxjkv") == [len(tables.tokens) - 1]) is expected


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_any_text_can_be_counted(kind: str, tmp_path: Path) -> None:
    """Halves of surrogate pairs, NUL and nothing at all are counted like other text."""
    tokenizer = built(tmp_path, ALL_KINDS[kind]())
    assert tokenizer.count("") == 0
    assert tokenizer.count("a\ud83d b") == tokenizer.count("a\ufffd b")
    assert tokenizer.count("\ud83d\ude42") == tokenizer.count("🙂")
    assert tokenizer.count("a\x00b") >= 1
    parts = tokenizer.count_spans("a b\udfff", [(0, 3), (3, 3), (3, 4)])
    assert parts == [tokenizer.count(text) for text in ("a b", "", "\udfff")]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_special_tokens_are_one_token_each(kind: str, tmp_path: Path) -> None:
    """Every special token is recognised in the middle of text, and is one token."""
    tokenizer = built(tmp_path, ALL_KINDS[kind]())
    assert tokenizer.special_tokens
    for special in tokenizer.special_tokens:
        assert tokenizer.count(special) == 1
        (number,) = tokenizer.encode(special)
        assert tokenizer.encode(f"a{special}b{special}").count(number) == 2


def test_end_of_answer_is_special_whatever_the_file_says(tmp_path: Path) -> None:
    """An ordinary token whose text ends an answer is a special token, as it is for llama.cpp."""
    tables = with_tokens(byte_level("qwen2", size=900), "</s>", "<|fim_prefix|>", "<|message|>")
    tokenizer = built(tmp_path, tables)
    assert {"</s>", "<|fim_prefix|>", "<|message|>"} <= tokenizer.special_tokens
    assert tokenizer.count("x</s>") == 2


def test_fill_in_the_middle_token_of_the_file_wins(tmp_path: Path) -> None:
    """Where the file names its own token, others that look like it stay ordinary text."""
    tables = with_tokens(byte_level("qwen2", size=900), "<PRE>")
    entry = Entry(tables.tokens.index("<tool_call>"), GGUFValueType.UINT32)
    tables = Vocabulary({**tables.entries, "tokenizer.ggml.fim_pre_token_id": entry})
    assert "<PRE>" not in built(tmp_path, tables).special_tokens


@pytest.mark.slow
def test_phi3_swallows_spaces_after_special_tokens(tmp_path: Path) -> None:
    """Phi 3, known by its name, takes the spaces after a special token along."""
    plain, phi = built(tmp_path, sentencepiece()), built(tmp_path, sentencepiece(), name="Phi-3 mini")
    assert phi.count("</s> \n a") < plain.count("</s> \n a")
    assert phi.count("<s> \n a") == plain.count("<s> \n a")


def test_bos_is_added_once(tmp_path: Path) -> None:
    """The engine's BOS counts for a prompt without one, and not for a prompt that begins with it."""
    tokenizer = built(tmp_path, sentencepiece())
    assert (tokenizer.adds_bos, tokenizer.bos_token, tokenizer.eos_token) == (True, "<s>", "</s>")
    assert tokenizer.added_tokens("Hello") == 1
    assert tokenizer.added_tokens("<s>Hello") == 0


@pytest.mark.parametrize(
    ("pre", "expected"), [("llama-bpe", True), ("tekken", True), ("qwen2", False), ("gpt-2", False)]
)
def test_bos_follows_the_kind_where_the_file_is_silent(pre: str, expected: bool, tmp_path: Path) -> None:
    """Without a word in the file the kind decides whether a BOS is added; a word in the file wins."""
    tables = byte_level(pre, size=400)
    assert built(tmp_path, tables).adds_bos is expected
    entry = Entry(not expected, GGUFValueType.BOOL)
    tables = Vocabulary({**tables.entries, "tokenizer.ggml.add_bos_token": entry})
    assert built(tmp_path, tables).adds_bos is not expected


def test_unknown_split_rules_are_named(tmp_path: Path) -> None:
    """A kind of word splitting that is not known is an error with its name, and no guess."""
    with pytest.raises(UnsupportedTokenizer, match="'brand-new-2030'"):
        built(tmp_path, byte_level("brand-new-2030", size=400))


@pytest.mark.parametrize("model", ["t5", "rwkv", "plamo2", "something"])
def test_unknown_algorithm_is_named(model: str, tmp_path: Path) -> None:
    """An algorithm that is not known is an error with its name."""
    with pytest.raises(UnsupportedTokenizer, match=f"'{model}'"):
        built(tmp_path, vocabulary(model, "", ["a", "b"], [NORMAL, NORMAL], {}))


def test_file_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    """A later part of a split model has no tokenizer; the error says to name the first."""
    with pytest.raises(UnreadableModelFile, match="name the first one"):
        built(tmp_path, Vocabulary({}))


def test_millions_of_special_characters_are_refused(tmp_path: Path) -> None:
    """A file whose special tokens would take gigabytes to look for is refused by name."""
    tokens = [f"{number:04}" + "x" * 4000 for number in range(600)]
    with pytest.raises(UnsupportedTokenizer, match="600 special tokens"):
        built(tmp_path, vocabulary("gpt2", "qwen2", tokens, [CONTROL] * 600, {}))


def test_no_bos_is_added_where_there_is_none(tmp_path: Path) -> None:
    """A model without a BOS token gets none, whatever its kind usually does."""
    tables = byte_level("glm4", size=400)
    entries = {key: entry for key, entry in tables.entries.items() if "bos" not in key}
    entries["tokenizer.ggml.add_bos_token"] = Entry(True, GGUFValueType.BOOL)
    tokenizer = built(tmp_path, Vocabulary(entries))
    assert (tokenizer.adds_bos, tokenizer.bos_token) == (False, "")


def test_wordpiece_without_an_unknown_token_is_told(tmp_path: Path) -> None:
    """WordPiece needs a token for what it does not know; a file without one is refused when it is loaded."""
    with pytest.raises(TokenizerError):
        built(tmp_path, vocabulary("bert", "", ["[CLS]", "\u2581a"], [CONTROL, NORMAL], {}))


def test_model_text_carries_tokenizer_and_template(tmp_path: Path) -> None:
    """Beside the tokenizer there is the chat template."""
    path = write_header(tmp_path / "m.gguf", byte_level("qwen2", size=400), template="{{ messages }}")
    result = model_text(read_gguf_header(path))
    assert (result.chat_template, result.tokenizer.name) == ("{{ messages }}", "tiny")
