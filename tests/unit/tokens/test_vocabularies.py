"""The shipped vocabularies: what their pinned hashes say, and the tokens of those who made them."""

import hashlib
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from elbowroom.tokens.families.families import family_of
from elbowroom.tokens.families.vocabularies import (
    VOCABULARIES,
    ShippedName,
    VocabularyName,
    bundled_tokenizer,
    bundled_tokens,
)

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / "src" / "elbowroom" / "tokens" / "vocabularies"
SHA256 = {
    "mistral": "0e5ca438ea10df56ab313658915c908e78dc7490dab8fdce58f3dc248cd330df",
    "tekken": "59a38eb57d041f619ba0e33a917984ce6c1ff74bc62a8710fdda4c78a812b85b",
    "qwen": "f571f5ef23fa784362f082a2b98a6f74696626a525c5940018f667480448a65c",
    "o200k": "2f451f31d7403017d0b0dc6319ded23a09f33f573b1635c001fc6b91a1c21302",
}
SIZES = {"mistral": 32_768, "tekken": 130_072, "qwen": 151_643, "o200k": 199_998}
SHIPPED: tuple[ShippedName, ...] = get_args(ShippedName)
VECTORS = json.loads((Path(__file__).parents[2] / "support" / "vocabulary_vectors.json").read_text(encoding="utf-8"))
# A count by tiktoken 0.14 with cl100k_base itself.
CL100K_TEXT = "In 2024, 1234567 of 89 (ß) 漢字 don't!\n\n"
CL100K_COUNT = 22

LAZY = """
import sys
import elbowroom.tokens.anchoring, elbowroom.tokens.families.vocabularies, elbowroom.tokens.families
import elbowroom.tokens.families.counter, elbowroom.tokens.images
print(sorted({"tokenizers", "tiktoken", "regex", "jinja2", "numpy"} & sys.modules.keys()))
"""
LOADED = """
from elbowroom.tokens.families import family_of
from elbowroom.tokens.families.counter import FamilyCounter
from elbowroom.tokens.families.vocabularies import _encoding
print(_encoding.cache_info().currsize)
counter = FamilyCounter(family_of("meta-llama-3-8b-instruct"))
for text in ("Where is the harbour?", "Πού είναι το λιμάνι;"):
    counter.count_text(text)
    print(_encoding.cache_info().currsize)
"""
OFFLINE = """
import sys
def refuse(event, arguments):
    assert not event.startswith("socket."), event
sys.addaudithook(refuse)
from elbowroom.tokens.families import family_of
from elbowroom.tokens.families.counter import FamilyCounter
for name in ("llama-3", "llama-2", "mistral", "mistral-nemo", "qwen3", "gpt-oss", "phi-4", "gemma-3", "anything"):
    print(FamilyCounter(family_of(name)).count_chat([{"role": "user", "content": "Hello"}]).tokens)
"""


def run(program: str) -> str:
    """Run a program in a fresh interpreter and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_file_is_the_pinned_one(name: ShippedName) -> None:
    """What is inside a shipped file is what the script that builds it has pinned, down to the byte."""
    content = lzma.decompress((FOLDER / f"{name}.xz").read_bytes())
    assert hashlib.sha256(content).hexdigest() == SHA256[name]
    assert SHA256[name] in (REPOSITORY / "scripts" / "build_vocabularies").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_file_holds_all_tokens(name: ShippedName) -> None:
    """All tokens of a vocabulary are there, none of them empty or twice."""
    tokens = list(bundled_tokens(name))
    assert len(tokens) == len(set(tokens)) == SIZES[name]
    assert all(tokens)


def test_shipped_files_are_small() -> None:
    """All vocabularies together stay near two megabytes."""
    assert sum(path.stat().st_size for path in FOLDER.glob("*.xz")) < 2_100_000


def test_notices_travel_with_the_files() -> None:
    """The licences lie beside the data, and the notices name everyone whose work it is."""
    notices = (REPOSITORY / "THIRD_PARTY_NOTICES").read_text(encoding="utf-8")
    for owner in ("Mistral AI", "Alibaba", "OpenAI, Shantanu Jain", "The ggml authors", "Apache License"):
        assert owner in notices
    for licence in ("LICENSE.Apache-2.0", "LICENSE.tiktoken"):
        text = (FOLDER / licence).read_text(encoding="utf-8").strip()
        assert text in notices


@pytest.mark.parametrize("name", SHIPPED)
def test_tokens_are_those_of_the_source(name: ShippedName) -> None:
    """Texts of many kinds get the ids that sentencepiece and tiktoken give them with the packages' own files."""
    tokenizer = bundled_tokenizer(name, frozenset())
    for text, ids in zip(VECTORS["texts"], VECTORS["ids"][name], strict=True):
        assert tokenizer.encode(text) == ids, text


@pytest.mark.parametrize("name", [*VOCABULARIES, "mistral"])
def test_every_text_can_be_counted(name: VocabularyName) -> None:
    """Any text at all has a count, special tokens are one each, and no text takes more tokens than bytes."""
    tokenizer = bundled_tokenizer(name, frozenset({"<|x|>", "[Y]"}))
    text = "".join(map(chr, [*range(0x20, 0x500), 0x1F642, 0xD800, 0x0, 0x3042, 0x6F22]))
    assert 0 < tokenizer.count(text) <= len(text.encode("utf-8", "surrogatepass"))
    assert tokenizer.count("<|x|>[Y]<|x|>") == 3


@pytest.mark.slow
def test_digits_are_cut_as_the_name_says() -> None:
    """Numbers take a token for three digits or for each one, depending on the vocabulary."""
    counts = {name: bundled_tokenizer(name, frozenset()).count("x123456789") for name in VOCABULARIES}
    assert counts == {
        "tekken": 10,
        "qwen": 10,
        "o200k": 4,
        "cl100k": 4,
        "o200k with digits": 10,
    }


def test_cl100k_follows_from_qwen() -> None:
    """The vocabulary made of Qwen's beginning and all numbers counts as cl100k does."""
    assert bundled_tokenizer("cl100k", frozenset()).count(CL100K_TEXT) == CL100K_COUNT


def test_importing_loads_no_library() -> None:
    """Nothing heavy is imported before the first count."""
    assert run(LAZY).strip() == "[]"


@pytest.mark.slow
def test_nothing_is_fetched_from_the_network() -> None:
    """Every vocabulary is loaded and counts where every socket is refused."""
    counts = run(OFFLINE).split()
    assert len(counts) == 9
    assert all(int(count) > 0 for count in counts)


def test_family_of_a_vocabulary_is_shared() -> None:
    """Families over one vocabulary share its tables, which take most of the memory."""
    names = ("gpt-oss-20b", "phi-4-mini")
    first, second = (bundled_tokenizer(family_of(name).vocabulary, frozenset()) for name in names)
    assert first.engine._encode.__self__ is second.engine._encode.__self__  # type: ignore[attr-defined]


@pytest.mark.slow
def test_vocabulary_is_loaded_with_the_first_text_that_needs_it() -> None:
    """Llama 3 counts some scripts by a second vocabulary, which takes no memory until one of these comes."""
    before, english, greek = map(int, run(LOADED).split())
    assert (before, english, greek) == (0, 1, 2)
