"""The settings in force as JSON: every default filled in, each value with its source, and no secret."""

import math
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from elbowroom.errors import SettingsError
from elbowroom.settings.explain import SECRET_KEYS
from elbowroom.settings.keys import TABLE_LISTS, key_text
from elbowroom.settings.layers import FLAG, VARIABLE, LoadedSettings
from elbowroom.settings.listing import leaves, source_of
from elbowroom.settings.model import Settings, StoreSettings
from elbowroom.settings.secrets import SecretRef

AFTER_RESTART: Final = (
    ("server", "host"),
    ("server", "port"),
    *(("store", name) for name in StoreSettings.model_fields),
)
"""Keys that a running server does not follow."""


def shown_values(loaded: LoadedSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values, nested as in the file.

    A secret is `{"set": bool, "from": "env:NAME" | "file:PATH" | "literal" | None}`.
    """

    def shown(value: Any) -> Any:
        match value:
            case SecretRef():
                return _shown_secret(value, loaded, environ)
            case BaseModel():
                fields = {name: getattr(value, name) for name in type(value).model_fields}
                return {name: _or_no_secret(name, shown(part)) for name, part in _with_extras(fields, value).items()}
            case tuple() | list():
                return [shown(item) for item in value]
            case dict():
                return {name: shown(item) for name, item in value.items()}
            case float() if not math.isfinite(value):
                return str(value)
            case None | bool() | int() | float() | str():
                return value
            case _:  # a date or time, which a file may have where it is passed on to the model
                return str(value)

    values: dict[str, Any] = shown(loaded.settings)
    return values


def shown_sources(loaded: LoadedSettings) -> dict[str, str]:
    """Return where each value comes from, by its path: "default", "file", "environment" or "flag"."""
    return {key_text(key): _kind(source_of(loaded, key), loaded) for key, _ in leaves(loaded.settings)}


def restart_needed(started: Settings, now: Settings) -> list[str]:
    """Return the paths of what has been changed since the start and waits for the next one."""
    return [
        key_text((table, field))
        for table, field in AFTER_RESTART
        if getattr(getattr(started, table), field) != getattr(getattr(now, table), field)
    ]


def rows_by_name(values: Mapping[str, Any], table: str) -> dict[str, dict[str, Any]]:
    """Return the shown rows of a list of tables by their ids or names."""
    name = ROW_NAMES[table]
    return {row[name]: row for row in values.get(table, ())}


ROW_NAMES: Final = {table: "id" if "id" in model.model_fields else "name" for table, model in TABLE_LISTS.items()}
"""By which key the rows of a list of tables are told apart."""


def _with_extras(fields: dict[str, Any], value: BaseModel) -> dict[str, Any]:
    return {**fields, **(value.model_extra or {})}


def _or_no_secret(name: str, shown: Any) -> Any:
    return {"set": False, "from": None} if shown is None and name in SECRET_KEYS else shown


def _shown_secret(secret: SecretRef, loaded: LoadedSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    try:
        is_set = secret.reveal(loaded.folder, environ) is not None
    except SettingsError:
        is_set = False
    return {"set": is_set, "from": "literal" if secret.is_literal else str(secret)}


def _kind(source: str, loaded: LoadedSettings) -> str:
    if source == str(loaded.path):
        return "file"
    if source.startswith(VARIABLE):
        return "environment"
    return "flag" if source.startswith(FLAG) else source
