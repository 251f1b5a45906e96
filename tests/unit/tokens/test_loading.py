"""Loading tokenizers by path: late, once for all who wait, again when a file has changed, and off the network."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from model_folders import byte_level_tokenizer, write_folder
from vocabulary_kinds import byte_level, gemma4, sentencepiece, wordpiece, write_header

from elbowroom.elsewhere import Elsewhere
from elbowroom.tokens.errors import UnreadableModelFile
from elbowroom.tokens.files import loading
from elbowroom.tokens.files.loading import TokenizerLoader, load_model

NO_SOCKETS = """
import sys
def refuse(event, arguments):
    assert not event.startswith("socket."), event
sys.addaudithook(refuse)
from pathlib import Path
from elbowroom.tokens.files.loading import load_model
for path in sys.argv[1:]:
    print(load_model(Path(path)).segments.count("Hello there"))
"""
IMPORTS_NOTHING = """
import sys
import elbowroom
import elbowroom.tokens
import elbowroom.tokens.files.gguf
import elbowroom.tokens.files.loading
import elbowroom.tokens.files.segments
import elbowroom.tokens.files.tokenizer
print(sorted({"tokenizers", "tiktoken", "regex", "jinja2", "numpy"} & sys.modules.keys()))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model file."""
    return write_header(tmp_path / "model.gguf", byte_level("qwen2", size=400))


def run(program: str, *arguments: Path) -> str:
    """Run a program in a fresh interpreter and return what it prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_loads_no_tokenizer_library() -> None:
    """The room itself is light: the libraries come with the first model."""
    assert run(IMPORTS_NOTHING).strip() == "[]"


@pytest.mark.slow
def test_nothing_is_fetched_from_the_network(tmp_path: Path) -> None:
    """Files and folders of every kind are loaded and counted with where every socket is refused."""
    makers = (lambda: byte_level("qwen2"), lambda: byte_level("default"), sentencepiece, gemma4, wordpiece)
    paths = [write_header(tmp_path / f"{number}.gguf", make()) for number, make in enumerate(makers)]
    folder = write_folder(tmp_path / "folder", byte_level_tokenizer(), {})
    counts = run(NO_SOCKETS, *paths, folder).split()
    assert len(counts) == 6
    assert all(int(count) > 0 for count in counts)


async def test_all_who_wait_share_one_load(model: Path) -> None:
    """Requests that come while a model is loading get the same tokenizer, and so do later ones."""
    loader = TokenizerLoader()
    first, *others = await asyncio.gather(*[loader.load(model) for _ in range(5)])
    assert all(other is first for other in others)
    assert await loader.load(str(model)) is first
    assert first.text.tokenizer.count("Hello") == first.segments.count("Hello") > 0


async def test_one_who_leaves_does_not_stop_the_load(model: Path) -> None:
    """When a waiting request is cancelled, the others still get the tokenizer that was being loaded."""
    loader = TokenizerLoader()
    leaving, staying = (asyncio.create_task(loader.load(model)) for _ in range(2))
    await asyncio.sleep(0.001)
    leaving.cancel()
    loaded = await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await loader.load(model) is loaded


async def test_changed_file_is_loaded_again(model: Path) -> None:
    """A file that was replaced, by size or by time alone, is loaded anew."""
    loader = TokenizerLoader()
    first = await loader.load(model)
    write_header(model, byte_level("qwen2", size=500))
    second = await loader.load(model)
    os.utime(model, ns=(1, time.time_ns() + 10**9))
    third = await loader.load(model)
    assert len({id(loaded) for loaded in (first, second, third)}) == 3
    assert await loader.load(model) is third


async def test_changed_folder_is_loaded_again(tmp_path: Path) -> None:
    """A new chat template in a model's folder is noticed."""
    folder = write_folder(tmp_path / "model", byte_level_tokenizer(), {})
    loader = TokenizerLoader()
    assert (await loader.load(folder)).text.chat_template is None
    (folder / "chat_template.jinja").write_text("{{ new }}", encoding="utf-8")
    assert (await loader.load(folder)).text.chat_template == "{{ new }}"


async def test_the_models_used_last_are_kept(tmp_path: Path) -> None:
    """Of more models than the memory has room for the one that was not used longest is forgotten."""
    paths = [write_header(tmp_path / f"{number}.gguf", byte_level("qwen2", size=400)) for number in range(3)]
    loader = TokenizerLoader(memory=2 * load_model(paths[0]).bytes_held)
    first, second = [await loader.load(path) for path in paths[:2]]
    assert await loader.load(paths[0]) is first
    await loader.load(paths[2])
    assert await loader.load(paths[0]) is first
    assert await loader.load(paths[1]) is not second


async def test_five_models_in_rotation_are_loaded_once(tmp_path: Path) -> None:
    """Small vocabularies stay, however many: only memory bounds them."""
    paths = [write_header(tmp_path / f"{number}.gguf", byte_level("qwen2", size=400)) for number in range(5)]
    loader = TokenizerLoader()
    first = [await loader.load(path) for path in paths]
    assert [await loader.load(path) for path in paths] == first


async def test_one_model_is_kept_whatever_it_takes(model: Path) -> None:
    """A vocabulary that alone is larger than the memory set aside is not loaded for every count."""
    loader = TokenizerLoader(memory=1)
    assert await loader.load(model) is await loader.load(model)


async def test_failure_is_told_to_all_and_forgotten(tmp_path: Path) -> None:
    """A damaged file is an error for everyone who waits; once it is whole, it is loaded."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    loader = TokenizerLoader()
    results = await asyncio.gather(*[loader.load(path) for _ in range(3)], return_exceptions=True)
    assert [type(result) for result in results] == [UnreadableModelFile] * 3
    state = path.stat()
    write_header(path, byte_level("qwen2", size=400))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (await loader.load(path)).text.tokenizer.count("Hello") > 0


async def test_missing_file_is_told(tmp_path: Path) -> None:
    """A path at which nothing is gives an error with the path in it."""
    with pytest.raises(UnreadableModelFile, match="nowhere"):
        await TokenizerLoader().load(tmp_path / "nowhere")


async def test_event_loop_goes_on_while_loading(model: Path) -> None:
    """While a model is loading, other work on the event loop gets its turns."""
    loading = asyncio.create_task(TokenizerLoader().load(model))
    turns = 0
    while not loading.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 2
    await loading


async def test_closing_waits_for_loads(model: Path) -> None:
    """After closing no load is under way, and nothing is remembered."""
    loader = TokenizerLoader()
    loading = asyncio.create_task(loader.load(model))
    while not loader._loads:  # noqa: ASYNC110 - nobody is told of the moment when a load begins
        await asyncio.sleep(0.001)
    await loader.aclose()
    first = await loading
    assert await loader.load(model) is not first


@pytest.mark.slow
async def test_a_model_that_does_not_answer_takes_no_thread_of_others(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that hangs is told by its name, as often as it is counted with, and the default pool stays free."""
    end, loader, elsewhere = threading.Event(), TokenizerLoader(), Elsewhere(most_at_a_place=2)
    monkeypatch.setattr(loading, "fingerprint_of", lambda path: end.wait(30))
    monkeypatch.setattr(loading, "look", lambda place, work, seconds: elsewhere.look(place, work, 0.1))
    try:
        for _ in range(40):
            with pytest.raises(UnreadableModelFile, match=f"{model.parent} does not answer"):
                await loader.load(model)
        assert not any(thread.name.startswith("asyncio_") for thread in threading.enumerate())
    finally:
        end.set()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes")
async def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    """Nothing waits for it."""
    os.mkfifo(tmp_path / "model.gguf")
    async with asyncio.timeout(5):
        with pytest.raises(UnreadableModelFile, match="cannot be read: it is no plain file"):
            await TokenizerLoader().load(tmp_path / "model.gguf")
