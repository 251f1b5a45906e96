"""Tools that a client sends: what the model sees of them."""

import copy
import json
from typing import Any

import jsonschema
import pytest

from elbowroom.agents.tools.client import arrange_tools, shortened, without_tools
from elbowroom.tokens.families.counter import FamilyCounter
from elbowroom.tokens.families.families import family_of

Tool = dict[str, Any]

NOTE: Tool = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Note",
    "type": "object",
    "additionalProperties": True,
    "properties": {
        "title": {"title": "Title", "type": "string", "description": "The title.", "default": "Untitled"},
        "description": {"type": "string", "examples": ["A walk"], "minLength": 1},
        "examples": {"type": "array", "items": {"type": "string", "title": "Example", "maxLength": 20}},
        "default": {"type": "string", "enum": ["title", "description"], "default": "title"},
        "place": {
            "description": "Where the note goes: a folder of the vault, with slashes, or the root without it.",
            "anyOf": [{"$ref": "#/$defs/Folder", "title": "Folder"}, {"type": "null", "description": "The root."}],
        },
        "additionalProperties": {"const": {"title": "kept"}, "title": "Extra"},
    },
    "required": ["title", "place"],
    "$defs": {
        "Folder": {
            "type": "object",
            "title": "Folder",
            "properties": {"title": {"type": "string", "pattern": "^[a-z]+$", "$comment": "lower case"}},
            "required": ["title"],
            "additionalProperties": False,
        }
    },
}
SLIM_NOTE: Tool = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "The title."},
        "description": {"type": "string", "minLength": 1},
        "examples": {"type": "array", "items": {"type": "string", "maxLength": 20}},
        "default": {"type": "string", "enum": ["title", "description"]},
        "place": {
            "description": "Where the note goes: a folder of the…",
            "anyOf": [{"$ref": "#/$defs/Folder"}, {"type": "null", "description": "The root."}],
        },
        "additionalProperties": {"const": {"title": "kept"}},
    },
    "required": ["title", "place"],
    "$defs": {
        "Folder": {
            "type": "object",
            "properties": {"title": {"type": "string", "pattern": "^[a-z]+$"}},
            "required": ["title"],
            "additionalProperties": False,
        }
    },
}


def tool_of(parameters: Any, description: str = "Write a note.") -> Tool:
    """Return a function tool with these parameters."""
    return {
        "type": "function",
        "function": {"name": "write_note", "description": description, "strict": True, "parameters": parameters},
    }


def slim_schema(parameters: Any) -> Any:
    """Return what is left of a tool's parameters."""
    [tool] = arrange_tools([tool_of(parameters)], "slim")
    return tool["function"]["parameters"]


def test_pass_hands_on_the_very_objects() -> None:
    """Not a copy, so that the prompt keeps its bytes; the list is a new one."""
    tools = [tool_of(NOTE), {"type": "web_search"}]
    passed = arrange_tools(tools, "pass")
    assert passed is not tools
    assert all(before is after for before, after in zip(tools, passed, strict=True))


def test_drop_leaves_nothing() -> None:
    """No tool of any kind is left."""
    assert arrange_tools([tool_of(NOTE), {"type": "web_search"}], "drop") == []


def test_slim_keeps_what_calls_need_and_cuts_the_rest() -> None:
    """Names, types, enums, required, limits and references stay, in their order; annotations go at every depth.

    Properties that are named like an annotation are properties.
    """
    assert json.dumps(slim_schema(NOTE)) == json.dumps(SLIM_NOTE)


def test_slim_changes_nothing_that_the_client_sent() -> None:
    """The tools are as they were, and the same tools give the same bytes each time."""
    tools = [tool_of(NOTE, "One. Two.")]
    before = copy.deepcopy(tools)
    first = arrange_tools(tools, "slim")
    assert tools == before
    assert json.dumps(first) == json.dumps(arrange_tools(tools, "slim"))
    assert arrange_tools(first, "slim") == first


def test_slim_keeps_the_tool_around_its_parameters() -> None:
    """Name, kind and further fields of the function stay; of the description the first sentence does."""
    [tool] = arrange_tools([tool_of({}, "Write a note. The title has to be new.")], "slim")
    assert tool == tool_of({}, "Write a note.")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search", "description": "One. Two."},
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "now", "description": None, "parameters": None}},
        {"type": "function", "function": {"name": "now", "description": 5, "parameters": "none"}},
    ],
)
def test_slim_leaves_what_it_does_not_know(tool: Tool) -> None:
    """Tools of another kind, without parameters or with odd ones go on as they are."""
    assert arrange_tools([tool], "slim") == [tool]


@pytest.mark.parametrize(
    ("schema", "slim"),
    [
        (True, True),
        ({"additionalProperties": {}}, {}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        ({"additionalProperties": {"type": "string", "title": "T"}}, {"additionalProperties": {"type": "string"}}),
        ({"items": [{"title": "T"}, True]}, {"items": [{}, True]}),
        ({"prefixItems": [{"title": "T", "type": "string"}]}, {"prefixItems": [{"type": "string"}]}),
        ({"not": {"title": "T", "const": 1}}, {"not": {"const": 1}}),
        ({"enum": [{"title": "T"}, "default"]}, {"enum": [{"title": "T"}, "default"]}),
        ({"properties": [], "anyOf": {}, "items": None}, {"properties": [], "anyOf": {}, "items": None}),
        ({"description": {"not": "a text"}}, {"description": {"not": "a text"}}),
    ],
)
def test_slim_knows_where_schemas_are(schema: Any, slim: Any) -> None:
    """Schemas are walked wherever a keyword holds one, values that only look like one are not."""
    assert slim_schema(schema) == slim


@pytest.mark.parametrize(
    "arguments",
    [
        {"title": "A", "place": None},
        {"title": "A", "place": {"title": "notes"}},
        {"title": "A", "place": {"title": "Notes"}},
        {"title": "A", "place": {"title": "notes", "more": 1}},
        {"title": "A"},
        {"place": None},
        {"title": 5, "place": None},
        {"title": "A", "place": None, "default": "title", "description": "x", "examples": ["y"], "other": 1},
        {"title": "A", "place": None, "default": "other"},
        {"title": "A", "place": None, "description": ""},
        {"title": "A", "place": None, "examples": ["y" * 21]},
        {"title": "A", "place": None, "additionalProperties": {"title": "kept"}},
        {"title": "A", "place": None, "additionalProperties": {}},
    ],
)
def test_the_same_calls_are_valid(arguments: Any) -> None:
    """A validator judges each call by the slim parameters as it does by the client's."""
    judge = jsonschema.Draft202012Validator
    assert judge(slim_schema(NOTE)).is_valid(arguments) == judge(NOTE).is_valid(arguments)


def test_slim_saves_tokens() -> None:
    """Described at length, as clients do, tools take less than two thirds of the room once they are slim."""
    tools = [
        tool_of(
            {
                "type": "object",
                "title": f"Arguments{number}",
                "properties": {
                    "query": {
                        "type": "string",
                        "title": "Query",
                        "description": "Words that have to occur in the text, separated by blanks (default: all).",
                        "default": "",
                    },
                    "limit": {"type": "integer", "description": "How many results at most, from 1 to 50 (default: 5)."},
                },
                "required": ["query"],
            },
            "Search the notes. Results come with their path, their title and the first words around each hit. Call "
            "this before you answer from memory, and again with other words where nothing was found.",
        )
        for number in range(10)
    ]
    counter = FamilyCounter(family_of("qwen2.5-7b-instruct"))
    hello = [{"role": "user", "content": "hello"}]
    bare, whole, slim = (
        counter.count_chat(hello, arrange_tools(tools, choice)).tokens for choice in ("drop", "pass", "slim")
    )
    assert bare < slim
    assert slim - bare < (whole - bare) * 2 / 3


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("", ""),
        ("Read a file.", "Read a file."),
        ("  Read\n  a file.\n\n  Long story.", "Read a file."),
        ("Read a file! Really.", "Read a file!"),
        ("A place, e.g. Paris. More.", "A place, e.g. Paris."),
        ("1. Read. 2. Write.", "1. Read."),
        ("Reads v1.5 files. More.", "Reads v1.5 files."),
        ("ファイルを読む。次に書く。", "ファイルを読む。"),
        ("Where the file is, from the root, with all folders", "Where the file is, from the root…"),
        ("Number of results at most (from 1 up to 50, default 5)", "Number of results at most…"),
        ("Where the file is from the root of the vault", "Where the file is from the root of the…"),
        ("x" * 50, "x" * 39 + "…"),
        ("(" + "y" * 50, "(" + "y" * 38 + "…"),
        (", " + "z" * 50, ",…"),
        ("x" * 40, "x" * 40),
    ],
)
def test_a_description_is_cut_where_it_reads_well(text: str, short: str) -> None:
    """The first sentence; too long, up to the end of a clause or of a word, with a sign that it went on."""
    assert shortened(text, 40) == short
    assert len(short) <= 40


def test_without_tools_nothing_is_said_about_them() -> None:
    """Whatever chooses or describes tools goes, everything else stays, and the client's fields are not changed."""
    fields = {
        "temperature": 0,
        "tool_choice": {"type": "function", "function": {"name": "write_note"}},
        "parallel_tool_calls": False,
        "functions": [],
        "function_call": "auto",
    }
    before = copy.deepcopy(fields)
    assert without_tools(fields) == {"temperature": 0}
    assert fields == before


def test_without_tools_none_may_be_called_where_none_was_to_be() -> None:
    """The client has forbidden all calls: that holds for tools of the agent, which stay."""
    assert without_tools({"tool_choice": "none", "functions": []}) == {"tool_choice": "none"}
