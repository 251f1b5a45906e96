"""Loads the tokenizers of models by path when they are first needed, and again when a file has changed."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, TypeVar

from elbowroom.elsewhere import LOOK_SECONDS, WORK_SECONDS, NotAnswering, look
from elbowroom.tokens.errors import UnreadableModelFile
from elbowroom.tokens.files.segments import SegmentCounter
from elbowroom.tokens.files.tokenizer import ModelText

MEMORY: Final = 256 << 20
"""Bytes that the tokenizers which are kept may take together: four or five large vocabularies, dozens of small ones."""
FOLDER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    *("tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json"),
)
MORE_TEMPLATES: Final = "additional_chat_templates/*.jinja"
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model's texts and templates, with the counter that remembers the pieces of its prompts."""

    text: ModelText
    segments: SegmentCounter

    @property
    def bytes_held(self) -> int:
        """About how much memory it takes, apart from the pieces that its counter remembers."""
        return self.text.tokenizer.engine.bytes_held


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A model's path, and the name, size and time of change of each of its files."""

    path: Path
    files: tuple[tuple[str, int, int], ...]


class TokenizerLoader:
    """Holds the tokenizers that were used last, as many as `memory` bytes have room for, one at least.

    All that ask for a model while it is loaded wait for the same load. It runs in a thread and imports its
    libraries there. Nothing is ever downloaded.
    """

    def __init__(self, *, memory: int = MEMORY) -> None:
        self._memory = memory
        self._loads: OrderedDict[Path, tuple[Fingerprint, asyncio.Task[LoadedModel]]] = OrderedDict()

    async def load(self, path: str | PathLike[str]) -> LoadedModel:
        """Return the tokenizer of a GGUF file or of a model folder.

        Raises `UnreadableModelFile` or `UnsupportedTokenizer`; a failure is not remembered.
        """
        fingerprint = await _looked(Path(path), fingerprint_of, LOOK_SECONDS)
        known = self._loads.get(fingerprint.path)
        if known is None or known[0] != fingerprint:
            task = asyncio.create_task(_looked(fingerprint.path, load_model, WORK_SECONDS))
            known = (fingerprint, task)
            self._loads[fingerprint.path] = known
            task.add_done_callback(lambda done: self._loaded(fingerprint, done))
        self._loads.move_to_end(fingerprint.path)
        return await asyncio.shield(known[1])

    async def aclose(self) -> None:
        """Wait for the loads that are under way, but for those that hang, and forget everything."""
        tasks = [task for _, task in self._loads.values()]
        self._loads.clear()
        if tasks:
            await asyncio.wait(tasks, timeout=LOOK_SECONDS)

    def _loaded(self, fingerprint: Fingerprint, task: asyncio.Task[LoadedModel]) -> None:
        """Forget a load that failed; for one that did not, forget what was used longest ago until there is room."""
        if not _has_worked(task) and self._loads.get(fingerprint.path, (None, None))[1] is task:
            del self._loads[fingerprint.path]
        held = {path: load.result().bytes_held for path, (_, load) in self._loads.items() if _has_worked(load)}
        while len(held) > 1 and sum(held.values()) > self._memory:
            oldest = next(iter(held))
            del held[oldest], self._loads[oldest]


async def _looked(path: Path, work: Callable[[Path], Value], seconds: float) -> Value:
    """Return what is found at a model's path. Raises UnreadableModelFile, also where that does not answer."""
    try:
        return await look(path.parent, lambda: work(path), seconds)
    except NotAnswering as error:
        raise UnreadableModelFile(error.message) from error


def _has_worked(load: asyncio.Task[LoadedModel]) -> bool:
    return load.done() and not load.cancelled() and load.exception() is None


def load_model(path: Path) -> LoadedModel:
    """Read and build the tokenizer of a GGUF file or a model folder; takes a tenth of a second to two."""
    text = _model_text(path)
    return LoadedModel(text, SegmentCounter(text.tokenizer))


def _model_text(path: Path) -> ModelText:
    # The libraries are imported here and nowhere earlier: a server that never counts never loads them.
    if path.is_dir():
        from elbowroom.tokens.files.folder import read_model_folder

        return read_model_folder(path)
    from elbowroom.tokens.files.gguf import read_gguf_header
    from elbowroom.tokens.files.gguf_tokenizer import model_text

    return model_text(read_gguf_header(path))


def fingerprint_of(path: Path) -> Fingerprint:
    """Look at a model's files without opening them. Raises `UnreadableModelFile` where there is none."""
    try:
        path = path.resolve(strict=True)
        if path.is_dir():
            candidates = [*(path / name for name in FOLDER_FILES), *sorted(path.glob(MORE_TEMPLATES))]
        else:
            candidates = [path]
        states = [(file.name, file.stat()) for file in candidates if file.is_file()]
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableModelFile(f"The model {path} cannot be read: {reason}. Check its path.") from error
    if candidates == [path] and not states:
        raise UnreadableModelFile(f"The model {path} cannot be read: it is no plain file. Check its path.")
    return Fingerprint(path, tuple((name, state.st_size, state.st_mtime_ns) for name, state in states))
