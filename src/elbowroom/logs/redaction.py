"""Takes secrets out of texts: those of the settings by their values, others by what stands before them."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from elbowroom.errors import SettingsError
from elbowroom.settings.access import SECRET_WORDS, secrets_of
from elbowroom.settings.keys import Key
from elbowroom.settings.layers import LoadedSettings
from elbowroom.settings.secrets import HIDDEN, SecretRef

LEAST_LETTERS: Final = 4
"""Shorter values are left: taking every `1` out of a text would hide nothing and spoil all numbers."""
SURROUNDED_BELOW: Final = 8
"""Values shorter than this are taken out where they stand alone, not inside of words."""
NAMES: Final = r"(?:(?:api|access|secret)[_-]?key|token|secret|passw(?:or)?d|authorization|credential)s?"
EXCEPT: Final = r"(?!\*{8}|(?:Bearer|Basic)\b|env:|file:|[\d.]+(?![^\s'\",;&)\]}<\\]))"
SIGN: Final = r"(?:['\"]?\s?=\s?['\"]?|['\"]?:\s?['\"]|:)"
VALUE: Final = r"[^\s'\",;&)\]}<\\]{4,}"
PATTERNS: Final = (
    # https://user:password@host
    (re.compile(r"(?<=://)[^\s/@'\"<>\\]{1,400}@"), f"{HIDDEN}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s'\",;)\]}<\\]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\bsk-[A-Za-z0-9_:-]{8,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"), HIDDEN),
    # api_key=..., "token":"...", "token": "..."
    (re.compile(rf"({NAMES}{SIGN}){EXCEPT}{VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
    # X-Api-Key: ..., but not `the token: send it`
    (re.compile(rf"({NAMES}: ){EXCEPT}(?=\S*\d|\S{{16}}){VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
    # --api-key ..., ['--api-key', '...']
    (re.compile(rf"(--[\w-]{{0,30}}{NAMES}(?:\s+|['\"],\s*['\"])){EXCEPT}{VALUE}", re.IGNORECASE), rf"\1{HIDDEN}"),
)


class Redactor:
    """Replaces secrets by stars. What was once a secret of the settings stays one until the program ends."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self._followed: LoadedSettings | None = None

    def follow(self, loaded: LoadedSettings, environ: Mapping[str, str]) -> None:
        """Learn the secrets of these settings; costs nothing where they are the ones of last time."""
        if loaded is not self._followed:
            self._followed = loaded
            self.learn(*_values_of(loaded, environ))

    def learn(self, *values: str) -> None:
        """Take these for secrets from now on, also as they stand in addresses and in JSON."""
        forms = {form for value in values for form in (value, quote(value, safe=""), json.dumps(value)[1:-1])}
        self._values |= {form for form in forms if len(form) >= LEAST_LETTERS}
        longest_first = sorted(self._values, key=len, reverse=True)
        self._known = re.compile("|".join(map(_as_pattern, longest_first))) if longest_first else None

    def clean(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, replacement in PATTERNS:
            text = pattern.sub(replacement, text)
        return text


REDACTOR: Final = Redactor()
"""The program's own, as logging itself is the program's."""


def _as_pattern(value: str) -> str:
    return rf"(?<!\w){re.escape(value)}(?!\w)" if len(value) < SURROUNDED_BELOW else re.escape(value)


def _values_of(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[str]:
    for key, secret in secrets_of(loaded.settings).items():
        if _is_secret(key, secret):
            try:
                value = secret.reveal(loaded.folder, environ)
            except SettingsError:  # its file has gone since; what it held is not known
                continue
            if value:
                yield value


def _is_secret(key: Key, secret: SecretRef) -> bool:
    """Tell whether a value is one: what stands in the file for an MCP server's program may be a folder or a switch."""
    is_variable = key[0] == "mcp_servers" and key[2] == "env"
    return not (is_variable and secret.is_literal) or SECRET_WORDS.search(str(key[-1])) is not None
