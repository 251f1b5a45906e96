"""Finds the file of an LM Studio model on this machine: by LM Studio's folder, its settings and its model index.

The index is LM Studio's private cache and goes stale, so an entry is believed only where a file of the right size
is really there. Nothing is written.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
MAX_INDEX_BYTES = 64 * 1024 * 1024
MLX_MARK = "config.json"
DEPTH_OF_FILES = "*/*/*.gguf"  # publisher/repository/file


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One model of the index; `size` in bytes of the file, or of all files of a folder."""

    identifier: str
    aliases: frozenset[str]
    path: Path
    size: int | None
    format: str | None


def find_home(configured: str, user_home: Path) -> Path | None:
    """Return LM Studio's folder: the configured one, the one its pointer names, or one of its usual places."""
    if configured:
        return Path(configured).expanduser()
    pointer = user_home / ".lmstudio-home-pointer"
    try:
        named = Path(pointer.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        named = None
    places = [user_home / ".cache" / "lm-studio", user_home / ".lmstudio"]
    if named is not None and named.is_absolute():
        places.insert(0, named)
    return next((place for place in places if _is_folder(place)), None)


def find_model_path(home: Path, info: ModelInfo) -> Path | None:
    """Return the GGUF file or the model folder of this model, None where it is not certain.

    The index is asked first; where no entry of it fits, the models folder is searched for the only file of exactly
    the model's size.
    """
    key = info.key or info.id
    there = [entry for entry in _read_index(home) if _names(entry, key) and _fits(entry, info)]
    there = [entry for entry in there if entry.identifier == key] or there
    if len({entry.path for entry in there}) == 1:
        return there[0].path
    if there:
        log.debug("LM Studio's model index has several files for %s; none is taken.", key)
        return None
    return _only_file_of_size(_models_folder(home), info.size_bytes) if info.size_bytes else None


def _names(entry: IndexEntry, key: str) -> bool:
    return key == entry.identifier or key in entry.aliases


def _fits(entry: IndexEntry, info: ModelInfo) -> bool:
    if info.format and entry.format and _format(entry.format) != _format(info.format):
        return False
    if info.size_bytes and entry.size and entry.size != info.size_bytes:
        return False
    if _is_folder(entry.path):
        return _is_file(entry.path / "tokenizer.json")
    size = _size_of(entry.path)
    if size is None:
        return False
    # A vision model's size includes its projector, a split model's all its parts: the file may be smaller.
    return entry.size is None or size <= entry.size


def _format(name: str) -> str:
    """Return the one name of a format: LM Studio says mlx in one list and safetensors in the other."""
    return "safetensors" if name == "mlx" else name


def _read_index(home: Path) -> Iterator[IndexEntry]:
    folder = _models_folder(home)
    for path in (home / ".internal", home / "apps" / "bionic" / ".internal"):
        rows = _read_json(path / "model-index-cache.json").get("models")
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and (entry := _entry(row, folder)):
                yield entry


def _entry(row: dict[str, Any], folder: Path) -> IndexEntry | None:
    path = _path_of(row, folder)
    if path is None:
        return None
    aliases = row.get("autoIdentifiers")
    size, kind = row.get("sizeBytes"), row.get("format")
    return IndexEntry(
        str(row.get("defaultIdentifier")),
        frozenset(name for name in aliases if isinstance(name, str)) if isinstance(aliases, list) else frozenset(),
        path,
        size if isinstance(size, int) and size > 0 else None,
        kind if isinstance(kind, str) else None,
    )


def _path_of(row: dict[str, Any], folder: Path) -> Path | None:
    entry_point = row.get("entryPoint")
    named = entry_point.get("absPath") if isinstance(entry_point, dict) else None
    if not isinstance(named, str):
        _, at, relative = str(row.get("indexedModelIdentifier", "")).partition("@")
        named = str(folder / relative) if at and relative else None
    if named is None:
        return None
    path = Path(named)
    if path.suffix == ".gguf" or _is_folder(path):
        return path
    return path.parent if _is_file(path.parent / MLX_MARK) else None


def _only_file_of_size(folder: Path, size: int) -> Path | None:
    try:
        found = {path.resolve() for path in folder.glob(DEPTH_OF_FILES) if _size_of(path) == size}
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # a loop of links, or from Python 3.13 on a name that no folder can have
        return None
    return found.pop() if len(found) == 1 else None


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (OSError, ValueError):  # a link to nothing, a file that has just gone, a name that no file can have
        return None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, a folder that may not be looked into
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _models_folder(home: Path) -> Path:
    named = _read_json(home / "settings.json").get("downloadsFolder")
    return Path(named) if isinstance(named, str) and named else home / "models"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file() or path.stat().st_size > MAX_INDEX_BYTES:
            return {}
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
