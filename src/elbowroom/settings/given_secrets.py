"""Secrets in a change of the settings: told from other values, and put into files of their own."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from elbowroom.settings.secrets import SecretRef

FOLDER: Final = "secrets"
"""The folder, beside the settings file, of the files that hold secrets."""
OWN_FORM: Final = re.compile(rf"file:{FOLDER}/([A-Za-z0-9._-]+-[0-9a-f]{{12}})")
SECRET_TABLES: Final = ("env", "headers")


class Keep(Enum):
    """Stands for a secret that was sent back in the form in which it is shown, and stays as it is."""

    KEEP = "keep"


class GivenSecret(str):
    """A secret as the client wrote it."""

    __slots__ = ()


def mark_secrets(patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change of the settings in which secrets can be told from other texts."""
    marked = dict(patch)
    if isinstance(server := patch.get("server"), dict):
        marked["server"] = _marked_at(server, ("token",))
    marked |= {table: _in_rows(patch[table], _marked_row) for table in ("providers", "mcp_servers") if table in patch}
    return marked


def take_out(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the content of the file with references in the place of given secrets, and the secrets by file name.

    A file's name is a new one every time: whoever reads the old settings finds the old secret.
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
            return [replaced(item, f"{place}.{_name_of(item, index)}") for index, item in enumerate(value)]
        return value

    return replaced(data, ""), files


def own_files(data: Any) -> Iterator[str]:
    """Yield the names of the files of secrets that a settings file refers to and that elbowroom has made."""
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


def _name_of(item: Any, index: int) -> str:
    return str(item.get("id") or item.get("name") or index) if isinstance(item, dict) else str(index)
