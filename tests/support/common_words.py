"""The words of common text in some forty languages with how often each comes, from the package wordfreq."""

import gzip
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

VERSION: Final = "3.1.1"
SHA256: Final = "4b1c6ecffc6198be3396d5cf871c4423ca71c907c231348d352dd54d62b97473"
FILE_NAME: Final = f"wordfreq-{VERSION}-py3-none-any.whl"
LIST: Final = "wordfreq/data/small_"
DOWNLOAD_TIMEOUT: Final = 300.0  # seconds, for 57 MB
IN_PIECES: Final = ("ja", "ko", "zh")
"""Languages whose lists have pieces of words, so that what is put together of them is no text."""
SENTENCE: Final = 14
"""Words of a sentence, with a comma in the middle."""


def common_words(cache: Path) -> Iterator[tuple[str, list[str], list[float]]]:
    """Yield each language, its words, and the share of each; pip puts the package into the folder `cache` once."""
    with zipfile.ZipFile(_package(cache)) as package:
        for name in sorted(package.namelist()):
            language = name.removeprefix(LIST).partition(".")[0]
            if name.startswith(LIST) and language not in IN_PIECES:
                _, *by_hundredth = _value(iter(gzip.decompress(package.read(name))))
                words = [word for same in by_hundredth for word in same]
                yield language, words, [10 ** (-at / 100) for at, same in enumerate(by_hundredth) for _ in same]


def text_of(words: list[str], shares: list[float], length: int) -> str:
    """Return sentences of about so many characters, of words as common as they are in the language."""
    chance = Random(1)
    sentences: list[str] = []
    while sum(map(len, sentences)) < length:
        drawn = chance.choices(words, shares, k=SENTENCE)
        drawn[SENTENCE // 2] += ","
        sentence = " ".join(drawn)
        sentences.append(f"{sentence[0].upper()}{sentence[1:]}. ")
    return "".join(sentences)


def _package(cache: Path) -> Path:
    path = cache / FILE_NAME
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            command += ["--dest", folder, f"wordfreq=={VERSION}"]
            subprocess.run(command, timeout=DOWNLOAD_TIMEOUT, check=True)
            (Path(folder) / FILE_NAME).replace(path)
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SHA256, f"{path} is another file than was measured"
    return path


def _value(data: Iterator[int]) -> Any:
    """Read a value of MessagePack: of its kinds, those that the lists have."""
    kind = next(data)
    if kind < 0x80:
        return kind
    if kind < 0x90:
        return {_value(data): _value(data) for _ in range(kind & 15)}
    if kind < 0xA0 or kind in (0xDC, 0xDD):
        return [_value(data) for _ in range(kind & 15 if kind < 0xA0 else _number(data, 2 << (kind - 0xDC)))]
    assert kind < 0xC0 or kind in (0xD9, 0xDA, 0xDB), f"MessagePack of kind {kind:#x}"
    length = kind & 31 if kind < 0xC0 else _number(data, 1 << (kind - 0xD9))
    return bytes(next(data) for _ in range(length)).decode()


def _number(data: Iterator[int], size: int) -> int:
    return int.from_bytes(bytes(next(data) for _ in range(size)), "big")
