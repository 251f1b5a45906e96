#!/usr/bin/env python3
"""Measures how many tokens of each family stand for one of the vocabulary that it is counted with, script by script.

What is measured are the translated messages of the free programs on this machine, and random letters where no message
is in a script; --write puts the numbers into the package.
"""

import argparse
import gettext
import json
import random
import statistics
import sys
import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

import platformdirs
from count_accuracy import real_tokenizer
from llama_cpp_archive import llama_cpp_archive, unpack_models

from elbowroom.tokens.families import ratios as package
from elbowroom.tokens.families.scripts import KINDS, SPACED, UNSPACED, script_runs
from elbowroom.tokens.families.vocabularies import VocabularyName, bundled_tokenizer

MEASURED: Final[Mapping[str, tuple[tuple[VocabularyName, ...], tuple[str, ...]]]] = {
    "llama3": (("cl100k", "o200k"), ("llama-bpe",)),
    "llama2": (("mistral",), ("llama-spm",)),
    "gemma": (("o200k with digits",), ("gemma-4",)),
    "command-r": (("o200k with digits",), ("command-r",)),
    "granite": (("qwen",), ("refact",)),
    "qwen35": (("qwen",), ("qwen35",)),
    "unknown": (
        ("o200k with digits",),
        ("deepseek-llm", "falcon", "mpt", "starcoder", "llama-spm", "llama-bpe", "gemma-4"),
    ),
}
"""The vocabulary that a family is counted with, after it others that may come nearer in some scripts, and those that
stand for its own. Where there are others, the first is the core of the family's own, with which most languages are
exact: its ratio is that of the language in the middle, any other lies between the extremes."""

UNSEEN: Final = "nobody's"
PIECE: Final = 1500
LEAST_RUN: Final = 150
MOST_OF_A_LANGUAGE: Final = 60_000
SHORTEST_MESSAGE: Final = 20
FEWEST: Final = 4
RANDOM_PIECES: Final = 12
MARGIN: Final = 2.0
"""So many times the largest error of a piece is the bound: texts differ more than messages of programs do."""
LEAST_ERROR: Final = 0.12
FEW: Final = 0.5
"""What is added to it is this, divided by the root of the number of pieces."""
UNSEEN_ERROR: Final = 0.85
"""The error where no message is in a script or a group of languages: then it only says which vocabulary knows it."""


def messages() -> dict[str, str]:
    """Return the translated messages on this machine by language, each once and shuffled."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in Path("/usr/share").glob("locale*/*/LC_MESSAGES/*.mo"):
        language = path.parts[-3]
        if "@quot" in language or "@boldquot" in language or "." in language:
            continue
        try:
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]  # it has no other way
        except (OSError, ValueError, IndexError):  # some are broken
            continue
        found[language].update(
            text
            for key, text in catalog.items()
            if key != text and isinstance(text, str) and len(text) >= SHORTEST_MESSAGE
        )
    shuffled = {language: sorted(texts) for language, texts in sorted(found.items())}
    for texts in shuffled.values():
        random.Random(1).shuffle(texts)
    return {language: "\n".join(texts) for language, texts in shuffled.items()}


def runs() -> dict[str, dict[str, list[str]]]:
    """Return pieces of text of each script, by language."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for language, text in messages().items():
        for start in range(0, min(len(text), MOST_OF_A_LANGUAGE), PIECE):
            for script, run in script_runs(text[start : start + PIECE]).items():
                if len(run) >= LEAST_RUN:
                    found[script][language].append(run)
    known = {script: {name: all_ for name, all_ in by.items() if len(all_) >= FEWEST} for script, by in found.items()}
    chance = random.Random(2)
    for script, letters in {**SPACED, **UNSPACED}.items():
        if not known.get(script):
            known[script] = {UNSEEN: [_random_text(letters, chance) for _ in range(RANDOM_PIECES)]}
    for script, kinds in KINDS.items():
        alike = [each for name in (script, *kinds) for by in known.get(name, {}).values() for each in by]
        known |= {kind: {UNSEEN: alike} for kind in kinds if not known.get(kind)}  # it may be like any of the others
    return {script: by for script, by in known.items() if by}


def _random_text(letters: str, chance: random.Random) -> str:
    """Return words of random letters and signs of a class, some of them repeated as in lines and borders."""
    signs = [sign for sign in _signs(letters) if unicodedata.category(sign)[0] in "LMSN"]
    words = []
    for _ in range(120):
        word = "".join(chance.choices(signs, k=chance.randint(1, 8)))
        words.append(word if chance.random() < 0.8 else word[0] * chance.randint(2, 16))
    return " ".join(words)


def _signs(letters: str) -> Iterator[str]:
    at = 0
    while at < len(letters):
        last = letters[at + 2] if letters[at + 1 : at + 2] == "-" else letters[at]
        yield from map(chr, range(ord(letters[at]), ord(last) + 1))
        at += 3 if last != letters[at] or letters[at + 1 : at + 2] == "-" else 1


def scales(name: str, models: Path, pieces: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, list[float | str]]:
    """Return for each script the ratio of a family, its error as a share of the count, and the vocabulary if another.

    What the family's core counts to the token is left out.
    """
    bases, names = MEASURED[name]
    reals = [real_tokenizer(models / f"ggml-vocab-{vocabulary}.gguf") for vocabulary in names]
    result: dict[str, list[float | str]] = {}
    for script, by_language in sorted(pieces.items()):
        measured = []
        for base in bases:
            near = bundled_tokenizer(base, frozenset())
            shares = [
                [real.count(run) / near.count(run) for run in sample]
                for real in reals
                for sample in by_language.values()
            ]
            middles = [statistics.median(each) for each in shares]
            is_core = len(bases) > 1 and base == bases[0]
            ratio = statistics.median(middles) if is_core else (min(middles) * max(middles)) ** 0.5
            measured.append((max(abs(share / ratio - 1) for each in shares for share in each), ratio, base))
        if len(bases) > 1 and measured[0][:2] == (0, 1):
            continue
        worst, ratio, base = min(measured, key=itemgetter(0))
        number = sum(map(len, by_language.values()))
        least = UNSEEN_ERROR if set(by_language) == {UNSEEN} else LEAST_ERROR + FEW / number**0.5
        result[script] = [round(ratio, 3), round(max(least, MARGIN * worst), 2)]
        if base != bases[0]:
            result[script].append(base)
    return result


def main() -> None:
    """Measure, and print or write."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    archive = llama_cpp_archive(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    pieces = runs()
    missing = {kind for kinds in KINDS.values() for kind in kinds} - set(pieces)
    sys.stderr.write(f"{len(pieces)} scripts and groups; no text of {sorted(missing)}\n")
    with tempfile.TemporaryDirectory() as folder:
        unpack_models(archive, Path(folder))
        found = {name: scales(name, Path(folder), pieces) for name in MEASURED}
    lines = ",\n".join(
        f'  "{name}": {{\n'
        + ",\n".join(f'    "{script}": {json.dumps(scale)}' for script, scale in by.items())
        + "\n  }"
        for name, by in found.items()
    )
    text = f"{{\n{lines}\n}}\n"
    if given.write:
        package.MEASURED.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
