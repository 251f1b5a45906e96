"""What a settings file holds after a change: RFC 7396, with rows of tables told apart by their names."""

from collections.abc import Mapping
from typing import Any

from elbowroom.settings.given_secrets import Keep
from elbowroom.settings.shown import ROW_NAMES, rows_by_name

Row = dict[str, Any]
DEFAULT_ROWS: Mapping[str, list[Row]] = {"providers": [{"id": "lmstudio", "kind": "lmstudio"}]}
"""The rows that are there while the file names none."""


def merged(data: Mapping[str, Any], patch: Mapping[str, Any], shown: Mapping[str, Any]) -> Row:
    """Return what the file is to hold after a merge patch; `data` is what it holds now, `shown` what is in force.

    A value that is in force already is left as it is written, or unwritten. Where the file or the patch has something
    else than a table where one belongs, it stands in what is returned, for the validation to explain.
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
    """Return the part of a change that sets something, in the form of the file: its rows stand where `new` has them."""
    asked: Row = {}
    for name, change in patch.items():
        if name in ROW_NAMES and isinstance(rows := new.get(name), list) and isinstance(change, dict | list):
            by_name = _by_final_name(name, change)
            asked[name] = [_set_in(by_name.get(_name_of(name, row), {})) for row in rows]
        elif change is not None:
            asked[name] = _set_in(change) if isinstance(change, dict) else change
    return asked


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are the same, where true is not 1 and 1 is not 1.0."""
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
    """Return a value as clients have it that know one kind of number only, such as web pages."""
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
    """Return the changes by the names that the rows have afterwards."""
    named = change.items() if isinstance(change, dict) else (("", row) for row in change)
    rows = [{ROW_NAMES[table]: name, **row} for name, row in named if isinstance(row, dict)]
    return {_name_of(table, row): row for row in rows}


def _name_of(table: str, row: Any) -> str:
    name = row.get(ROW_NAMES[table]) if isinstance(row, dict) else None
    return name if isinstance(name, str) else ""


def _set_in(change: Row) -> Row:
    return {name: value for name, value in change.items() if value is not None}
