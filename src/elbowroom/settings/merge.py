"""Merges a change into the content of the settings file, and shows settings without their secrets.

A change is a merge patch (RFC 7396) in which names identify the rows of a list of tables. Secrets in it go into files
of their own.
"""

import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

from elbowroom.errors import SettingsError
from elbowroom.settings.explain import SECRET_KEYS
from elbowroom.settings.fields import SecretRef
from elbowroom.settings.keys import TABLE_LISTS, key_text
from elbowroom.settings.load import FLAG, VARIABLE, LoadedSettings, leaves, source_of
from elbowroom.settings.model import Settings, StoreSettings

Row = dict[str, Any]
DEFAULT_ROWS: Mapping[str, list[Row]] = {"providers": [{"id": "lmstudio", "kind": "lmstudio"}]}
"""The rows that exist while the file has none."""
FOLDER: Final = "secrets"
"""The folder beside the settings file that holds the files with secrets."""
OWN_FORM: Final = re.compile(rf"file:{FOLDER}/([A-Za-z0-9._-]+-[0-9a-f]{{12}})")
SECRET_TABLES: Final = ("env", "headers")
AFTER_RESTART: Final = (
    ("server", "host"),
    ("server", "port"),
    *(("store", name) for name in StoreSettings.model_fields),
)
"""Keys whose change takes effect at the next start."""
ROW_NAMES: Final = {table: "id" if "id" in model.model_fields else "name" for table, model in TABLE_LISTS.items()}
"""The key that identifies a row of each list of tables."""


def merged(data: Mapping[str, Any], patch: Mapping[str, Any], shown: Mapping[str, Any]) -> Row:
    """Return the content of the file after a merge patch; `data` is its content now, `shown` the values in force.

    A value that is in force already stays as the file has it. Something else than a table, where a table belongs, is
    returned as it is: the validation explains it.
    """
    new = dict(data)
    for name, change in patch.items():
        if name in ROW_NAMES and isinstance(change, dict | list):
            rows = data.get(name, DEFAULT_ROWS.get(name, []))
            if not _is_rows(change):
                new[name] = change
            elif isinstance(rows, list) and _is_rows(rows):
                _put_rows(new, name, _merged_rows(name, rows, change, shown))
        elif isinstance(change, dict):
            before = data.get(name, {})
            if isinstance(before, dict) and ((table := _merged_row(before, change, shown.get(name, {}))) or before):
                new[name] = table
        elif change is None:
            new.pop(name, None)
        else:
            new[name] = change
    return new


def asked_for(patch: Mapping[str, Any], new: Mapping[str, Any]) -> Row:
    """Return the part of a change that sets values, in the form of the file: its rows are in the order of `new`."""
    asked: Row = {}
    for name, change in patch.items():
        if name in ROW_NAMES and isinstance(rows := new.get(name), list) and isinstance(change, dict | list):
            by_name = _by_final_name(name, change)
            asked[name] = [_set_in(by_name.get(_name_of(name, row), {})) for row in rows]
        elif change is not None:
            asked[name] = _set_in(change) if isinstance(change, dict) else change
    return asked


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are the same; true differs from 1, and 1 from 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return _kind(one) is _kind(other) and repr(one) == repr(other)


def _kind(value: Any) -> type:
    return str if isinstance(value, str) else type(value)


def _put_rows(new: Row, name: str, rows: list[Row]) -> None:
    if name not in new and is_same(rows, DEFAULT_ROWS.get(name)):
        return
    if rows or name in DEFAULT_ROWS:
        new[name] = rows
    else:
        new.pop(name, None)


def _merged_rows(table: str, rows: list[Row], change: Row | list[Row], shown: Mapping[str, Any]) -> list[Row]:
    in_force, before = rows_by_name(shown, table), {_name_of(table, row): row for row in rows}
    if isinstance(change, list):
        named = [(_name_of(table, row), row) for row in change]
        return [_merged_row(before.get(name, {}), row, in_force.get(name, {}), replaces=True) for name, row in named]
    wishes = [(row, _name_of(table, row)) for row in rows]
    kept = [(row, name, change.get(name, {})) for row, name in wishes]
    added = [(name, wish) for name, wish in change.items() if name not in before and wish is not None]
    return [
        *(_merged_row(row, wish, in_force.get(name, {})) for row, name, wish in kept if wish is not None),
        *(_merged_row({}, {ROW_NAMES[table]: name, **wish}, {}) for name, wish in added),
    ]


def _merged_row(row: Row, change: Row, shown: Mapping[str, Any], *, replaces: bool = False) -> Row:
    new = {name: value for name, value in row.items() if not replaces or name in change}
    for name, value in change.items():
        if value is None:
            new.pop(name, None)
        elif value is Keep.KEEP or (name in shown and is_same(_as_sent(value), _as_sent(shown[name]))):
            continue
        elif isinstance(value, dict):
            before = row[name] if isinstance(row.get(name), dict) else {}
            below = shown.get(name)
            part = _merged_row(before, value, below if isinstance(below, dict) else {}, replaces=replaces)
            if part or name in row:
                new[name] = part
        else:
            new[name] = value
    return new


def _as_sent(value: Any) -> Any:
    """Return a value as web pages send it, which know one kind of number only."""
    if isinstance(value, dict):
        return {name: _as_sent(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_sent(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_rows(rows: Row | list[Any]) -> bool:
    if isinstance(rows, dict):
        return all(row is None or isinstance(row, dict) for row in rows.values())
    return all(isinstance(row, dict) for row in rows)


def _by_final_name(table: str, change: Row | list[Any]) -> dict[str, Row]:
    """Return the changes by the names that the rows have after the change."""
    named = change.items() if isinstance(change, dict) else (("", row) for row in change)
    rows = [{ROW_NAMES[table]: name, **row} for name, row in named if isinstance(row, dict)]
    return {_name_of(table, row): row for row in rows}


def _name_of(table: str, row: Any) -> str:
    name = row.get(ROW_NAMES[table]) if isinstance(row, dict) else None
    return name if isinstance(name, str) else ""


def _set_in(change: Row) -> Row:
    return {name: value for name, value in change.items() if value is not None}


class Keep(Enum):
    """Stands for a secret that the client sent back as it is shown: it stays unchanged."""

    KEEP = "keep"


class GivenSecret(str):
    """A secret that the client wrote."""

    __slots__ = ()


def mark_secrets(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change of the settings with each secret as a GivenSecret or Keep."""
    marked = dict(patch)
    if isinstance(server := patch.get("server"), dict):
        marked["server"] = _marked_at(server, ("token",))
    marked |= {table: _in_rows(patch[table], _marked_row) for table in ("providers", "mcp_servers") if table in patch}
    return marked


def extract_secrets(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the content of the file with references in place of given secrets, and the secrets by file name.

    Each file has a new name, so that a reader of the old settings still finds the old secret.
    """
    files: dict[str, str] = {}

    def replaced(value: Any, place: str) -> Any:
        if isinstance(value, GivenSecret):
            if not SecretRef(value).is_literal:
                return str(value)
            name = f"{re.sub(r'[^A-Za-z0-9._-]', '_', place)[:80]}-{secrets.token_hex(6)}"
            files[name] = value.strip()
            return f"file:{FOLDER}/{name}"
        if isinstance(value, dict):
            return {key: replaced(item, f"{place}.{key}" if place else key) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item, f"{place}.{_name_or_index(item, index)}") for index, item in enumerate(value)]
        return value

    return replaced(data, ""), files


def own_files(data: Any) -> Iterator[str]:
    """Yield the names of the secret files of elbowroom's own that a settings file refers to."""
    if isinstance(data, str):
        if found := OWN_FORM.fullmatch(data):
            yield found[1]
    elif isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            yield from own_files(item)


def _in_rows(rows: Any, marked: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(rows, dict):
        return {name: marked(row) if isinstance(row, dict) else row for name, row in rows.items()}
    if isinstance(rows, list):
        return [marked(row) if isinstance(row, dict) else row for row in rows]
    return rows


def _marked_row(row: dict[str, Any]) -> dict[str, Any]:
    marked = _marked_at(row, ("api_key",))
    return marked | {
        table: _marked_at(row[table], row[table]) for table in SECRET_TABLES if isinstance(row.get(table), dict)
    }


def _marked_at(row: dict[str, Any], names: Any) -> dict[str, Any]:
    return {name: _marked(value) if name in names else value for name, value in row.items()}


def _marked(value: Any) -> Any:
    if isinstance(value, dict) and "set" in value and value.keys() <= {"set", "from"}:
        return Keep.KEEP
    return GivenSecret(value) if isinstance(value, str) else value


def _name_or_index(item: Any, index: int) -> str:
    return str(item.get("id") or item.get("name") or index) if isinstance(item, dict) else str(index)


def shown_values(loaded: LoadedSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values in force, nested as in the file.

    A secret is `{"set": bool, "from": "env:NAME" | "file:PATH" | "literal" | None}`.
    """

    def shown(value: Any) -> Any:
        match value:
            case SecretRef():
                return _shown_secret(value, loaded, environ)
            case BaseModel():
                fields = {name: getattr(value, name) for name in type(value).model_fields} | (value.model_extra or {})
                return {name: _or_no_secret(name, shown(part)) for name, part in fields.items()}
            case tuple() | list():
                return [shown(item) for item in value]
            case dict():
                return {name: shown(item) for name, item in value.items()}
            case float() if not math.isfinite(value):
                return str(value)
            case None | bool() | int() | float() | str():
                return value
            case _:  # a date or time among the sampling parameters
                return str(value)

    values: dict[str, Any] = shown(loaded.settings)
    return values


def shown_sources(loaded: LoadedSettings) -> dict[str, str]:
    """Return where each value comes from, by its path: "default", "file", "environment" or "flag"."""
    return {key_text(key): _kind_of_source(source_of(loaded, key), loaded) for key, _ in leaves(loaded.settings)}


def restart_needed(started: Settings, now: Settings) -> list[str]:
    """Return the paths of the settings that have changed since the start and need a restart."""
    return [
        key_text((table, field))
        for table, field in AFTER_RESTART
        if getattr(getattr(started, table), field) != getattr(getattr(now, table), field)
    ]


def rows_by_name(values: Mapping[str, Any], table: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a list of tables, as they are shown, by their ids or names."""
    name = ROW_NAMES[table]
    return {row[name]: row for row in values.get(table, ())}


def _or_no_secret(name: str, shown: Any) -> Any:
    return {"set": False, "from": None} if shown is None and name in SECRET_KEYS else shown


def _shown_secret(secret: SecretRef, loaded: LoadedSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    try:
        is_set = secret.reveal(loaded.folder, environ) is not None
    except SettingsError:
        is_set = False
    return {"set": is_set, "from": "literal" if secret.is_literal else str(secret)}


def _kind_of_source(source: str, loaded: LoadedSettings) -> str:
    if source == str(loaded.path):
        return "file"
    if source.startswith(VARIABLE):
        return "environment"
    return "flag" if source.startswith(FLAG) else source
