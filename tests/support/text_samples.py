"""Texts of many kinds, the same on every run: what tokenizers are trained on and compared with."""

import random
import string
from pathlib import Path
from typing import Final

ODD_PIECES: Final = (
    *(
        " ",
        "  ",
        "    ",
        "\n",
        "\n\n\n",
        "\r\n",
        "\t",
        "\u00a0",
        "\u3000",
        "\u0301",
        "\ufeff",
        "\x00",
        "\x7f",
    ),
    *("a", "B", "word", "Word", "WORD", "1", "23", "456", "7890123", ".", "!!", "...", "'s", "'LL", "don't"),
    *(
        "/",
        "//\n",
        "_",
        "é",
        "ß",
        "Ⅷ",
        "²",
        "ﷺ",
        "🙂",
        "👩‍👩‍👧",
        "漢字",
        "かな",
        "カナ",
        "한국어",
        "हिन्दी",
        "ไทย",
    ),
)
JAPANESE: Final = (
    "これは日本語の文章です。辞書は、テキストを小さな単位に分割します。"
    "価格は1,234円\uff08税込\uff09で、2024年3月15日に発売されました\uff01\n"
)


def prose(seed: int, words: int) -> str:
    """Return made-up sentences of Latin letters."""
    chance = random.Random(seed)
    syllables = [
        "ba",
        "co",
        "der",
        "fin",
        "gra",
        "lo",
        "mi",
        "net",
        "pra",
        "sta",
        "tion",
        "ver",
        "ing",
        "the",
    ]
    text = []
    for _ in range(words):
        word = "".join(chance.choices(syllables, k=chance.randint(1, 4)))
        ending = chance.choice(["", "", "", "", ",", ".", ".\n", "!", "'s"])
        text.append((word.title() if chance.random() < 0.1 else word) + ending)
    return " ".join(text)


def numbers(seed: int, lines: int) -> str:
    """Return a log with times, addresses and hexadecimal numbers."""
    chance = random.Random(seed)
    return "".join(
        f"2024-03-{chance.randint(1, 28):02d} 0x{chance.getrandbits(48):012x} size={chance.randint(0, 10**9)}"
        f" [{chance.choice(['INFO', 'WARN'])}] {chance.random():.6f}\n"
        for _ in range(lines)
    )


def odd(seed: int, pieces: int) -> str:
    """Return a wild mix of spaces, signs, scripts and emoji."""
    return "".join(random.Random(seed).choices(ODD_PIECES, k=pieces))


def unbroken(seed: int, length: int) -> str:
    """Return letters and digits without any space, as in base64."""
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits + "+/", k=length))


def samples(seed: int = 1) -> dict[str, str]:
    """Return one text of each kind, some thousand characters in all."""
    return {
        "prose": prose(seed, 400),
        "code": Path(__file__).read_text(encoding="utf-8"),
        "json": '{"name": "value", "items": [1, 22, 333, null, true], "nested": {"a": "b"}}\n' * 8,
        "japanese": JAPANESE * 6,
        "numbers": numbers(seed, 20),
        "odd": odd(seed, 600),
        "unbroken": unbroken(seed, 800),
        "spaces": "x  y   z\n\n    if a:\n\t\treturn\r\n   \n",
        "empty": "",
    }
