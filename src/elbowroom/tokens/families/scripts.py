"""Tells which writing systems a text is in, and which language groups within those that many languages share.

A vocabulary cuts languages differently although they share a script: Llama 3 knows Ukrainian, Persian and Czech well,
and Kazakh, Uyghur and Slovak less. Letters that only some of the languages have tell them apart.
"""

import re
from collections.abc import Mapping
from typing import Final

SPACED: Final[Mapping[str, str]] = {
    "hangul": "\uac00-\ud7af\u1100-\u11ff",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "cyrillic": "\u0400-\u052f",
    "armenian": "\u0530-\u058f",
    "hebrew": "\u0590-\u05ff",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\u200c",
    "syriac": "\u0700-\u074f",
    "nko": "\u07c0-\u07ff",
    "devanagari": "\u0900-\u097f",
    "bengali": "\u0980-\u09ff",
    "gurmukhi": "\u0a00-\u0a7f",
    "gujarati": "\u0a80-\u0aff",
    "oriya": "\u0b00-\u0b7f",
    "tamil": "\u0b80-\u0bff",
    "telugu": "\u0c00-\u0c7f",
    "kannada": "\u0c80-\u0cff",
    "malayalam": "\u0d00-\u0d7f",
    "sinhala": "\u0d80-\u0dff",
    "thai": "\u0e00-\u0e7f",
    "lao": "\u0e80-\u0eff",
    "tibetan": "\u0f00-\u0fff",
    "burmese": "\u1000-\u109f",
    "georgian": "\u10a0-\u10ff\u1c90-\u1cbf",
    "ethiopic": "\u1200-\u139f",
    "cherokee": "\u13a0-\u13ff\uab70-\uabbf",
    "syllabics": "\u1400-\u167f",
    "khmer": "\u1780-\u17ff",
    "mongolian": "\u1800-\u18af",
    "tifinagh": "\u2d30-\u2d7f",
}
"""Writing systems with their letters; a space before a word belongs to it."""

UNSPACED: Final[Mapping[str, str]] = {
    "han": "\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f",
    "boxes": "\u2500-\u259f",
    "braille": "\u2800-\u28ff",
    "mathematics": "\u2070-\u209f\u2200-\u23ff\u27c0-\u27ff\u2900-\u2aff",
    "emoji": "\u2190-\u21ff\u2460-\u24ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\u200d\ufe0f\u20e3"
    "\U000e0020-\U000e007f",
    "letterlike": "\u2100-\u218f\u0250-\u036f\U0001d400-\U0001d7ff",
    "other": "\u0590-\u1dff\u2c00-\u2fff\u3100-\u33ff\ua000-\uabff\ue000-\uf8ff\ufb00-\ufe0e\ufe20-\ufeff"
    "\U00010000-\U0010ffff",
}
PLAIN: Final = "[A-Za-z]{0,40}"
MARKED: Final = "\u00c0-\u024f\u0259\u1e00-\u1eff"
ACCENTED_WORD: Final = f"{PLAIN}[{MARKED}][A-Za-z{MARKED}\u0300-\u036f]{{0,40}}"
BETWEEN: Final = "[ ,.;:'\u2019-]{1,3}"
ACCENTED: Final = f" ?{ACCENTED_WORD}(?:(?:{BETWEEN}[A-Za-z]{{1,40}}){{0,8}}?(?:{BETWEEN})?{ACCENTED_WORD})*"
"""Latin words with accents, with the plain words between two of them, which are of the same language."""
RUNS: Final = re.compile(
    "|".join(
        [
            f"(?P<han>[{UNSPACED['han']}]+)",
            *(f"(?P<{name}>(?: ?[{letters}]+)+)" for name, letters in SPACED.items()),
            f"(?P<accented>{ACCENTED})",
            *(f"(?P<{name}>[{letters}]+)" for name, letters in UNSPACED.items() if name != "han"),
        ]
    )
)
KANA: Final = re.compile("[\u3041-\u30ff]")
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "cyrillic": {
        "turkic": "әғқңөұүһҳҷ",
        "belarusian": "ў",
        "serbian": "јљњћђџќѓѕ",
        "ukrainian": "іїєґ",
        "russian": "ыэ",
    },
    "arabic": {"uyghur": "ەۇۆۈڭ", "urdu": "ٹڈڑےں", "pashto": "ښځړډ", "persian": "پچژگیک"},
    "hebrew": {"yiddish": "װױײ\u05b7\u05b8"},
    "accented": {"azerbaijani": "ə", "czech": "ěřů", "polish": "łżśź", "vietnamese": "ơưạấầậ", "turkish": "ğı"},
}
"""The language groups of scripts, each with letters that tell it from those after it."""
LEAST_SHARE: Final = 1 / 200
"""The share of the letters of a text from which letters of a group are more than a foreign name."""


def script_runs(text: str) -> dict[str, str]:
    """Return the joined runs of each script in a text, by its name or that of the language group within it."""
    if text.isascii():
        return {}
    runs: dict[str, list[str]] = {}
    for match in RUNS.finditer(text):
        script = match.lastgroup or "other"
        if script == "han" and KANA.search(match.group()):
            script = "kana"  # Chinese characters next to kana are Japanese
        runs.setdefault(script, []).append(match.group())
    return {_kind(script, joined): joined for script, parts in runs.items() if (joined := "".join(parts))}


def _kind(script: str, text: str) -> str:
    """Return the language group of a text in one script, or the script where no group's letters are in it."""
    for kind, letters in KINDS.get(script, {}).items():
        if sum(map(text.count, letters)) > LEAST_SHARE * len(text):
            return kind
    return script
