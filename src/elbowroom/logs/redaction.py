"""Removes from log lines what they must not hold: secrets, and what a client has said.

Secrets of the settings are known by their values, others by the words in front of them.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from elbowroom.errors import SettingsError
from elbowroom.settings.doubts import secrets_of, sounds_secret
from elbowroom.settings.fields import HIDDEN
from elbowroom.settings.load import LoadedSettings

NAMES_KEPT: Final = 256
LEAST_LETTERS: Final = 4
"""Shorter values are not removed: without every `1`, a text would hide nothing and lose its numbers."""
SURROUNDED_BELOW: Final = 8
"""Shorter values are removed where they stand alone, not inside words."""
NAMES: Final = r"(?:(?:api|access|secret)[_-]?key|token|secret|passw(?:or)?d|authorization|credential)s?"
EXCEPT: Final = r"(?!\*{8}|(?:Bearer|Basic)\b|env:|file:|\$\(|[\d.]+(?![^\s'\",;&)\]}<\\]))"
SIGN: Final = r"(?:['\"]?\s?=\s?['\"]?|['\"]?:\s?['\"]|:)"
VALUE: Final = r"[^\s'\",;&)\]}<\\]{4,}"
PATTERNS: Final = (
    # https://user:password@host
    (re.compile(r"(?<=://)[^\s/@'\"<>\\]{1,400}@"), f"{HIDDEN}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s'\",;)\]}<\\]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:sk-|elbp_)[A-Za-z0-9_:-]{8,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"), HIDDEN),
    # api_key=..., "token":"...", "token": "..."
    (re.compile(rf"({NAMES}{SIGN}){EXCEPT}{VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
    # X-Api-Key: ..., but not `the token: send it`
    (re.compile(rf"({NAMES}: ){EXCEPT}(?=\S*\d|\S{{16}}){VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
    # --api-key ..., ['--api-key', '...']
    (re.compile(rf"(--[\w-]{{0,30}}{NAMES}(?:\s+|['\"],\s*['\"])){EXCEPT}{VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
)
PIECE: Final = 16
"""The number of characters of a piece of a line that is compared with the client's words."""
STRIDE: Final = 4
MOST_CHARACTERS: Final = 1_000_000
"""The most characters of a client that are searched; it takes some tenths of a second, and no window is that large."""
TAKEN_OUT: Final = "[...]"
PICTURE: Final = "data:"
CONTROL: Final = re.compile(r"[\x01-\x1f\x7f-\x9f\u2028\u2029]")
FIELDS: Final = ("messages", "input", "prompt", "text", "message", "content")
"""The fields of a request body that hold the client's words."""


class Redactor:
    """Replaces secrets by stars. A secret of the settings stays one until the program ends, even if it is changed."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self._followed: LoadedSettings | None = None
        self._names: dict[str, str] = {}

    def follow(self, loaded: LoadedSettings, environ: Mapping[str, str]) -> None:
        """Learn the secrets of these settings, unless they are those of the last call."""
        if loaded is not self._followed:
            self._followed = loaded
            self.learn(*_values_of(loaded, environ))

    def learn(self, *values: str) -> None:
        """Treat these values as secrets from now on, also in the forms that they have in addresses and in JSON."""
        forms = {form for value in values for form in (value, quote(value, safe=""), json.dumps(value)[1:-1])}
        self._values |= {form for form in forms if len(form) >= LEAST_LETTERS}
        longest_first = sorted(self._values, key=len, reverse=True)
        self._known = re.compile("|".join(map(_as_pattern, longest_first))) if longest_first else None
        self._names.clear()

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, replacement in PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def clean_name(self, name: str) -> str:
        """Return what `clean` returns for a name of a few letters, which comes again and again."""
        if (known := self._names.get(name)) is None:
            if len(self._names) >= NAMES_KEPT:
                self._names.clear()
            known = self._names[name] = self.clean(name)
        return known


REDACTOR: Final = Redactor()
"""The redactor of the whole program, since logging is global too."""


def _as_pattern(value: str) -> str:
    return rf"(?<!\w){re.escape(value)}(?!\w)" if len(value) < SURROUNDED_BELOW else re.escape(value)


def _values_of(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[str]:
    for key, secret in secrets_of(loaded.settings).items():
        if not secret.is_literal or sounds_secret(key):
            try:
                value = secret.reveal(loaded.folder, environ)
            except SettingsError:  # its file has been deleted since
                continue
            if value:
                yield value


class ClientWords:
    """The words of a client, which are removed from log lines; prepared for searching at the first line.

    `bodies` are those of requests, parsed and of any type; those of the last one are searched first.
    """

    def __init__(self, bodies: tuple[Any, ...]) -> None:
        self.bodies = bodies
        self._folded: str | None = None

    def removed_from(self, line: str, names: Sequence[str] = ()) -> str:
        """Return the line without repetitions of these words; `names` in it stay.

        Every repetition of at least `PIECE + STRIDE` characters is found.
        """
        names = [name for name in names if len(name) >= PIECE]  # no shorter one is taken for a repetition
        for number, name in enumerate(names):
            line = line.replace(name, f"\0{number}\0")  # which is in no line and in none of the words
        line = self._without_repetitions(line)
        for number, name in enumerate(names):
            line = line.replace(f"\0{number}\0", name)
        return line

    def _without_repetitions(self, line: str) -> str:
        if self._folded is None:
            tables = [body if isinstance(body, dict) else {FIELDS[0]: body} for body in self.bodies]
            said = [table[name] for table in tables for name in FIELDS if name in table]
            self._folded = _fold("\n".join(_long_strings(said)))
        parts: list[str] = []
        place = 0
        for start in range(0, len(line) - PIECE + 1, STRIDE) if self._folded else ():
            if start >= place and _fold(line[start : start + PIECE]) in self._folded:
                first, last = _widened(line, start, place, self._folded)
                parts += [line[place:first], TAKEN_OUT]
                place = last
        return "".join([*parts, line[place:]])


def _widened(line: str, start: int, least: int, said: str) -> tuple[int, int]:
    """Return start and end of the repetition in the line around a piece that is one."""
    first, last = start, start + PIECE
    while first > least and _fold(line[first - 1 : last]) in said:
        first -= 1
    while last < len(line) and _fold(line[first : last + 1]) in said:
        last += 1
    return first, last


def _long_strings(texts: Iterable[Any]) -> Iterator[str]:
    left = MOST_CHARACTERS
    for text in _strings(list(texts)):  # the last of the conversation first
        if len(text) >= PIECE and not text.startswith(PICTURE):
            yield text[:left]
            left -= len(text)
        if left <= 0:
            return


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case dict() as table:
                waiting.extend(table.values())
            case list() | tuple() as items:
                waiting.extend(items)
            case _:
                pass  # a number says nothing


def _fold(text: str) -> str:
    """Return the text as one line in lower case, as errors may quote it."""
    return CONTROL.sub(" ", text).lower()
