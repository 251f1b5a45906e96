"""The settings in force as text, each value with its source and no secret shown."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from elbowroom.settings.keys import Key, key_text
from elbowroom.settings.layers import LoadedSettings
from elbowroom.settings.model import Sampling
from elbowroom.settings.secrets import SecretRef


def list_settings(loaded: LoadedSettings, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield one line a value: `server.port = 2345   (default)`."""
    for key, value in leaves(loaded.settings):
        yield f"{key_text(key)} = {_shown(value, environ)}   ({source_of(loaded, key)})"


def source_of(loaded: LoadedSettings, key: Key) -> str:
    """Return where a value comes from; one that is a table itself comes from where its parts do."""
    return next((source for found, source in loaded.sources.items() if found[: len(key)] == key), "default")


def leaves(value: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every value below a table of settings with its key; parameters of `sampling` only where they are set."""
    if isinstance(value, BaseModel):
        for name in [*type(value).model_fields, *(value.model_extra or {})]:
            part = getattr(value, name)
            if part is not None or not isinstance(value, Sampling):
                yield from leaves(part, (*key, name))
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for index, item in enumerate(value):
            yield from leaves(item, (*key, index))
    else:
        yield key, value


def _shown(value: Any, environ: Mapping[str, str]) -> str:
    match value:
        case SecretRef():
            name = str(value).removeprefix("env:")
            state = "" if not str(value).startswith("env:") else ", set" if environ.get(name) else ", not set"
            return f"{value}{state}"
        case None:
            return "not set"
        case bool():
            return str(value).lower()
        case tuple():
            return repr(list(value))
        case _:
            return repr(value)
