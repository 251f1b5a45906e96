"""Texts of many languages and of many kinds of material, that no ratio and no bound was measured on."""

import base64
import json
import random
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

LANGUAGES = Path(__file__).with_name("many_scripts.txt")
KINDS = Path(__file__).with_suffix(".txt")
"""Kinds of material, each after a line with its name."""


def languages() -> Iterator[tuple[str, str]]:
    """Yield each language and the same sentences in it."""
    for line in LANGUAGES.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, _, text = line.partition("\t")
            yield name, text


def kinds() -> Iterator[tuple[str, str]]:
    """Yield kinds of material and a text of each."""
    for section in KINDS.read_text(encoding="utf-8").removeprefix("@ ").split("\n@ "):
        name, _, text = section.partition("\n")
        yield name, f"{text}\n"
    yield from _made(random.Random(33))


def _made(chance: random.Random) -> Iterator[tuple[str, str]]:
    rows = [
        (chance.randrange(10**6), f"2026-0{n % 9 + 1}-1{n % 9}T0{n % 9}:12:44Z", chance.random()) for n in range(12)
    ]
    records = [{"id": number, "at": at, "ok": number % 3 > 0, "rate": rate} for number, at, rate in rows]
    blob = zlib.compress(json.dumps(records).encode() * 3) + chance.randbytes(600)
    yield "JSON", json.dumps(records)
    yield "indented JSON", json.dumps(records, indent=4)
    yield "YAML", "".join(f"- id: {number}\n  rate: {rate:.3f}\n  tags: [a, b]\n" for number, _, rate in rows)
    yield "CSV", "".join(f'{number};{at};{rate:.5f};;"x, y"\n' for number, at, rate in rows)
    yield (
        "a log",
        "".join(f"{at} ERROR [worker-3] order={number} took {rate * 900:.1f}ms\n" for number, at, rate in rows),
    )
    yield "base64", base64.b64encode(blob).decode()
    yield "hexadecimal", blob.hex()
    yield "identifiers", "".join(f"{uuid.UUID(int=chance.getrandbits(128))}\n" for _ in range(20))
    yield "long numbers", " ".join(str(chance.getrandbits(90)) for _ in range(30))
    yield "white space", "a\n\n\n\n        b\t\t\tc      d\n" * 12
    yield "rules of signs", f"{'=' * 70}\n{'-' * 50}\n{'*~' * 30}\n{'#' * 20}{'!?' * 12}{'.' * 45}\n"
