"""A `tokenizer.json` that somebody made to do harm: refused, or its counts fail in words; nothing grows or hangs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_folders import byte_level_tokenizer, marked_tokenizer, write_folder

from elbowroom.tokens.errors import TokenizerFailed, UnreadableModelFile
from elbowroom.tokens.files import folder as reading
from elbowroom.tokens.files.folder import read_model_folder

Changes = dict[str, Any]
LONGER = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 20}
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def written(folder: Path, changes: Changes) -> Path:
    """Write a folder whose tokenizer has other parts in the place of its own."""
    write_folder(folder, byte_level_tokenizer(), {})
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")
    return folder


def split_by(pattern: str) -> Changes:
    """Return what cuts words by a pattern."""
    return {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}}


@pytest.mark.threat("tokenizer.json", "one that makes a text much longer is refused")
@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Sequence", "normalizers": [LONGER] * 6},
        {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [LONGER]}, LONGER]},
        {"type": "Prepend", "prepend": "x" * 100_000},
        {"type": "Replace", "pattern": {"Regex": ""}, "content": "x" * 1000},
        {"type": "Replace", "pattern": {"String": ""}, "content": "x" * 1000},
    ],
    ids=["many times", "nested", "in front", "between letters", "at nothing"],
)
def test_one_that_makes_a_text_longer_is_refused(tmp_path: Path, normalizer: Changes) -> None:
    """A few letters would take all memory there is, and the process with it: the file is not used."""
    with pytest.raises(UnreadableModelFile, match="times as long") as refused:
        read_model_folder(written(tmp_path, {"normalizer": normalizer}))
    assert str(tmp_path / "tokenizer.json") in refused.value.message


def test_those_of_real_models_are_taken(tmp_path: Path) -> None:
    """A mark in front and in the place of spaces, as in Llama's and Gemma's, is no harm."""
    assert read_model_folder(write_folder(tmp_path, marked_tokenizer(), {})).tokenizer.count("a b c") > 0


@pytest.mark.threat("tokenizer.json", "so is one with tokens without end, or nested without end")
@pytest.mark.parametrize(
    "change",
    [
        lambda: {"added_tokens": [{"id": 1000 + number, "content": f"<{number}>", **ADDED} for number in range(9)]},
        lambda: {"normalizer": nested(300)},
        lambda: split_by("(" * 20_000 + ")" * 20_000),
    ],
    ids=["tokens", "normalizers", "pattern"],
)
def test_one_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """The error names the file and what to do."""
    monkeypatch.setattr(reading, "MOST_ADDED", 8)
    with pytest.raises(UnreadableModelFile, match=r"Download the model again"):
        read_model_folder(written(tmp_path, change()))


def nested(depth: int) -> Changes:
    """Return normalizers within each other."""
    inner: Changes = {"type": "Lowercase"}
    for _ in range(depth):
        inner = {"type": "Sequence", "normalizers": [inner]}
    return inner


@pytest.mark.threat("tokenizer.json", "a pattern that never ends is given up, and the next way counts")
@pytest.mark.parametrize(
    "change",
    [
        split_by("(a+)+$"),
        split_by("^(a|a?)+$"),
        {
            "model": {
                "type": "WordPiece",
                "unk_token": "[NO]",
                "vocab": {"a": 0},
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
            },
            "pre_tokenizer": None,
            "added_tokens": [],
        },
    ],
    ids=["nested repetition", "alternatives", "unknown words"],
)
def test_a_count_that_fails_is_an_error_of_ours(tmp_path: Path, change: Changes) -> None:
    """Whatever the library raises, panics too, is the error after which another way counts."""
    tokenizer = read_model_folder(written(tmp_path, change)).tokenizer
    with pytest.raises(TokenizerFailed):
        tokenizer.count("a" * 40 + "!")
