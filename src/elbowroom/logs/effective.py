"""The settings in force as the log has them: each with its source, without secrets and without texts for models."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from elbowroom.logs.one_line import escaped, shortened
from elbowroom.settings.layers import LoadedSettings
from elbowroom.settings.listing import list_settings
from elbowroom.settings.secrets import without_secrets

TEXTS: Final = re.compile(r"(?:instructions|prompt|directives|tool_description|command|stop)$")
"""Keys whose values are texts for a model, or arguments of a program, among which a secret may stand."""
LINE: Final = re.compile(r"(?P<key>.+?) = (?P<value>.*?)   \((?P<source>[^()]*(?:\([^()]*\))?[^()]*)\)", re.DOTALL)
LONGEST_VALUE: Final = 300


def effective_settings(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each key with its value and where that comes from, such as `2345 (default)`."""
    for line in list_settings(loaded, environ):
        if found := LINE.fullmatch(line):
            value = found["value"]
            if TEXTS.search(found["key"]) and value not in ("''", "[]", "not set"):
                value = f"{len(value)} characters"
            value = without_secrets(value) if "://" in value else value
            yield found["key"], f"{escaped(shortened(value, LONGEST_VALUE))} ({found['source']})"
