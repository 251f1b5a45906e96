"""JSON schemas of foreign tools, made such that every model server takes them: one object, without references."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

MOST_REFERENCES: Final = 500
DEEPEST: Final = 30
MAPS_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
SCHEMAS: Final = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
LISTS_OF_SCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
LEFT_OUT: Final = frozenset({"$schema", "$id", "$defs", "definitions", "$ref", "$anchor", "$comment", "title"})


def object_schema(schema: object) -> dict[str, Any]:
    """Return the schema of an object for what a server says that a tool takes.

    What `$ref` points to within the schema stands in its place, except where it leads back into itself; addresses
    elsewhere are not followed. Titles are left out: they repeat the names and take room in the model's window.
    """
    if not isinstance(schema, Mapping):
        return {"type": "object", "properties": {}}
    whole = _Unfolding(schema).unfolded(schema, ())
    if whole.get("type", "object") != "object":
        return {"type": "object", "properties": {}}
    properties = whole.get("properties")
    fitting = {**whole, "type": "object", "properties": properties if isinstance(properties, dict) else {}}
    required = [name for name in _list(whole.get("required")) if name in fitting["properties"]]
    return {key: value for key, value in fitting.items() if key != "required"} | (
        {"required": required} if required else {}
    )


class _Unfolding:
    """Puts what references point to in their places. Small schemas can unfold to endless ones: there is a limit."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._count = itertools.count(1)

    def unfolded(self, schema: Any, within: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        """Return a schema without references; `within` are those that it has been reached by."""
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return {}
        unfolded: dict[str, Any] = {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in within and next(self._count) <= MOST_REFERENCES:
            unfolded = self.unfolded(self._found(reference), (*within, reference), depth + 1)
        return unfolded | {
            key: self._value(key, value, within, depth + 1) for key, value in schema.items() if key not in LEFT_OUT
        }

    def _value(self, key: str, value: Any, within: tuple[str, ...], depth: int) -> Any:
        if key in MAPS_OF_SCHEMAS and isinstance(value, Mapping):
            return {name: self.unfolded(part, within, depth) for name, part in value.items()}
        if key in SCHEMAS and isinstance(value, Mapping):
            return self.unfolded(value, within, depth)
        if key in LISTS_OF_SCHEMAS or (key == "items" and isinstance(value, list)):
            return [self.unfolded(part, within, depth) for part in _list(value)]
        return value

    def _found(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return {}
        here: Any = self._root
        for step in _steps(reference):
            if isinstance(here, list) and step.isdigit() and int(step) < len(here):
                here = here[int(step)]
            else:
                here = here.get(step) if isinstance(here, Mapping) else None
        return here


def _steps(reference: str) -> Iterator[str]:
    for step in reference.removeprefix("#").split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
