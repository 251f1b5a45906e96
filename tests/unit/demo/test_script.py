"""Scripts, the queue they wait in, and the filling of schemas."""

from typing import Any

import pytest
from cases import cases

from elbowroom.demo import Reply, Script
from elbowroom.demo.answer import filled
from elbowroom.demo.perform import normalised, stopped_at
from elbowroom.demo.script import ScriptQueue


def test_reply_must_be_alone() -> None:
    """A whole HTTP answer cannot be mixed with steps of a model."""
    with pytest.raises(ValueError, match="only step"):
        Script("Hi", Reply(500, "no"))


def test_queue_holds_a_script_until_its_request_comes() -> None:
    """A script with a condition lets others pass; one that repeats stays."""
    queue = ScriptQueue()
    queue.add(Script("summary"), lambda body: body["n"] == 2, repeat=False)
    queue.add(Script("always"), None, repeat=True)
    answers = [queue.take({"n": number}) for number in (1, 2, 2, 3)]
    assert answers == [Script("always"), Script("summary"), Script("always"), Script("always")]
    assert len(queue) == 0


def test_stop_strings_end_the_content_at_the_first_of_them() -> None:
    """Nothing from the stop string on is said; without one the script stays as it is."""
    script = Script("one two three", "four", finish_reason="stop")
    assert stopped_at(script, ["three", "two"]) == Script("one ", finish_reason="stop")
    assert stopped_at(script, "five") == script
    assert stopped_at(script, None) == script


def test_tool_names_are_normalised() -> None:
    """What a model could not write as a name becomes an underscore."""
    assert [normalised(name) for name in ("vault.read", "a b", "plain_name-1")] == [
        "vault_read",
        "a_b",
        "plain_name-1",
    ]


@cases(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"path": {"type": "string"}}}, {"path": "a.md"}),
        (
            {
                "type": "object",
                "properties": {"n": {"type": "integer"}, "x": {"type": "number"}, "skip": {}},
                "required": ["n", "x"],
            },
            {"n": 3, "x": 2.5},
        ),
        ({"enum": ["slow", "fast"]}, "fast"),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [True, True]),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"$ref": "#/$defs/p", "$defs": {"p": {"const": 7}}}, 7),
        ({"type": ["string", "null"]}, "a.md"),
    ],
)
def test_filled_takes_values_from_the_text(schema: dict[str, Any], expected: Any) -> None:
    """Quoted parts become strings, numbers become numbers, an allowed word is found."""
    assert filled(schema, "Read 'a.md' fast, 3 times, up to 2.5") == expected


def test_filled_ends_on_a_schema_that_contains_itself() -> None:
    """Recursion stops at a fixed depth."""
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    depth, value = 0, filled(schema, "x")
    while value:
        depth, value = depth + 1, value["child"]
    assert depth == 8
