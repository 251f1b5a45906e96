"""Finds what a result says has changed: the one sentence of it that nobody may miss once the result is shortened."""

import re
from itertools import pairwise
from typing import Final

from elbowroom.context.seam import StopFinder

LONGEST_CHANGE: Final = 200
READ: Final = 3000
"""So many characters at the beginning of a result are searched."""
CHANGED: Final = re.compile(
    r"\bno longer\b.{1,80}\bbut\b|\bchanged from\b.{1,80}\bto\b|\bha(?:s|ve) changed\b|\bchanged to\b|\bcorrection\b|"
    r"\b(?:moved|updated|renamed|postponed|raised|lowered) to\b|\b(?:is|are) now\b|\bnicht mehr\b.{1,80}\bsondern\b|"
    r"\bvon\b.{1,80}\bauf\b.{1,80}\bgeändert\b|\b(?:hat|haben) sich geändert\b|\bkorrektur\b|\b(?:ist|sind) jetzt\b|"
    r"\b(?:umbenannt in|verschoben auf|geändert (?:auf|in|zu))\b|\bcorrección\b|\bha cambiado\b|\ba changé\b|"
    r"ではなく|から.{1,40}に変|変わりました|変更(?:し|に|され)|訂正|になりました|改为|改成|更正|不再是"
)
"""How people say in small letters that something has changed."""


def change_in(text: str) -> str:
    """Return the last sentence at the beginning of a text that says what holds now, in one line; "" without any."""
    text = text[:READ]
    if not CHANGED.search(text.lower()):
        return ""
    places = [0, *StopFinder().places(text), len(text)]
    sentences = (" ".join(text[start:end].split()) for start, end in pairwise(places))
    found = [each for each in sentences if len(each) <= LONGEST_CHANGE and CHANGED.search(each.lower())]
    return found[-1] if found else ""
