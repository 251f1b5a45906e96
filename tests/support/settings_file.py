"""Settings from a text, as a test writes it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from elbowroom.errors import SettingsError
from elbowroom.settings.load import Flags, LoadedSettings, load_settings

AGENT = '[[agents]]\nid = "writer"\nmodel = "qwen2.5-7b-instruct"\n'
OPENAI = '[[providers]]\nid = "lmstudio"\nkind = "openai"\nbase_url = "http://127.0.0.1:8080"\n'


def load(
    folder: Path, text: str = "", environ: Mapping[str, str] | None = None, flags: Flags | None = None
) -> LoadedSettings:
    """Write the text into a settings file and load it; without a text there is no file."""
    path = folder / "settings.toml"
    if text:
        path.write_text(text, encoding="utf-8")
    return load_settings(path, environ or {}, flags or {})


def refusal(folder: Path, text: str = "", environ: Mapping[str, str] | None = None, flags: Flags | None = None) -> str:
    """Return what is said about settings that must not be accepted, with `FILE` for the path of the file."""
    with pytest.raises(SettingsError) as raised:
        load(folder, text, environ, flags)
    return raised.value.message.replace(str(folder / "settings.toml"), "FILE")
