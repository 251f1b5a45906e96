#!/usr/bin/env python3
"""Measures how many tokens of each family stand for those of the vocabularies that it is counted with, by script.

What is measured are pages of common text: the translated messages of the free programs on this machine, and words as
common as they are in some forty languages; random letters where neither is in a script. --write puts the numbers into
the package.
"""

import argparse
import gettext
import json
import random
import sys
import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Final

import platformdirs
from common_words import common_words, text_of
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
"""The vocabularies that a family is counted with, of which the first counts what is in no script listed, and those that
stand for its own. Where there are two, the first is the core of the family's own: most languages are exact with it."""

UNSEEN: Final = "nobody's"
SIGNS: Final = "signs"
"""Signs that people use, such as emoji, each as often as any other; where there are few of them, chance alone draws."""
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
"""The error where no page is in a script or a group of languages: then it only says which vocabulary knows it."""
CLOSE: Final = 0.05
"""The most that a language may be off in the middle of its pages to count as close."""
ROUNDS: Final = 2000
CACHE: Final = platformdirs.user_cache_path("elbowroom-tests", appauthor=False)
Pieces = Mapping[str, Mapping[str, Sequence[str]]]
Shares = Sequence[Sequence[Sequence[float]]]
"""Of each language, of each piece, the tokens of each vocabulary for one of the real ones."""


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
    """Return pages of text of each script, by language."""
    words = [(f"words {language}", drawn, shares) for language, drawn, shares in common_words(CACHE)]
    texts = messages() | {name: text_of(drawn, shares, MOST_OF_A_LANGUAGE) for name, drawn, shares in words}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for language, text in texts.items():
        for start in range(0, min(len(text), MOST_OF_A_LANGUAGE), PIECE):
            for script, run in script_runs(text[start : start + PIECE]).items():
                if len(run) >= LEAST_RUN:
                    found[script][language].append(run)
    known = {script: {name: all_ for name, all_ in by.items() if len(all_) >= FEWEST} for script, by in found.items()}
    chance, signs = random.Random(2), _signs_of_scripts([listed for _, listed, _ in words])
    for script, letters in {**SPACED, **UNSPACED}.items():
        if not known.get(script):
            known[script] = {UNSEEN: [_random_text(letters, chance) for _ in range(RANDOM_PIECES)]}
            if len(listed := sorted(signs[script])) >= LEAST_RUN:
                known[script][SIGNS] = ["".join(chance.choices(listed, k=LEAST_RUN)) for _ in range(RANDOM_PIECES)]
    for script, kinds in KINDS.items():
        alike = [each for name in (script, *kinds) for by in known.get(name, {}).values() for each in by]
        known |= {kind: {UNSEEN: alike} for kind in kinds if not known.get(kind)}  # it may be like any of the others
    return {script: by for script, by in known.items() if by}


def _signs_of_scripts(lists: Sequence[Sequence[str]]) -> dict[str, set[str]]:
    """Return the words that are in one script of signs alone, such as emoji."""
    found: dict[str, set[str]] = defaultdict(set)
    for word in {word for words in lists for word in words if not word.isalnum()}:
        for script, run in script_runs(word).items():
            if script in UNSPACED and run == word:
                found[script].add(word)
    return found


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


def scales(name: str, models: Path, pieces: Pieces) -> dict[str, list[object]]:
    """Return for each script the error of a family's count, as a share of it, and the weights of its vocabularies.

    What the family's core counts to the token is left out.
    """
    bases, names = MEASURED[name]
    reals = [real_tokenizer(models / f"ggml-vocab-{vocabulary}.gguf") for vocabulary in names]
    nears = [bundled_tokenizer(base, frozenset()) for base in bases]
    result: dict[str, list[object]] = {}
    off: dict[str, float] = {}
    for script, by_language in sorted(pieces.items()):
        shares = [
            [[near.count(run) / real.count(run) for near in nears] for run in sample]
            for real in reals
            for sample in by_language.values()
        ]
        if len(bases) > 1 and all(share[0] == 1 for sample in shares for share in sample):
            continue
        weights = middle(shares) if len(reals) > 1 else fitted(shares)
        counts = [[_weighed(weights, share) for share in sample] for sample in shares]
        off |= {f"{script} of {each}": median(by) - 1 for each, by in zip(by_language, counts, strict=False)}
        worst = max(abs(1 / count - 1) for sample in counts for count in sample)
        number = sum(map(len, by_language.values()))
        least = UNSEEN_ERROR if UNSEEN in by_language else LEAST_ERROR + FEW / number**0.5
        kept = {base: round(weight, 3) for base, weight in zip(bases, weights, strict=True) if weight >= 0.001}
        result[script] = [round(max(least, MARGIN * worst), 2), kept]
    if len(reals) == 1:
        seen = {language: share for language, share in off.items() if not language.endswith((UNSEEN, SIGNS))}
        far = [f"{language} {share:+.0%}" for language, share in seen.items() if abs(share) > CLOSE]
        sys.stderr.write(f"{name}: {len(far)} of {len(seen)} texts more than {CLOSE:.0%} off: {', '.join(far)}\n")
    return result


def fitted(shares: Shares) -> list[float]:
    """Return the weights with the least squared error of the pages; each language counts the same.

    One vocabulary alone has a weight where one text is all there is, of which two would only learn by heart.
    """
    numbers = range(len(shares[0][0]))
    tried = [_least_squares(shares, [number]) for number in numbers]
    if len(shares) > 1:
        tried.append(_least_squares(shares, numbers))
    return min(
        tried, key=lambda weights: fmean(fmean((_weighed(weights, x) - 1) ** 2 for x in each) for each in shares)
    )


def _least_squares(shares: Shares, used: Sequence[int]) -> list[float]:
    """Return the weights, none of them negative, by going down one after the other."""
    products = {(j, k): fmean(fmean(x[j] * x[k] for x in each) for each in shares) for j in used for k in used}
    sums = {k: fmean(fmean(x[k] for x in each) for each in shares) for k in used}
    weights = [0.0] * len(shares[0][0])
    for _ in range(ROUNDS):
        for k in used:
            others = sum(products[j, k] * weights[j] for j in used if j != k)
            weights[k] = max(0.0, (sums[k] - others) / products[k, k])
    return weights


def middle(shares: Shares) -> list[float]:
    """Return the weight of a single vocabulary in the middle of the extremes, where nobody knows which is the real."""
    middles = [median(share for [share] in each) for each in shares]
    return [(min(middles) * max(middles)) ** -0.5]


def _weighed(weights: Sequence[float], share: Sequence[float]) -> float:
    return sum(weight * each for weight, each in zip(weights, share, strict=True))


def main() -> None:
    """Measure, and print or write."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    archive = llama_cpp_archive(CACHE)
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
