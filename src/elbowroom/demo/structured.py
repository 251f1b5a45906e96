"""Fills a JSON schema with values found in a text, for tool calls and structured answers."""

import re
from collections.abc import Iterator
from typing import Any

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|'([^']+)'|`([^`]+)`")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LONGEST = 200
_DEEPEST = 8


class Material:
    """What a text offers: its quoted parts in order, then the text itself; its numbers in order, then 1."""

    def __init__(self, text: str) -> None:
        self._quoted = iter([next(filter(None, found)) for found in _QUOTED.findall(text)])
        self._numbers: Iterator[str] = iter(_NUMBER.findall(text))
        self._text = text.strip()[:_LONGEST] or "text"

    def string(self, allowed: list[Any] | None = None) -> Any:
        """Return the next string, or the allowed value that the text names, else the first allowed one."""
        if allowed:
            return next((one for one in allowed if str(one) in self._text), allowed[0])
        return next(self._quoted, self._text)

    def number(self, *, whole: bool) -> int | float:
        """Return the next number."""
        found = float(next(self._numbers, "1"))
        return int(found) if whole or found.is_integer() else found


def filled(schema: dict[str, Any], material: Material, depth: int = 0) -> Any:
    """Return a value of the schema with all its required parts; without a list of them, with all properties."""
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(key), list) and options:
            return filled(options[0], material, depth)
    kind = schema.get("type") or ("object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if "const" in schema:
        return schema["const"]
    if isinstance(allowed := schema.get("enum"), list):
        return material.string(allowed)
    match kind:
        case "object":
            return _filled_object(schema, material, depth)
        case "array":
            items = schema.get("items")
            wanted = schema.get("minItems", 0) if depth < _DEEPEST else 0
            return [filled(items if isinstance(items, dict) else {}, material, depth + 1) for _ in range(wanted)]
        case "integer" | "number":
            return material.number(whole=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return material.string()


def _filled_object(schema: dict[str, Any], material: Material, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth >= _DEEPEST:
        return {}
    required = schema.get("required", list(properties))
    return {name: filled(properties[name], material, depth + 1) for name in required if name in properties}
