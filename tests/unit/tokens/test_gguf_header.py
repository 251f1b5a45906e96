"""Reading the header of a GGUF file: all that is asked for, and clear errors for what is no sound header."""

import struct
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from cases import case
from vocabulary_kinds import byte_level, sentencepiece, write_header

from elbowroom.errors import ElbowroomError
from elbowroom.tokens.errors import UnreadableModelFile
from elbowroom.tokens.files.gguf import read_gguf_header

TOKENS = b"tokenizer.ggml.tokens"
MIB = 1 << 20


def text(value: bytes) -> bytes:
    """Return a length-prefixed string as GGUF has it."""
    return struct.pack("<Q", len(value)) + value


def header(*pairs: bytes, version: int = 3, count: int | None = None, order: str = "<") -> bytes:
    """Return a GGUF header with these key-value pairs."""
    return b"GGUF" + struct.pack(f"{order}IQQ", version, 0, len(pairs) if count is None else count) + b"".join(pairs)


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    """Return one key with a value of the given type number."""
    return text(key) + struct.pack("<I", kind) + value


def array(kind: int, count: int, items: bytes = b"") -> bytes:
    """Return an array value."""
    return struct.pack("<IQ", kind, count) + items


def test_header_tells_all_that_the_file_says(tmp_path: Path) -> None:
    """Name, template and every table of the vocabulary come back as they were written."""
    vocabulary = byte_level("qwen2", size=400)
    header = read_gguf_header(write_header(tmp_path / "m.gguf", vocabulary, name="Tiny", template="{{ x }}"))
    assert (header.architecture, header.name) == ("llama", "Tiny")
    assert header.chat_templates == {"default": "{{ x }}"}
    assert header.vocabulary is not None
    assert (header.vocabulary.model, header.vocabulary.pre) == ("gpt2", "qwen2")
    assert list(header.vocabulary.tokens) == vocabulary.tokens
    assert list(header.vocabulary.merges) == vocabulary.entries["tokenizer.ggml.merges"].value
    assert list(header.vocabulary.token_types) == vocabulary.entries["tokenizer.ggml.token_type"].value
    assert header.vocabulary.ids["eos"] == vocabulary.tokens.index("<|im_end|>")
    assert header.vocabulary.adds_bos is None


def test_scores_and_flags_are_read(tmp_path: Path) -> None:
    """SentencePiece's scores are numbers as long as the tokens, and a flag is told from its absence."""
    vocabulary = sentencepiece(space_prefix=False)
    tables = read_gguf_header(write_header(tmp_path / "m.gguf", vocabulary)).vocabulary
    assert tables is not None
    assert list(tables.scores) == vocabulary.entries["tokenizer.ggml.scores"].value
    assert tables.adds_space_prefix is False


def test_named_templates_stand_beside_the_default(tmp_path: Path) -> None:
    """A file with several chat templates gives each by its name."""
    pairs = [
        pair(b"tokenizer.chat_template", 8, text(b"one")),
        pair(b"tokenizer.chat_template.rag", 8, text(b"two")),
    ]
    (tmp_path / "m.gguf").write_bytes(header(*pairs))
    assert read_gguf_header(tmp_path / "m.gguf").chat_templates == {"default": "one", "rag": "two"}


def test_bytes_that_are_no_utf8_stay_apart(tmp_path: Path) -> None:
    """Two tokens with different broken bytes remain two different tokens; a broken name is only replaced."""
    items = text(b"\xff") + text(b"\xfe") + text("\ufffd".encode())
    pairs = [
        pair(b"general.name", 8, text(b"a\xffb")),
        pair(b"tokenizer.ggml.model", 8, text(b"gpt2")),
        pair(TOKENS, 9, array(8, 3, items)),
    ]
    (tmp_path / "m.gguf").write_bytes(header(*pairs))
    result = read_gguf_header(tmp_path / "m.gguf")
    assert result.name == "a\ufffdb"
    assert result.vocabulary is not None
    assert len(set(result.vocabulary.tokens)) == 3


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends in the middle"),
    "another format": (b"PK\x03\x04" + bytes(100), "is no GGUF file"),
    "version 1": (header(version=1), "version 1"),
    "version 99": (header(version=99), "version 99"),
    "big-endian": (header(version=3, order=">"), "big-endian"),
    "no pairs where some are declared": (header(count=3), "ends in the middle"),
    "absurd number of keys": (header(count=1 << 60), "metadata keys"),
    "key of 4 GB": (header(struct.pack("<Q", 1 << 32), count=1), "a key of"),
    "key that is no UTF-8": (header(pair(b"\xff\xfe", 4, bytes(4))), "no UTF-8"),
    "the same key twice": (header(*[pair(b"general.name", 8, text(b"a"))] * 2), "twice"),
    "unknown value type": (header(pair(b"x", 77, bytes(8))), "value type 77"),
    "text beyond the end": (
        header(pair(b"general.name", 8, struct.pack("<Q", 1 << 20))),
        "ends in the middle",
    ),
    "endless text": (header(pair(b"general.name", 8, struct.pack("<Q", 1 << 63))), "a text of"),
    "endless text that is skipped": (
        header(pair(b"x", 8, struct.pack("<Q", 1 << 63))),
        "header of more than",
    ),
    "2**63 tokens": (header(pair(TOKENS, 9, array(8, 1 << 63))), "strings"),
    "2**63 numbers": (header(pair(b"x", 9, array(4, 1 << 63))), "entries in x"),
    "token of a megabyte": (header(pair(TOKENS, 9, array(8, 1, text(bytes(1 << 20))))), "an entry of 1,048,576 bytes"),
    "array in an array": (header(pair(b"x", 9, array(9, 1, array(4, 0)))), "arrays in an array"),
    "array of unknown type": (header(pair(b"x", 9, array(55, 1))), "value type 55"),
    "tokens that are a number": (
        header(pair(b"tokenizer.ggml.model", 8, text(b"gpt2")), pair(TOKENS, 4, bytes(4))),
        "should be a list of texts",
    ),
    "name that is a number": (header(pair(b"general.name", 4, bytes(4))), "should be a text"),
    "token id that is a flag": (
        header(pair(b"tokenizer.ggml.model", 8, text(b"gpt2")), pair(b"tokenizer.ggml.bos_token_id", 7, b"\x01")),
        "should be a whole number",
    ),
    "fewer types than tokens": (
        header(
            pair(b"tokenizer.ggml.model", 8, text(b"gpt2")),
            pair(TOKENS, 9, array(8, 2, text(b"a") + text(b"b"))),
            pair(b"tokenizer.ggml.token_type", 9, array(5, 1, bytes(4))),
        ),
        "as long as the list of tokens",
    ),
}


def test_broken_header_is_told(tmp_path: Path) -> None:
    """What is wrong with the file stands in the error, beside its name and what to do."""
    for name, (data, expected) in BROKEN.items():
        with case(name):
            path = tmp_path / "broken.gguf"
            path.write_bytes(data)
            with pytest.raises(UnreadableModelFile, match=expected) as raised:
                read_gguf_header(path)
            assert isinstance(raised.value, ElbowroomError)
            assert str(path) in raised.value.message
            assert "ownload" in raised.value.message


def test_every_truncation_is_told(tmp_path: Path) -> None:
    """A header cut at any byte is an error, never a smaller vocabulary."""
    whole = write_header(tmp_path / "m.gguf", sentencepiece()).read_bytes()
    cuts = [*range(0, 600, 7), *range(600, len(whole) - 64, 1009)]
    for cut in cuts:
        (tmp_path / "cut.gguf").write_bytes(whole[:cut])
        with pytest.raises(UnreadableModelFile):
            read_gguf_header(tmp_path / "cut.gguf")


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None], ids=["a folder", "nothing"])
def test_what_is_no_file_is_told(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A folder, or nothing at all, in the file's place is an error that names the path."""
    path = tmp_path / "m.gguf"
    make(path)
    with pytest.raises(UnreadableModelFile, match="cannot be opened"):
        read_gguf_header(path)


def test_huge_file_is_opened_at_once(tmp_path: Path) -> None:
    """Of a file of 20 GB only the header is read: little memory, and a moment of the processor's time."""
    path = write_header(tmp_path / "m.gguf", byte_level("qwen2"))
    with path.open("r+b") as file:
        file.truncate(20 << 30)
    memory, started = psutil.Process().memory_info().rss, time.process_time()
    header = read_gguf_header(path)
    assert header.vocabulary is not None
    assert time.process_time() - started < 2
    assert psutil.Process().memory_info().rss - memory < 120 * MIB
