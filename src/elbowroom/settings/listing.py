"""The settings in force as text, each value with its source and no secret shown."""

from collections.abc import Iterator, Mapping
from typing import Any

from elbowroom.settings.layers import Key, LoadedSettings, key_text
from elbowroom.settings.secrets import SecretRef


def list_settings(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield one line a value: `server.port = 2345   (default)`."""
    for key, value in _leaves(loaded.settings, ()):
        source = loaded.sources.get(key) or _source_of_part(loaded, key)
        yield f"{key_text(key)} = {_shown(value, environ)}   ({source})"


def _source_of_part(loaded: LoadedSettings, key: Key) -> str:
    parts = (key[:length] for length in range(len(key) - 1, 0, -1))
    return next((loaded.sources[part] for part in parts if part in loaded.sources), "default")


def _leaves(value: Any, key: Key) -> Iterator[tuple[Key, Any]]:
    if hasattr(value, "model_fields_set"):
        names = [*type(value).model_fields, *(value.model_extra or {})]
        for name in names:
            yield from _leaves(getattr(value, name), (*key, name))
    elif isinstance(value, tuple) and value and hasattr(value[0], "model_fields_set"):
        for index, item in enumerate(value):
            yield from _leaves(item, (*key, index))
    elif value is not None:
        yield key, value


def _shown(value: Any, environ: Mapping[str, str]) -> str:
    if isinstance(value, SecretRef):
        name = str(value).removeprefix("env:")
        state = "" if not str(value).startswith("env:") else ", set" if environ.get(name) else ", not set"
        return f"{value}{state}"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value)) if isinstance(value, tuple) else repr(value)
