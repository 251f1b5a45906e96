"""Fills a JSON schema with values found in a text, for tool calls and structured answers."""

import re
from typing import Any

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|'([^']+)'|`([^`]+)`")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LONGEST = 200
_DEEPEST = 8


def filled(schema: Any, text: str) -> Any:
    """Return a value of the schema: its required parts, or all properties where none is named required."""
    return _Filling(schema if isinstance(schema, dict) else {}, text).value(schema)


class _Filling:
    """Gives out what a text offers: its quoted parts, then the text itself; its numbers, then 1."""

    def __init__(self, root: dict[str, Any], text: str) -> None:
        self._root = root
        self._quoted = iter([next(filter(None, found)) for found in _QUOTED.findall(text)])
        self._numbers = iter(_NUMBER.findall(text))
        self._text = text.strip()[:_LONGEST] or "text"

    def value(self, given: Any, depth: int = 0) -> Any:
        schema = self._resolved(given)
        if "const" in schema:
            return schema["const"]
        if isinstance(allowed := schema.get("enum"), list) and allowed:
            return next((one for one in allowed if str(one) in self._text), allowed[0])
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(options := schema.get(key), list) and options and depth < _DEEPEST:
                return self.value(options[0], depth + 1)
        match _kind(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                wanted = schema.get("minItems", 0) if depth < _DEEPEST else 0
                return [self.value(schema.get("items"), depth + 1) for _ in range(wanted)]
            case "integer":
                return int(float(next(self._numbers, "1")))
            case "number":
                return float(next(self._numbers, "1"))
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return next(self._quoted, self._text)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or depth >= _DEEPEST:
            return {}
        required = schema.get("required", list(properties))
        return {name: self.value(properties[name], depth + 1) for name in required if name in properties}

    def _resolved(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, dict):
            return {}
        target: Any = self._root
        if isinstance(reference := schema.get("$ref"), str):
            for name in filter(None, reference.removeprefix("#").split("/")):
                target = target.get(name, {}) if isinstance(target, dict) else {}
            return target if isinstance(target, dict) else {}
        return schema


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type") or ("object" if "properties" in schema else "string")
    return str(kind[0] if isinstance(kind, list) else kind)
