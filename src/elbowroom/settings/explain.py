"""Explains wrong settings in sentences: where the value stands, its key, the value, and what the key takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from elbowroom.settings.fields import HIDDEN, Contradiction, Misfit, without_secrets
from elbowroom.settings.keys import TABLE_LISTS, TABLES, Key, Problem, key_text

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


def explain(error: ValidationError, data: Mapping[str, Any], sources: Mapping[Key, str], path: Path) -> list[Problem]:
    """Return the problem of each wrong key; `data` was validated, `sources` tells where each of its values stands."""
    problems: dict[Key, list[ErrorDetails]] = {}
    for problem in error.errors(include_url=False):
        key = _key_of(problem, data)
        problems.setdefault(key, []).append(problem)
    messages = {key: _message(key, found, data) for key, found in problems.items()}
    return [Problem(key, text, f"{sources.get(key, path)}: {text}") for key, text in messages.items()]


def _key_of(problem: ErrorDetails, data: Mapping[str, Any]) -> Key:
    if problem["type"] == "missing":
        return problem["loc"]
    error = problem.get("ctx", {}).get("error")
    return error.key if isinstance(error, Misfit | Contradiction) else _key_in(data, problem["loc"])


def _message(key: Key, problems: list[ErrorDetails], data: Mapping[str, Any]) -> str:
    if problems[0]["type"] == "missing":
        return f"{key_text(key)} is missing."
    if isinstance(error := problems[0].get("ctx", {}).get("error"), Contradiction):
        return f"{error}."
    takes = " or ".join(dict.fromkeys(_what_it_takes(key, problem) for problem in problems))
    value = _value_at(data, key)
    if _holds_tables(value) and problems[0]["type"] == "value_error":
        return f"{key_text(key)}: {takes}." if key else f"{takes}."
    return f"{key_text(key)} = {_shown(key, value)} is not accepted; it takes {takes}."


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
