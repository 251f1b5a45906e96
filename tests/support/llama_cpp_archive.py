"""Real vocabularies and chat templates, from the source archive of llama-cpp-python."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = "0.3.36"
SHA256: Final = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
FILE_NAME: Final = f"llama_cpp_python-{VERSION}.tar.gz"
LLAMA_CPP: Final = PurePosixPath(f"llama_cpp_python-{VERSION}/vendor/llama.cpp")
MODELS: Final = LLAMA_CPP / "models"
TEMPLATES: Final = MODELS / "templates"
TESTS: Final = LLAMA_CPP / "tools/server/tests"
DOWNLOAD_TIMEOUT: Final = 300.0  # seconds, for 77 MB

# pip asks a source archive's build backend for metadata even when it only downloads. This stands in for the
# backend, so that nothing is built and no code of the archive runs.
BACKEND: Final = f"""
import pathlib

def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "llama_cpp_python-{VERSION}.dist-info"
    text = "Metadata-Version: 2.1\\nName: llama-cpp-python\\nVersion: {VERSION}\\n"
    (pathlib.Path(folder) / name).mkdir()
    (pathlib.Path(folder) / name / "METADATA").write_text(text)
    return name
"""


class ArchiveUnavailableError(Exception):
    """The archive cannot be had here; the message says why."""


def llama_cpp_archive(cache: Path) -> Path:
    """Return the archive from the folder `cache`, where pip puts it first if need be; its hash is checked."""
    archive = cache / FILE_NAME
    if not (archive.is_file() and sha256(archive) == SHA256):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            download(Path(folder))
            (Path(folder) / FILE_NAME).replace(archive)
    return archive


def sha256(path: Path) -> str:
    """Return the hexadecimal hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(folder: Path) -> None:
    """Fetch the archive into `folder`; pip itself refuses one with another hash."""
    backend = folder / "backend" / "scikit_build_core"
    backend.mkdir(parents=True)
    (backend / "__init__.py").touch()
    (backend / "build.py").write_text(BACKEND, encoding="utf-8")
    requirement = folder / "requirement.txt"
    requirement.write_text(f"llama-cpp-python=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    command += ["--requirement", str(requirement), "--dest", str(folder)]
    try:
        subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": str(backend.parent)},
            timeout=DOWNLOAD_TIMEOUT,
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired as error:
        raise ArchiveUnavailableError(f"pip did not finish within {DOWNLOAD_TIMEOUT:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip() or "pip failed without a word").splitlines()[-1]
        raise ArchiveUnavailableError(last_line) from error


def unpack_server_tests(archive: Path, folder: Path) -> Path:
    """Write the tests of llama.cpp's server and the chat templates that they use below `folder`; return the tests'."""
    with tarfile.open(archive) as members:
        for member in members:
            path = PurePosixPath(member.name)
            if member.isfile() and (path.parent in (TEMPLATES, TESTS / "unit") or path == TESTS / "utils.py"):
                content = members.extractfile(member)
                assert content is not None
                place = folder / path.relative_to(LLAMA_CPP)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read())
    return folder / TESTS.relative_to(LLAMA_CPP)


def unpack_models(archive: Path, folder: Path) -> None:
    """Write the vocabularies (`ggml-vocab-*.gguf`) and chat templates (`*.jinja`) flat into `folder`."""
    with tarfile.open(archive) as members:
        for member in vocabularies_and_templates(members):
            content = members.extractfile(member)
            assert content is not None
            (folder / PurePosixPath(member.name).name).write_bytes(content.read())


def vocabularies_and_templates(members: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Pick the members that are wanted, and plain files only."""
    wanted = {MODELS: ".gguf", TEMPLATES: ".jinja"}
    for member in members:
        path = PurePosixPath(member.name)
        if member.isfile() and wanted.get(path.parent) == path.suffix:
            yield member
