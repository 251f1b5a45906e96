"""Real vocabularies: llama.cpp's own test vectors, its server's ids, and the speed that is promised."""

import random
import tarfile
import time
from pathlib import Path, PurePosixPath

import platformdirs
import pytest
from llama_cpp_archive import MODELS, VERSION, ArchiveUnavailableError, llama_cpp_archive
from text_samples import prose, samples
from tiny_gguf import write_model
from tokenizing_server import same_ids_as_llama_cpp
from vocabularies import copied_vocabulary

from elbowroom.tokens.errors import UnsupportedTokenizer
from elbowroom.tokens.files import StreamCounter
from elbowroom.tokens.files.engines import FastBpe
from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.segments import SegmentCounter

pytestmark = pytest.mark.long

WITH_VECTORS = (
    *(
        "command-r",
        "deepseek-coder",
        "deepseek-llm",
        "falcon",
        "gemma-4",
        "gpt-2",
        "llama-bpe",
        "llama-spm",
        "mpt",
    ),
    *("phi-3", "qwen2", "qwen35", "refact", "starcoder", "bert-bge"),
)
GENERATIVE = (*[name for name in WITH_VECTORS if name != "bert-bge"], "aquila", "baichuan", "gpt-neox")
FAST = ("command-r", "gpt-2", "llama-bpe", "mpt", "qwen2", "qwen35")
SEPARATOR = "\n__ggml_vocab_test__\n"


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with llama.cpp's vocabularies and the vectors beside them."""
    try:
        archive = llama_cpp_archive(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    except ArchiveUnavailableError as error:
        pytest.skip(f"the source archive of llama-cpp-python {VERSION} cannot be had: {error}")
    folder = tmp_path_factory.mktemp("vocabularies")
    with tarfile.open(archive) as members:
        for member in members:
            path = PurePosixPath(member.name)
            if member.isfile() and path.parent == MODELS and path.name.startswith("ggml-vocab-"):
                content = members.extractfile(member)
                assert content is not None
                (folder / path.name).write_bytes(content.read())
    return folder


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_vectors_match(name: str, vocabularies: Path) -> None:
    """Every text of llama.cpp's own tests gives the ids that stand beside it, by each engine."""
    path = vocabularies / f"ggml-vocab-{name}.gguf"
    texts = path.with_name(f"{path.name}.inp").read_bytes().decode().split(SEPARATOR)
    expected = path.with_name(f"{path.name}.out").read_text(encoding="utf-8").split("\n")
    header = read_gguf_header(path)
    fast, slow = build_tokenizer(header), build_tokenizer(header, fast=False)
    assert isinstance(fast.engine, FastBpe) is (name in FAST)
    for text, ids in zip(texts, expected, strict=False):
        assert fast.encode(text) == slow.encode(text) == [int(number) for number in ids.split()], text
    assert len(texts) > 40


@pytest.mark.parametrize("name", GENERATIVE)
async def test_ids_are_llama_cpps(name: str, vocabularies: Path, tmp_path: Path) -> None:
    """Texts of all kinds get the ids that llama.cpp's server gives them."""
    pytest.importorskip("xllamacpp", reason="xllamacpp has no build for this system")
    path = tmp_path / "model.gguf"
    write_model(path, copied_vocabulary(vocabularies / f"ggml-vocab-{name}.gguf"), "")
    await same_ids_as_llama_cpp(path, tmp_path)


def test_unigram_vocabulary_is_refused(vocabularies: Path) -> None:
    """The one vocabulary of a kind that is not known is refused by its name."""
    header = read_gguf_header(vocabularies / "ggml-vocab-nomic-bert-moe.gguf")
    with pytest.raises(UnsupportedTokenizer, match="'t5'"):
        build_tokenizer(header)


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "phi-3", "gemma-4", "command-r"])
def test_long_prompt_is_counted_in_time(name: str, vocabularies: Path) -> None:
    """500 messages of 100,000 tokens are counted exactly, and one more exchange costs next to nothing.

    The bounds are processor time, five times what an idle machine takes.
    """
    tokenizer = build_tokenizer(read_gguf_header(vocabularies / f"ggml-vocab-{name}.gguf"))
    counter = SegmentCounter(tokenizer)
    opening, closing = sorted(tokenizer.special_tokens, key=len)[-2:]
    text = "".join(samples(9).values()) + prose(9, 2_000)
    chance = random.Random(1)

    def message() -> str:
        start = chance.randrange(len(text) - 700)
        return f"{opening}user\n{text[start : start + 700]}{closing}\n"

    prompt = "".join(message() for _ in range(500))
    started = time.process_time()
    count = counter.count(prompt)
    from_scratch = time.process_time() - started
    longer = prompt + message() + message()
    started = time.process_time()
    next_count = counter.count(longer)
    appended = time.process_time() - started
    assert (count, next_count) == (tokenizer.count(prompt), tokenizer.count(longer))
    assert count > 80_000
    assert from_scratch < (0.2 if isinstance(tokenizer.engine, FastBpe) else 1)
    assert appended < 0.05


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "llama-spm", "gemma-4", "deepseek-llm"])
def test_long_answer_is_counted_as_it_grows(name: str, vocabularies: Path) -> None:
    """Answers of all kinds of text are counted with an error of a token, at a few microseconds a chunk."""
    tokenizer = build_tokenizer(read_gguf_header(vocabularies / f"ggml-vocab-{name}.gguf"))
    chance = random.Random(2)
    for kind, text in samples(8).items():
        counter, rest = StreamCounter(tokenizer), text * 5
        expected, chunks = tokenizer.count(rest), 0
        started = time.process_time()
        while rest:
            size = chance.randint(1, 8)
            counter.feed(rest[:size])
            rest = rest[size:]
            chunks += 1
        assert abs(counter.value - expected) <= (1 if tokenizer.kind == "byte-level" else 3), kind
        assert time.process_time() - started < 0.01 + chunks * 50e-6
