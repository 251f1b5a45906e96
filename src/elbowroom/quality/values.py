"""Makes the values of facts: amounts, dates, paths, addresses, names and words, none of them twice."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from elbowroom.quality.words import NAMES, WORDS, Language

MONTHS: Final[dict[Language, tuple[str, ...]]] = {
    "English": ("January", "April", "June", "September", "November"),
    "German": ("Januar", "April", "Juni", "September", "November"),
    "Japanese": ("1", "4", "6", "9", "11"),
}
STEMS: Final = ("harbour", "ledger", "signal", "anchor", "meter", "survey", "pier", "tariff")
TIMES: Final = (5, 10, 20, 25, 35, 40, 50)
FOLDERS, FILES, ENDINGS = ("src", "docs", "notes", "config"), ("main", "table", "step"), ("py", "md", "toml", "csv")
MAKERS: Final[Mapping[str, Callable[[random.Random, str], str]]] = {
    "time": lambda by, stem: f"{by.randint(6, 23):02}:{by.choice(TIMES):02}",
    "phone": lambda by, stem: f"+49 40 {by.randint(100000, 999999)}",
    "mail": lambda by, stem: f"{stem}{by.randint(10, 99)}@example.org",
    "percent": lambda by, stem: f"{by.randint(11, 89)}.{by.randint(1, 9)} %",
    "power": lambda by, stem: f"{by.randint(110, 980)} kW",
    "length": lambda by, stem: f"{by.randint(11, 98)}.{by.randint(1, 9)} m",
    "weight": lambda by, stem: f"{by.randint(110, 980)} kg",
    "milliseconds": lambda by, stem: f"{by.randint(110, 980)} ms",
    "ticket": lambda by, stem: f"{by.choice(('HAR', 'LED', 'SIG', 'MET'))}-{by.randint(1000, 9999)}",
    "url": lambda by, stem: f"https://{stem}.example.org/{by.choice('abk')}/{by.randint(1000, 9999)}",
    "path": lambda by, stem: (
        f"{by.choice(FOLDERS)}/{stem}/{by.choice(FILES)}_{by.randint(10, 999)}.{by.choice(ENDINGS)}"
    ),
    "address": lambda by, stem: (
        f"10.{by.randint(1, 250)}.{by.randint(1, 250)}.{by.randint(1, 250)}:{by.randint(2000, 9000)}"
    ),
    "version": lambda by, stem: f"v{by.randint(1, 9)}.{by.randint(0, 30)}.{by.randint(0, 30)}",
    "hash": lambda by, stem: f"{by.randint(10**9, 16**8):x}a{by.randint(10, 99)}",
    "function": lambda by, stem: f"{by.choice(('load', 'close', 'merge', 'read'))}_{stem}_{by.randint(10, 99)}",
    "constant": lambda by, stem: f"{stem.upper()}_KEY_{by.randint(10, 99)}",
}
"""How a value is made that is written alike in all languages."""


class Values:
    """Makes the values of one conversation."""

    def __init__(self, chance: random.Random, language: Language) -> None:
        self._chance = chance
        self._language: Language = language
        self._made: set[str] = set()

    def of(self, kind: str, other_than: Sequence[str] = ()) -> str:
        """Return a new value of a kind."""
        while (value := self._made_up(kind)) in self._made or value in other_than:
            pass
        self._made.add(value)
        return value

    def _made_up(self, kind: str) -> str:
        number, choice = self._chance.randint, self._chance.choice
        stem = choice(STEMS)
        if kind in MAKERS:
            return MAKERS[kind](self._chance, stem)
        if kind == "date":
            day, month = number(1, 28), choice(MONTHS[self._language])
            return self._written(f"{day} {month} 2027", f"{day}. {month} 2027", f"2027年{month}月{day}日")
        if kind in ("money", "number"):
            high, low, sign = number(12, 98), number(100, 999), " €" if kind == "money" else ""
            yen = "万円" if kind == "money" else ""
            return self._written(f"{sign[1:]}{high},{low}", f"{high}.{low}{sign}", f"{high}{low}{yen}")
        return choice((NAMES if kind == "name" else WORDS)[self._language])

    def _written(self, english: str, german: str, japanese: str) -> str:
        return {"English": english, "German": german, "Japanese": japanese}[self._language]
