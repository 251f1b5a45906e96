"""Keys and variables that this version does not know, with the nearest one that it does."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from elbowroom.settings.keys import AGENT_TABLES, TABLE_LISTS, TABLES, Key, key_text
from elbowroom.settings.model import Sampling, Settings


def unknown_keys(data: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield each key of a settings file that has no effect, and a sentence about it without its end."""
    fields_of_tables = {field: f"{table}.{field}" for table, model in TABLES.items() for field in model.model_fields}
    yield from _unknown_in(data, fields_of_tables | {name: name for name in Settings.model_fields}, ())
    for table, model in TABLES.items():
        yield from _unknown_in(data.get(table), _fields(model), (table,))
    for table, model in TABLE_LISTS.items():
        for index, row in enumerate(_rows(data, table)):
            yield from _unknown_in(row, _fields(model), (table, index))
            for own, own_model in AGENT_TABLES.items() if table == "agents" else ():
                yield from _unknown_in(row.get(own), _fields(own_model), (table, index, own))


def doubtful_sampling(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each parameter of an agent's sampling that is spelt almost as a known one."""
    known = _fields(Sampling)
    for index, row in enumerate(data.get("agents", [])):
        for name in row.get("sampling", {}):
            if name not in known and (near := did_you_mean(name, known)):
                yield f"{key_text(('agents', index, 'sampling', name))} is passed on as it stands{near}."


def did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """Return ` (did you mean X?)`, or nothing where no known name is near; `known` maps names to what to suggest."""
    folded = {candidate.casefold(): suggestion for candidate, suggestion in known.items()}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.75)
    return f" (did you mean {folded[near[0]]}?)" if near else ""


def _fields(model: type[BaseModel]) -> dict[str, str]:
    return {name: name for name in model.model_fields}


def _rows(data: Mapping[str, Any], table: str) -> list[dict[str, Any]]:
    rows = data.get(table)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _unknown_in(row: Any, known: Mapping[str, str], key: Key) -> Iterator[tuple[Key, str]]:
    for name in row if isinstance(row, dict) else ():
        if known.get(name) != name:
            unknown = (*key, name)
            yield unknown, f"{key_text(unknown)} is not a setting of this version{did_you_mean(name, known)}"
