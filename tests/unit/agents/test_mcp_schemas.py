"""Schemas of foreign tools: whatever they are, the model server gets one object without references."""

import json
from typing import Any

import pytest

from elbowroom.agents.tools.mcp.convert import object_schema

NOTHING = {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "schema", [None, True, [], "object", {}, {"type": "string"}, {"type": ["object", "null"]}, {"properties": []}]
)
def test_what_is_no_object_takes_nothing(schema: Any) -> None:
    """A schema that is none, or one of something else, becomes that of an object of which nothing is known."""
    assert object_schema(schema) == NOTHING


def test_a_schema_without_type_is_an_object() -> None:
    """Properties alone make an object; what is required of them stays."""
    schema = {"properties": {"path": {"type": "string"}}, "required": ["path"]}
    assert object_schema(schema) == {"type": "object", **schema}


def test_required_names_have_to_be_there() -> None:
    """Names that are required and that nobody describes are left out, and so is a list that is none."""
    assert object_schema({"properties": {"a": {}}, "required": ["a", "b", 3]})["required"] == ["a"]
    assert "required" not in object_schema({"properties": {"a": {}}, "required": "a"})


def test_references_are_put_in_place() -> None:
    """Definitions stand where they are referred to, beside what else is said there; the list of them is gone."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "ReadArguments",
        "properties": {
            "title": {"type": "string", "title": "Title"},
            "range": {"$ref": "#/$defs/Range", "description": "which lines"},
            "more": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Range"}, {"type": "null"}]}},
        },
        "$defs": {
            "Range": {"type": "object", "properties": {"from": {"$ref": "#/$defs/Line"}}},
            "Line": {"type": "integer"},
        },
    }
    line_range = {"type": "object", "properties": {"from": {"type": "integer"}}}
    assert object_schema(schema) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "range": {**line_range, "description": "which lines"},
            "more": {"type": "array", "items": {"anyOf": [line_range, {"type": "null"}]}},
        },
    }


def test_the_whole_schema_may_be_a_reference() -> None:
    """A schema that only refers to a definition is that definition."""
    schema = {
        "$ref": "#/definitions/A",
        "definitions": {"A": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    assert object_schema(schema) == {"type": "object", "properties": {"x": {"type": "number"}}}


@pytest.mark.parametrize("reference", ["#", "#/properties/child", "#/$defs/Node"])
def test_references_to_themselves_end(reference: str) -> None:
    """A schema that contains itself ends where it begins anew."""
    node = {"type": "object", "properties": {"child": {"$ref": reference}}}
    assert "$ref" not in json.dumps(object_schema({**node, "$defs": {"Node": node}}))


@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:9/schema.json", "#/nowhere", "#/properties/0", "other.json", 7]
)
def test_references_to_elsewhere_say_nothing(reference: Any) -> None:
    """A reference that leads out of the schema, or to nothing, stands for anything."""
    assert object_schema({"properties": {"x": {"$ref": reference}}})["properties"] == {"x": {}}


def test_small_schemas_do_not_become_endless() -> None:
    """Definitions that double at each step are cut, before they fill the memory."""
    definitions: dict[str, Any] = {
        f"D{n}": {"properties": {"a": {"$ref": f"#/$defs/D{n + 1}"}, "b": {"$ref": f"#/$defs/D{n + 1}"}}}
        for n in range(60)
    }
    schema = object_schema({"properties": {"x": {"$ref": "#/$defs/D0"}}, "$defs": definitions})
    assert len(json.dumps(schema)) < 100_000


def test_deep_schemas_end() -> None:
    """A schema nested a thousand times is cut."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(1000):
        schema = {"type": "object", "properties": {"x": schema}}
    assert len(json.dumps(object_schema(schema))) < 5000


def test_values_are_no_schemas() -> None:
    """Defaults, examples and enumerations stay as they are, whatever their keys are named."""
    schema = {"properties": {"x": {"default": {"title": "kept", "$ref": "kept"}, "enum": [{"title": "kept"}]}}}
    assert object_schema(schema)["properties"] == schema["properties"]
