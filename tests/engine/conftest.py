"""Fixtures: a real engine with a tiny model."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs
import pytest
from llama_cpp_archive import VERSION, ArchiveUnavailableError, llama_cpp_archive, unpack_models
from llama_server import LlamaServer, Options
from recording_relay import RecordingRelay
from tiny_gguf import write_model
from vocabularies import copied_vocabulary, trained_vocabulary

StartEngine = Callable[[Options], LlamaServer]
EngineFor = Callable[[str, str], LlamaServer]
CHAT_TEMPLATE = Path(__file__).parent.with_name("support") / "chatml_tools.jinja"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file with a trained vocabulary and a ChatML-like template that knows tools."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp has no build for this system")
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_model(path, trained_vocabulary(), CHAT_TEMPLATE.read_text(encoding="utf-8"))
    return path


@pytest.fixture(scope="session")
def session_engine(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    """The engine behind `engine`; tests use that one."""
    with LlamaServer(tiny_model, tmp_path_factory.mktemp("engine")) as server:
        yield server


@pytest.fixture
def engine(session_engine: LlamaServer) -> LlamaServer:
    """A running engine with a window of 8192 tokens, shared by all tests, its record of prompts empty."""
    if not session_engine.is_running:
        session_engine.start()
    session_engine.forget_prompts()
    return session_engine


@pytest.fixture
async def relay(engine: LlamaServer) -> AsyncIterator[RecordingRelay]:
    """A relay in front of `engine` that keeps every request it passes on."""
    async with RecordingRelay(engine.base_url) as running:
        yield running


@pytest.fixture
def start_engine(tiny_model: Path, tmp_path: Path) -> Iterator[StartEngine]:
    """Start engines with options of the test's own; they end with the test."""
    with ExitStack() as stack:

        def start(options: Options) -> LlamaServer:
            folder = tmp_path / f"engine-{len(list(tmp_path.iterdir()))}"
            return stack.enter_context(LlamaServer(tiny_model, folder, options))

        yield start


@pytest.fixture(scope="session")
def real_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with llama.cpp's own vocabularies and chat templates; downloaded once per person."""
    cache = platformdirs.user_cache_path("elbowroom-tests", appauthor=False)
    try:
        archive = llama_cpp_archive(cache)
    except ArchiveUnavailableError as error:
        pytest.skip(f"the source archive of llama-cpp-python {VERSION} cannot be had: {error}")
    folder = tmp_path_factory.mktemp("real-models")
    unpack_models(archive, folder)
    return folder


@pytest.fixture
def engine_for(real_models: Path, tmp_path: Path) -> Iterator[EngineFor]:
    """Start an engine around a real chat template and vocabulary; its window has 8192 tokens.

    The names are those of llama.cpp's models folder: `engine_for("Qwen-Qwen3-0.6B", "qwen2")`.
    """
    with ExitStack() as stack:

        def start(template: str, vocabulary: str) -> LlamaServer:
            folder = Path(stack.enter_context(TemporaryDirectory(dir=tmp_path)))
            text = (real_models / f"{template}.jinja").read_text(encoding="utf-8")
            model = folder / f"{template}.gguf"
            write_model(model, copied_vocabulary(real_models / f"ggml-vocab-{vocabulary}.gguf"), text)
            return stack.enter_context(LlamaServer(model, folder))

        yield start
