"""Explains wrong settings in sentences: where the value stands, its key, the value, and what the key takes."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from elbowroom.settings.fields import HIDDEN, Contradiction, Misfit, Misfits, without_secrets
from elbowroom.settings.keys import TABLE_LISTS, TABLES, Key, Problem, key_text
from elbowroom.settings.model import Settings

SECRET_KEYS: Final = frozenset({"token", "api_key", "env", "headers"})
LONGEST_VALUE: Final = 80
TAKES: Final[Mapping[str, str]] = {
    "string_type": "a text in quotes",
    "string_too_short": "a text that is not empty",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of a usual size",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": 'a list such as ["one", "two"]',
    "model_type": "a table",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
}


STAND_INS: Final[Mapping[str, Mapping[str, Any]]] = {
    "providers": {"kind": "lmstudio"},
    "agents": {"model": "any"},
    "mcp_servers": {"command": ["any"]},
    "models": {},
}
"""What makes a row of each list of tables valid, beside its name."""
NAMED_BY: Final[Mapping[str, str]] = {"providers": "id", "agents": "id", "mcp_servers": "name", "models": "id"}
REFERRING: Final[Mapping[str, frozenset[str]]] = {
    "providers": frozenset({"provider"}),
    "agents": frozenset({"agent_tools", "handoffs", "pruning_agent"}),
    "mcp_servers": frozenset({"mcp"}),
    "models": frozenset(),
}
"""The fields that name rows of each list of tables."""
ATTEMPTS: Final = 3
"""The first finds wrong values, the second those that contradict others, the third has neither."""


def validated(data: Mapping[str, Any], sources: Mapping[Key, str], path: Path) -> tuple[Settings | None, list[Problem]]:
    """Return the settings that these values make, and the problem of every wrong one; `sources` says where each stands.

    Where single values are wrong, the settings are those of the other values, so that these are checked as well; None
    where that is not possible.
    """
    problems: list[Problem] = []
    rest, follow = data, frozenset[str]()
    for _ in range(ATTEMPTS):
        settings, more = _attempt(rest, sources, path)
        told = {problem.key for problem in problems}
        problems += [each for each in more if each.key not in told and not follow.intersection(each.key)]
        if settings is not None:
            return settings, problems
        rest = _without(rest, {problem.key for problem in more})
        follow = follow.union(*(REFERRING[table] for table in _unnamed_tables(data, rest)))
    return None, problems


def _attempt(data: Mapping[str, Any], sources: Mapping[Key, str], path: Path) -> tuple[Settings | None, list[Problem]]:
    try:
        return Settings.model_validate(data), []
    except ValidationError as error:
        messages = _messages(error, data)
    return None, [Problem(key, text, f"{sources.get(key, path)}: {text}") for key, text in messages]


def _messages(error: ValidationError, data: Mapping[str, Any]) -> list[tuple[Key, str]]:
    """Return a sentence for each wrong key; values that contradict others come one by one."""
    problems: dict[Key, list[ErrorDetails]] = {}
    for problem in error.errors(include_url=False):
        if isinstance(found := problem.get("ctx", {}).get("error"), Misfits):
            return [(each.key, _contradiction(each, data)) for each in found.each]
        key = problem["loc"] if problem["type"] == "missing" else _key_in(data, problem["loc"])
        problems.setdefault(key, []).append(problem)
    return [(key, _message(key, found, data)) for key, found in problems.items()]


def _contradiction(misfit: Misfit | Contradiction, data: Mapping[str, Any]) -> str:
    if isinstance(misfit, Contradiction):
        return f"{misfit}."
    return _not_accepted(misfit.key, data, str(misfit))


def _message(key: Key, problems: list[ErrorDetails], data: Mapping[str, Any]) -> str:
    if problems[0]["type"] == "missing":
        return f"{key_text(key)} is missing."
    takes = " or ".join(dict.fromkeys(_what_it_takes(key, problem) for problem in problems))
    if _holds_tables(_value_at(data, key)) and problems[0]["type"] == "value_error":
        return f"{key_text(key)}: {takes}." if key else f"{takes}."
    return _not_accepted(key, data, takes)


def _not_accepted(key: Key, data: Mapping[str, Any], takes: str) -> str:
    return f"{key_text(key)} = {_shown(key, _value_at(data, key))} is not accepted; it takes {takes}."


def _without(data: Mapping[str, Any], wrong: Collection[Key]) -> dict[str, Any]:
    """Return values with the wrong ones left out; in a list of tables each row keeps its place."""
    rest = {name: value for name, value in data.items() if (name,) not in wrong}
    for key in wrong:
        rows, place = rest.get(str(key[0])), key[1] if len(key) > 1 else None
        if isinstance(rows, list) and isinstance(place, int):
            rest[str(key[0])] = [
                _row_without(str(key[0]), at, row, key) if at == place else row for at, row in enumerate(rows)
            ]
        elif isinstance(rows, dict):
            rest[str(key[0])] = {name: value for name, value in rows.items() if name != place}
    return rest


def _row_without(table: str, place: int, row: Any, key: Key) -> dict[str, Any]:
    """Return a row without a wrong value; without one that it needs, a valid row with the same name."""
    named_by = NAMED_BY[table]
    kept = {name: value for name, value in row.items() if name != key[2]} if len(key) > 2 else {}
    name = row.get(named_by) if isinstance(row, dict) and key[2:3] != (named_by,) else None
    stands_in = {named_by: name if isinstance(name, str) else f"row.{place}", **STAND_INS[table]}
    return {**stands_in, **kept}


def _unnamed_tables(data: Mapping[str, Any], rest: Mapping[str, Any]) -> list[str]:
    """Return the lists of tables in which a row has lost its name: what refers to it cannot be checked."""
    return [table for table, field in NAMED_BY.items() if _names(data, table, field) != _names(rest, table, field)]


def _names(data: Mapping[str, Any], table: str, field: str) -> list[Any]:
    rows = data.get(table)
    return [row.get(field) if isinstance(row, dict) else None for row in rows] if isinstance(rows, list) else [rows]


def _what_it_takes(key: Key, problem: ErrorDetails) -> str:
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    if problem["type"] in ("tuple_type", "model_type") and key[0] in TABLE_LISTS and len(key) <= 2:
        return f"tables headed [[{key[0]}]]"
    if problem["type"] == "model_type" and len(key) == 1 and key[0] in TABLES:
        return f"a table headed [{key[0]}]"
    return TAKES.get(problem["type"], problem["msg"]).format(**problem.get("ctx", {}))


def _shown(key: Key, value: Any) -> str:
    if SECRET_KEYS.intersection(key):
        return HIDDEN
    if _holds_tables(value):
        return "a list of tables" if isinstance(value, list) else "a table"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(without_secrets(value) if isinstance(value, str) else value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _holds_tables(value: Any) -> bool:
    """Tell whether a value contains tables, in which a secret may stand."""
    return isinstance(value, dict) or (isinstance(value, list) and any(_holds_tables(item) for item in value))


def _key_in(data: Any, location: Key) -> Key:
    """Return the leading part of a problem's location that exists in the data; pydantic appends type names."""
    for depth, part in enumerate(location):
        if not _has(data, part):
            return location[:depth]
        data = data[part]
    return location


def _value_at(data: Any, key: Key) -> Any:
    for part in key:
        data = data[part]
    return data


def _has(data: Any, part: str | int) -> bool:
    if isinstance(part, int):
        return isinstance(data, list) and part < len(data)
    return isinstance(data, dict) and part in data
