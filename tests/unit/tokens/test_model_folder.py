"""Tokenizers and templates from MLX and Hugging Face folders."""

import json
from pathlib import Path

import pytest
from model_folders import CHATML, byte_level_tokenizer, marked_tokenizer, write_folder, write_slow_folder
from text_samples import samples

from elbowroom.tokens.errors import UnreadableModelFile, UnsupportedTokenizer
from elbowroom.tokens.files.folder import read_model_folder
from elbowroom.tokens.files.segments import SegmentCounter
from elbowroom.tokens.files.slow import SlowEngine

CONFIG = {"bos_token": None, "eos_token": {"content": "<|im_end|>"}, "chat_template": "{{ config }}"}


@pytest.mark.slow
def test_ids_are_those_of_transformers(tmp_path: Path) -> None:
    """Every text gets the ids that the Hugging Face library gives it, and no token is added."""
    from transformers import PreTrainedTokenizerFast  # takes a second in each process that collects tests

    folder = write_folder(tmp_path / "model", byte_level_tokenizer(), CONFIG)
    tokenizer = read_model_folder(folder).tokenizer
    oracle = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(folder / "tokenizer.json")
    )
    for text in [*samples(4).values(), "<|im_start|>user\nHi<tool_call><|im_end|>\n"]:
        assert tokenizer.encode(text) == oracle.encode(text, add_special_tokens=False)
    assert (tokenizer.adds_bos, tokenizer.adds_eos) == (False, False)


def test_folder_tells_its_tokens_and_template(tmp_path: Path) -> None:
    """Name, kind, special tokens, BOS and EOS come from the folder's files."""
    text = read_model_folder(write_folder(tmp_path / "Tiny-MLX", byte_level_tokenizer(), CONFIG))
    tokenizer = text.tokenizer
    assert (tokenizer.name, tokenizer.kind) == ("Tiny-MLX", "byte-level")
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("", "<|im_end|>")
    assert tokenizer.special_tokens == {*CHATML, "<tool_call>"}
    assert text.chat_template == "{{ config }}"


def test_template_file_wins_over_the_configuration(tmp_path: Path) -> None:
    """A chat template in a file of its own is the one that counts; others stand beside it."""
    folder = write_folder(tmp_path, byte_level_tokenizer(), CONFIG, chat_template__jinja="{{ file }}")
    more = folder / "additional_chat_templates"
    more.mkdir()
    (more / "tool_use.jinja").write_text("{{ tools }}", encoding="utf-8")
    assert read_model_folder(folder).chat_templates == {"default": "{{ file }}", "tool_use": "{{ tools }}"}


def test_template_may_stand_in_json(tmp_path: Path) -> None:
    """A chat template in a JSON file of its own is read."""
    folder = write_folder(tmp_path, byte_level_tokenizer(), {}, chat_template__json='{"chat_template": "{{ json }}"}')
    assert read_model_folder(folder).chat_template == "{{ json }}"


def test_list_of_templates_is_read(tmp_path: Path) -> None:
    """A configuration with several named templates gives each by its name."""
    templates = [{"name": "default", "template": "one"}, {"name": "rag", "template": "two"}, "no template"]
    folder = write_folder(tmp_path, byte_level_tokenizer(), {"chat_template": templates})
    assert read_model_folder(folder).chat_templates == {"default": "one", "rag": "two"}


def test_tokens_may_stand_in_the_special_tokens_map(tmp_path: Path) -> None:
    """BOS and EOS that only the special tokens map names are found there."""
    named = json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}})
    folder = write_folder(tmp_path, marked_tokenizer(), {}, special_tokens_map__json=named)
    tokenizer = read_model_folder(folder).tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.kind) == ("<s>", "</s>", "sentencepiece")


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    """A tokenizer that was saved with truncation and padding counts all of a text, and no padding."""
    plain, limited = byte_level_tokenizer(), byte_level_tokenizer()
    limited.enable_truncation(4)
    limited.enable_padding(length=64)
    expected = read_model_folder(write_folder(tmp_path / "a", plain, {})).tokenizer
    tokenizer = read_model_folder(write_folder(tmp_path / "b", limited, {})).tokenizer
    for text in samples(4).values():
        assert tokenizer.count(text) == expected.count(text)


def test_pieces_sum_to_the_whole(tmp_path: Path) -> None:
    """The count by pieces is right beside a token that takes the spaces before it along."""
    tokenizer = read_model_folder(write_folder(tmp_path, marked_tokenizer(), {})).tokenizer
    assert "<mask>" in tokenizer.special_tokens - tokenizer.cut_points
    counter = SegmentCounter(tokenizer)
    for text in ("a  <mask> b", "<s>a </s>  <mask><s>\n", *samples(4).values()):
        assert counter.count(text) == tokenizer.count(text)


def test_odd_text_is_counted(tmp_path: Path) -> None:
    """Lone surrogates and NUL are counted like other text."""
    tokenizer = read_model_folder(write_folder(tmp_path, byte_level_tokenizer(), {})).tokenizer
    assert tokenizer.count("a\ud83d\x00") == tokenizer.count("a\ufffd\x00")


BROKEN = {
    "tokenizer.json": [b"", b"{", b"[]", b'{"model": {"type": "BPE"}}', b"\xff\xfe", b"[" * 100_000],
    "tokenizer_config.json": [b"{", b"[]", b"\xff", b"[" * 100_000],
    "chat_template.jinja": [b"\xff\xfe\xfd"],
}


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, all_ in BROKEN.items() for data in all_])
def test_broken_file_is_told(name: str, data: bytes, tmp_path: Path) -> None:
    """A damaged file is an error that names it and says what to do."""
    folder = write_folder(tmp_path / "model", byte_level_tokenizer(), CONFIG)
    (folder / name).write_bytes(data)
    with pytest.raises(UnreadableModelFile) as raised:
        read_model_folder(folder)
    assert str(folder / name) in raised.value.message
    assert "ownload" in raised.value.message


def test_empty_folder_is_told(tmp_path: Path) -> None:
    """A folder without a tokenizer is an error with the name of the file that is missing."""
    with pytest.raises(UnreadableModelFile, match=r"tokenizer\.json"):
        read_model_folder(tmp_path)


@pytest.mark.slow
def test_slow_tokenizer_alone_is_read_by_transformers(tmp_path: Path) -> None:
    """A folder with nothing but vocabulary and merges counts as the same tokenizer in one file does."""
    pytest.importorskip("transformers")
    expected = read_model_folder(write_folder(tmp_path / "fast", byte_level_tokenizer(), CONFIG)).tokenizer
    text = read_model_folder(write_slow_folder(tmp_path / "slow", byte_level_tokenizer()))
    assert (text.tokenizer.kind, text.tokenizer.eos_token, text.chat_template) == (
        "byte-level",
        "<|im_end|>",
        "{{ slow }}",
    )
    assert expected.special_tokens <= text.tokenizer.special_tokens
    for sample in [*samples(4).values(), "<|im_start|>user\nHi<tool_call><|im_end|>\n"]:
        assert text.tokenizer.count(sample) == expected.count(sample)


@pytest.mark.slow
def test_tokenizer_written_in_python_is_run_as_it_is() -> None:
    """A tokenizer that transformers does not convert counts too, special tokens as one token each."""
    transformers = pytest.importorskip("transformers")
    oracle = transformers.CanineTokenizer()
    engine = SlowEngine(oracle)
    assert engine.encode_many(["ab", ""]) == [[97, 98], []]
    assert engine.bytes_held > 0
    assert {token.content for token in engine.added_tokens} == {
        token.content for token in oracle.added_tokens_decoder.values()
    }


def test_slow_tokenizer_needs_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that library the error says what to install."""
    monkeypatch.setattr("elbowroom.tokens.files.slow.find_spec", lambda name: None)
    with pytest.raises(UnsupportedTokenizer, match=r'Install "elbowroom\[transformers\]"'):
        read_model_folder(write_slow_folder(tmp_path, byte_level_tokenizer()))


def test_sentencepiece_file_alone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has its tokenizer only as a SentencePiece file needs `transformers`, and is told so without it."""
    monkeypatch.setattr("elbowroom.tokens.files.slow.find_spec", lambda name: None)
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e")
    with pytest.raises(UnsupportedTokenizer, match=r"has a SentencePiece file, but no tokenizer\.json"):
        read_model_folder(tmp_path)


def test_damaged_slow_tokenizer_is_told(tmp_path: Path) -> None:
    """Files that transformers cannot read are an error with the folder in it."""
    pytest.importorskip("transformers")
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e")
    with pytest.raises(UnreadableModelFile, match="cannot be read by transformers"):
        read_model_folder(tmp_path)
