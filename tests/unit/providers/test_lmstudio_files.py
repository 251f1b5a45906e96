"""Which file on this machine is a model of LM Studio: homes, models folders, indexes good and bad."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases import case

from elbowroom.providers.base import ModelInfo
from elbowroom.providers.lmstudio.files import find_home, find_model_path

SIZE = 64
FILE = "qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf"
INDEX = ".internal/model-index-cache.json"
SECOND_INDEX = "apps/bionic/.internal/model-index-cache.json"


def info(model: str = "qwen/qwen3-8b", **fields: Any) -> ModelInfo:
    """Return a model as LM Studio lists it."""
    listed = ModelInfo(model, "lmstudio", model, size_bytes=SIZE, format="gguf", key=model)
    return replace(listed, **fields)


def write(path: Path, content: bytes | str = b"G" * SIZE) -> Path:
    """Write a file with all folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def entry(path: Path | str | None = None, model: str = "qwen/qwen3-8b", **fields: Any) -> dict[str, Any]:
    """Return a row of the index."""
    point = {} if path is None else {"entryPoint": {"absPath": str(path)}}
    return {"defaultIdentifier": model, "autoIdentifiers": [], "format": "gguf", "sizeBytes": SIZE, **point, **fields}


def write_index(home: Path, *rows: Any, where: str = INDEX) -> None:
    """Write a model index with these rows."""
    write(home / where, json.dumps({"models": list(rows), "badModels": [], "errors": []}))


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what is in a folder, with sizes and times of change."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def test_the_configured_home_goes_first(tmp_path: Path) -> None:
    """What the settings name is taken, whatever else is there."""
    (tmp_path / ".lmstudio").mkdir()
    assert find_home(str(tmp_path / "mine"), tmp_path) == tmp_path / "mine"


def test_the_pointer_goes_before_the_usual_places(tmp_path: Path) -> None:
    """LM Studio's own note about where it lives is followed."""
    for name in (".lmstudio", ".cache/lm-studio", "moved"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path / ".lmstudio-home-pointer", f"{tmp_path / 'moved'}\n")
    assert find_home("", tmp_path) == tmp_path / "moved"


@pytest.mark.parametrize(
    "pointer",
    [b"", b"relative/path", b"/nowhere/at/all", b"\xff\xfe\x00", b"\x00", b"/" + b"x" * 5000],
    ids=["empty", "relative", "gone", "no text", "nul", "too long"],
)
def test_a_pointer_to_nothing_is_passed_over(tmp_path: Path, pointer: bytes) -> None:
    """A note that names no folder does not hide the usual places."""
    (tmp_path / ".lmstudio").mkdir()
    write(tmp_path / ".lmstudio-home-pointer", pointer)
    assert find_home("", tmp_path) == tmp_path / ".lmstudio"


def test_the_older_home_goes_before_the_newer(tmp_path: Path) -> None:
    """Where both are there, LM Studio itself uses the older one."""
    (tmp_path / ".lmstudio").mkdir()
    (tmp_path / ".cache" / "lm-studio").mkdir(parents=True)
    assert find_home("", tmp_path) == tmp_path / ".cache" / "lm-studio"
    assert find_home("", tmp_path / "nobody") is None


@pytest.mark.parametrize("where", [INDEX, SECOND_INDEX])
def test_the_index_names_the_file(tmp_path: Path, where: str) -> None:
    """The absolute path of the entry point, by either app's index; the models folder is not even needed."""
    model = write(tmp_path / "elsewhere" / "model.gguf")
    write_index(tmp_path, entry(model), where=where)
    assert find_model_path(tmp_path, info()) == model


def test_the_same_file_in_both_indexes_is_one(tmp_path: Path) -> None:
    """Two apps that agree are no contradiction."""
    model = write(tmp_path / "models" / FILE)
    for where in (INDEX, SECOND_INDEX):
        write_index(tmp_path, entry(model), where=where)
    assert find_model_path(tmp_path, info()) == model


@pytest.mark.parametrize("elsewhere", [False, True], ids=["models", "downloadsFolder"])
def test_a_path_below_the_models_folder(tmp_path: Path, *, elsewhere: bool) -> None:
    """Without an absolute path, what stands behind the @ is a path in the models folder, wherever that is."""
    folder = tmp_path / ("other disk" if elsewhere else "home/models")
    if elsewhere:
        write(tmp_path / "home" / "settings.json", json.dumps({"downloadsFolder": str(folder)}))
    model, other = write(folder / FILE), write(folder / "a/b/same-size.gguf")
    write_index(tmp_path / "home", entry(indexedModelIdentifier=f"qwen/qwen3-8b@{FILE}"))
    assert other.stat().st_size == SIZE
    assert find_model_path(tmp_path / "home", info()) == model


def test_the_key_goes_before_the_id_of_an_instance(tmp_path: Path) -> None:
    """An instance `key:2` has the file of its key."""
    model = write(tmp_path / "models" / FILE)
    write_index(tmp_path, entry(model))
    assert find_model_path(tmp_path, info("qwen/qwen3-8b:2", key="qwen/qwen3-8b")) == model


def test_another_name_of_the_model(tmp_path: Path) -> None:
    """A model is found by the names that LM Studio gives it besides its own."""
    model = write(tmp_path / "models" / FILE)
    write_index(tmp_path, entry(model, autoIdentifiers=["qwen3-8b", None, 7]))
    assert find_model_path(tmp_path, info("qwen3-8b")) == model


def test_a_models_own_name_goes_before_anothers_second_name(tmp_path: Path) -> None:
    """The entry with that very identifier is meant, not one that may also be called so."""
    own, other = write(tmp_path / "own.gguf"), write(tmp_path / "other.gguf")
    write_index(tmp_path, entry(other, "them/qwen3-8b", autoIdentifiers=["qwen3-8b"]), entry(own, "qwen3-8b"))
    assert find_model_path(tmp_path, info("qwen3-8b")) == own


def test_of_two_entries_the_one_of_the_right_size(tmp_path: Path) -> None:
    """Two quantizations under one name are told apart by their size."""
    small, large = write(tmp_path / "q4.gguf"), write(tmp_path / "q8.gguf", b"G" * 2 * SIZE)
    write_index(tmp_path, entry(small), entry(large, sizeBytes=2 * SIZE))
    assert find_model_path(tmp_path, info()) == small
    assert find_model_path(tmp_path, info(size_bytes=2 * SIZE)) == large


def test_two_that_cannot_be_told_apart_are_none(tmp_path: Path) -> None:
    """Nothing is guessed: another way of counting is safer than a coin."""
    write_index(tmp_path, entry(write(tmp_path / "a.gguf")), entry(write(tmp_path / "b.gguf")))
    assert find_model_path(tmp_path, info()) is None


def test_a_stale_entry_is_not_believed(tmp_path: Path) -> None:
    """A file that has gone, has grown, or is of another format or size than the loaded model is not taken."""
    grown = write(tmp_path / "grown.gguf", b"G" * 2 * SIZE)
    there = write(tmp_path / "there.gguf")
    for row in (
        entry(tmp_path / "gone.gguf"),
        entry(grown),
        entry(there, format="safetensors"),
        entry(there, sizeBytes=SIZE + 1),
        entry(there, "somebody/else"),
    ):
        write_index(tmp_path, row)
        assert find_model_path(tmp_path, info()) is None, row


def test_a_stale_entry_gives_way_to_the_file_that_is_there(tmp_path: Path) -> None:
    """After the models folder has moved, the one file of exactly the model's size is found in its new place."""
    model = write(tmp_path / "models" / FILE)
    write_index(tmp_path, entry("/old/disk/model.gguf"))
    assert find_model_path(tmp_path, info()) == model


def test_without_an_index_the_one_file_of_the_right_size(tmp_path: Path) -> None:
    """One file of that size can only be it; of two, or without a size, none is."""
    model = write(tmp_path / "models" / FILE)
    write(tmp_path / "models" / "a/b/other.gguf", b"G" * 9)
    assert find_model_path(tmp_path, info()) == model
    assert find_model_path(tmp_path, info(size_bytes=None)) is None
    write(tmp_path / "models" / "a/b/copy.gguf")
    assert find_model_path(tmp_path, info()) is None


def test_links_in_the_models_folder(tmp_path: Path) -> None:
    """A link to nothing, a loop of links and a second link to the same file do not hide the file."""
    model = write(tmp_path / "models" / FILE)
    for name, target in {"gone": "nothing", "loop": "loop.gguf", "again": str(model)}.items():
        (model.parent / f"{name}.gguf").symlink_to(target)
    os.symlink("..", tmp_path / "models" / "qwen" / "up")
    assert find_model_path(tmp_path, info()) == model


def test_an_entry_that_is_a_loop_of_links(tmp_path: Path) -> None:
    """A path that leads nowhere for ever is one that is not there."""
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    write_index(tmp_path, entry(loop))
    assert find_model_path(tmp_path, info()) is None


@pytest.mark.parametrize("listed", ["mlx", "safetensors"])
@pytest.mark.parametrize("point", ["", "config.json", "model.safetensors"])
def test_a_folder_of_an_mlx_model(tmp_path: Path, listed: str, point: str) -> None:
    """The folder, or a file in it, under either name that LM Studio has for the format."""
    folder = tmp_path / "models" / "mlx-community" / "Qwen3-8B-4bit"
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        write(folder / name, b"{}")
    write_index(tmp_path, entry(folder / point, format="safetensors"))
    assert find_model_path(tmp_path, info(format=listed)) == folder


def test_a_folder_without_a_tokenizer_is_none(tmp_path: Path) -> None:
    """There is nothing in it to count with."""
    write(tmp_path / "models" / "m" / "config.json", b"{}")
    write_index(tmp_path, entry(tmp_path / "models" / "m", format="safetensors"))
    assert find_model_path(tmp_path, info(format="mlx")) is None


def test_models_of_several_files(tmp_path: Path) -> None:
    """A split model's size is that of all parts, a vision model's includes its projector: the first file is taken."""
    split = write(tmp_path / "big-00001-of-00002.gguf", b"G" * (SIZE // 2))
    write(tmp_path / "big-00002-of-00002.gguf", b"G" * (SIZE // 2))
    write_index(tmp_path, entry(split))
    assert find_model_path(tmp_path, info()) == split


HOSTILE: dict[str, bytes | str] = {
    "empty": b"",
    "no JSON": b'{"models": [',
    "no text": b"\xff\xfe\x00\x01",
    "a list": b"[]",
    "nested deeply": b'{"models": ' + b"[" * 200_000,
    "models are a number": b'{"models": 7}',
    "a huge number": b'{"models": ' + b"9" * 10_000 + b"}",
    "rows of all kinds": json.dumps({"models": [None, 7, "x", [], {}, {"entryPoint": 7}, {"entryPoint": {}}]}),
    "names of all kinds": json.dumps(
        {"models": [entry("/x.gguf", defaultIdentifier=None), entry("/x.gguf", defaultIdentifier=[]), entry("/", "")]}
    ),
    "sizes of all kinds": json.dumps(
        {"models": [entry("/x.gguf", sizeBytes=size) for size in (None, -1, 0, True, "9", 1e300)]}
    ),
    "paths of all kinds": json.dumps(
        {
            "models": [
                entry(path)
                for path in ("", ".", "\0.gguf", "\ud800.gguf", "\ud800", "a" * 5000, "a" * 5000 + ".gguf", "/")
            ]
            + [entry(indexedModelIdentifier=path) for path in ("@", "x@", "@../../../etc/passwd", "a@\0", 7, None)]
            + [entry(entryPoint={"absPath": 7}), entry(autoIdentifiers="qwen")]
        }
    ),
}


def test_a_damaged_or_hostile_index(tmp_path: Path) -> None:
    """Whatever stands there, nothing is raised, and what the models folder holds is still found."""
    for name, index in HOSTILE.items():
        for where in (INDEX, SECOND_INDEX, "settings.json"):
            with case(name, where):
                home = tmp_path / name / where.replace("/", " ")
                model = write(home / "models" / FILE)
                write(home / where, index)
                assert find_model_path(home, info()) == model


@pytest.mark.parametrize("folder", ["\0", "\ud800", "a" * 5000, "/nowhere", "", 7, None, ["x"]])
def test_a_hostile_downloads_folder(tmp_path: Path, folder: Any) -> None:
    """A models folder that cannot be is one without models."""
    write(tmp_path / "settings.json", json.dumps({"downloadsFolder": folder}))
    write_index(tmp_path, entry(indexedModelIdentifier=f"x@{FILE}"))
    assert find_model_path(tmp_path, info()) is None


def test_an_index_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """A file of gigabytes where the index should be costs neither time nor memory."""
    write_index(tmp_path, entry(write(tmp_path / "m.gguf")))
    os.truncate(tmp_path / INDEX, 1 << 40)
    assert find_model_path(tmp_path, info()) is None


def test_an_index_that_is_no_file(tmp_path: Path) -> None:
    """A folder or a device in its place is passed over; a device could be read for ever."""
    (tmp_path / INDEX).mkdir(parents=True)
    (tmp_path / "settings.json").symlink_to("/dev/zero")
    assert find_model_path(tmp_path, info()) is None


def test_nothing_is_written(tmp_path: Path) -> None:
    """LM Studio's folders are as they were, to the file and the time."""
    home = tmp_path / ".lmstudio"
    write(home / "models" / FILE)
    write_index(home, entry("/gone.gguf"))
    write(home / "settings.json", "{}")
    before = everything(tmp_path)
    found = find_home("", tmp_path)
    assert found is not None
    assert find_model_path(found, info()) is not None
    assert everything(tmp_path) == before
