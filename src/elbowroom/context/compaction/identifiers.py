"""Finds identifiers in a text by their form alone, in whatever language: what a paraphrase would destroy.

They are what somebody has enclosed in quotation marks or as code; figures, unless one is so short that it may be a
count; and words that are not written as words are: with a digit, with a dot, `_` or `@` between letters, with several
slashes, or with capital letters after small ones.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from elbowroom.context.compaction.coverage import UNSPACED

LONGEST: Final = 200
LONGEST_COUNT: Final = 2
"""Digits of a figure that may be a count of things."""
ENCLOSED: Final = (
    r"``?[^`\n]{2,100}``?|\[\[[^\[\]\n]{1,100}\]\]|(?<![\w\\=])\"[^\"\n]{2,60}\"(?!\w)|(?<!\w)'[^'\n]{2,60}'(?!\w)|"
    r"[“„][^“”„\n]{2,60}[“”]|«[^«»\n]{2,60}»|(?<!\w)‘[^‘’\n]{2,60}’(?!\w)|「[^「」\n]{1,40}」|『[^『』\n]{1,40}』|"
    r"《[^《》\n]{1,40}》"
)
BETWEEN: Final = rf"\s()\[\]{{}}<>\"“”„«»`|…=*;–—、。，；：！？（）「」『』《》{UNSPACED}"
"""What no word has inside; a comma only where digits are on both sides of it."""
PIECE: Final = re.compile(
    rf"(?P<plain>(?:[A-Z]?[a-z]++[.,;:!?]*+\s++)++)|(?P<quotation>{ENCLOSED})|"
    rf"(?<!\w)\w++://[^\s<>\"'`|)\]}}{UNSPACED}]+|[^{BETWEEN},]++(?:(?<=\d),(?=\d)[^{BETWEEN},]++)*+"
)
NUMBERED: Final = re.compile(r"^[^\S\n]*\d+[.)]\s", re.MULTILINE)
"""The number of an item of a list."""
QUOTES: Final = "\"'`“”„‘’«»「」『』《》"
DISTINCTIVE: Final = re.compile(r"[A-Z0-9_.]|[^\x00-\u024f]")
EDGE: Final = re.compile(r"^(?:[^\w#]|#(?!\w)|_)+|[\W_]+$")
FIGURE: Final = re.compile(r"(\d(?:[\d.,:'/-]*\d)?)\D*")
JOINS: Final = {r"\d": ((r"\d", r"\d[.,]"), (r"\d", r"[.,]\d")), "[A-Za-z]": (("[A-Za-z]",), ("[A-Za-z]",))}
"""For each kind of character, what before it and what after it belongs to the same figure or word."""
UNLIKE_A_WORD: Final = re.compile(r"\d|\w[_@]\w|\\\w|\w::\w|\w\w\.\w|\w\.\w\w|/.*/|(?:[a-z][A-Z].*){2}")


class Identifier(NamedTuple):
    """What has to be kept as it is; the quotation marks around it, and a unit behind a figure, are not part of it."""

    core: str
    kind: Literal["quotation", "figure", "word"]

    @property
    def is_name(self) -> bool:
        """Tell whether it names one thing: no figure does, and no quotation of plain words in small letters."""
        return self.kind == "word" or (self.kind == "quotation" and bool(DISTINCTIVE.search(self.core)))


def find_identifiers(text: str) -> Iterator[Identifier]:
    """Yield the identifiers of a text in order; none within another: a path in quotes is a quotation."""
    for piece in PIECE.finditer(NUMBERED.sub("", text)):
        if piece["plain"] or len(piece[0]) > LONGEST:
            continue
        if piece["quotation"]:
            yield Identifier(piece[0].strip(QUOTES), "quotation")
        elif figure := FIGURE.fullmatch(word := EDGE.sub("", piece[0])):
            if len(figure[1]) > LONGEST_COUNT:
                yield Identifier(figure[1], "figure")
        elif UNLIKE_A_WORD.search(word):
            yield Identifier(word, "word")


def stands_in(core: str, text: str) -> bool:
    """Tell whether a text holds this, and not merely as a part of a longer word or figure, as 18192 holds 8192.

    Scripts without spaces have no borders of words to look for.
    """
    if core not in text:
        return False
    before, after = ([kind for kind in JOINS if re.match(kind, end)] for end in (core[:1], core[-1:]))
    literal = re.escape(core)  # comes first, since a literal is searched for the fastest
    borders = [f"(?<!{left}{literal})" for kind in before for left in JOINS[kind][0]]
    borders += [f"(?!{right})" for kind in after for right in JOINS[kind][1]]
    return re.search(literal + "".join(borders), text) is not None
