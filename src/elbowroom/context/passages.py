"""Passages of what was said, and the words by which they are found: pure, for every search in a conversation's past."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from elbowroom.context.memories import folded

LONGEST: Final = 400
"""Characters of a passage: some sentences, of which a prompt has room for a few."""
MOST_WORDS: Final = 50
"""How many different words of a question are looked for."""
END: Final = re.compile(r"\n+|(?<=[.!?…])\s+|(?<=[。！？])|(?<=।)\s*")
"""Where a sentence or a line ends."""
PIECE: Final = 2
"""Letters of a piece of a script without spaces."""
UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u30ff\u3100-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Letters of the scripts that write no spaces between words, from Thai to Japanese, and of Korean, whose words grow."""
INSIDE: Final = re.compile(r"\?(?=[\w/&#%=])")
"""A question mark as an address has it."""
GREEK: Final = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]\s?;")


@dataclass(frozen=True, slots=True)
class Span:
    """Where a passage of a text begins and ends."""

    begin: int
    end: int


def passages_of(text: str) -> Iterator[Span]:
    """Yield the passages of a text, word for word: whole sentences and lines as far as they are short enough.

    A longer one is cut between words, where it has some.
    """
    begin = end = 0
    for sentence in _sentences(text):
        if end > begin and sentence.end - begin > LONGEST:
            yield Span(begin, end)
            begin = sentence.begin
        end = sentence.end
        while end - begin > LONGEST:
            cut = text.rfind(" ", begin, begin + LONGEST) + 1 or begin + LONGEST
            yield Span(begin, cut)
            begin = cut
    if text[begin:end].strip():
        yield Span(begin, end)


def _sentences(text: str) -> Iterator[Span]:
    begin = 0
    for gap in END.finditer(text):
        if text[begin : gap.start()].strip():
            yield Span(begin, gap.start())
        begin = gap.end()
    if text[begin:].strip():
        yield Span(begin, len(text.rstrip()))


def in_pieces(text: str) -> str:
    """Return a text as a search reads it: without case and accents, and scripts without spaces in pieces."""
    plain = folded(text)
    return plain if plain.isascii() else UNSPACED.sub(_pieces, unicodedata.normalize("NFC", plain))


def _pieces(run: re.Match[str]) -> str:
    letters = run[0]
    return f" {' '.join(letters[at : at + PIECE] for at in range(max(1, len(letters) - PIECE + 1)))} "


def words_of(text: str) -> list[str]:
    """Return the different words of a text in their order, as a search looks for them."""
    letters = "".join(letter if _is_of_word(letter) else " " for letter in in_pieces(text))
    return list(dict.fromkeys(letters.split()))


@cache
def _is_of_word(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LMN" or letter == "\u200d"


def asks(text: str) -> bool:
    """Tell whether a text asks: it has a question mark, of whatever script, that stands in no address."""
    plain = INSIDE.sub("", text)
    return "?" in plain or (not plain.isascii() and (any(map(_is_question_mark, plain)) or bool(GREEK.search(plain))))


@cache
def _is_question_mark(letter: str) -> bool:
    return "QUESTION MARK" in unicodedata.name(letter, "") and "INVERTED" not in unicodedata.name(letter, "")


def asked_words(text: str) -> list[str]:
    """Return the words by which to find what a text asks for: of a long one those of the sentences that ask."""
    words = words_of(text)
    if len(words) > MOST_WORDS:
        asking = " ".join(said for each in _sentences(text) if asks(said := text[each.begin : each.end]))
        words = words_of(asking) if asking else words
    return words[:MOST_WORDS]
