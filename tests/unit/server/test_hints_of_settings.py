"""Each setting that the page shows has a name for people there."""

import re
from pathlib import Path

from elbowroom.settings.model import ModelSettings, Settings

HINTS = Path(__file__).parents[3] / "src" / "elbowroom" / "server" / "page" / "hints.js"
TABLES = ("compaction", "memory", "tool_output", "vault", "store", "server")


def test_each_setting_has_a_name() -> None:
    """None appears under the key that the settings file has."""
    table, named = "", set[tuple[str, str]]()
    for line in HINTS.read_text(encoding="utf-8").splitlines():
        if (begins := re.match(r"\t(\w+): \{$", line)) is not None:
            table = begins[1]
        elif (entry := re.match(r'\t\t"?([\w.]+)"?: \["\S', line)) is not None:
            named.add((table, entry[1]))
    settings = {name: field.annotation for name, field in Settings.model_fields.items() if name in TABLES}
    keys = {(name, key) for name, table_of in settings.items() for key in table_of.model_fields}  # type: ignore[union-attr]
    keys |= {("models", key) for key in ModelSettings.model_fields}
    assert keys - named == set()
