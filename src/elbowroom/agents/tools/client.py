"""The tools that a client sends with its requests: passed on, slimmed down, or dropped."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from elbowroom.agents.request import ChatRequest
from elbowroom.settings.model import ClientTools

LONGEST_OF_FUNCTION: Final = 80
LONGEST_OF_PARAMETER: Final = 40
CUT: Final = "…"
SENTENCE_END: Final = re.compile(r"(?<!\b\w)[.!?](?=\s)|[。！？]")  # no end: the dots of "e.g. a" and "1. a"
CLAUSE_END: Final = re.compile(r"[,;]\s|\s[(–—-]")

FIELDS_ABOUT_TOOLS: Final = frozenset({"tool_choice", "parallel_tool_calls", "functions", "function_call"})
ANNOTATIONS: Final = frozenset({"title", "default", "example", "examples", "$comment", "$schema"})
HOLDS_SCHEMA: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
HOLDS_SCHEMAS: Final = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
HOLDS_NAMED_SCHEMAS: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)


def arrange_tools(tools: Sequence[dict[str, Any]], choice: ClientTools) -> list[dict[str, Any]]:
    """Return the tools that the model gets to see, in their order; what the client sent is never changed.

    `pass` gives the very same objects, as does `auto`, which is decided once the window is known, and `drop` none.
    `slim` gives tools for which the same calls are valid: names, types, enums and required stay, descriptions are cut
    to a few words; so does `search` where no tool of the server can describe them.
    """
    match choice:
        case "pass" | "auto":
            return list(tools)
        case "slim" | "search":
            return [_slim_tool(tool) for tool in tools]
        case "drop":
            return []
        case _:
            assert_never(choice)


def with_arranged_tools(request: ChatRequest, choice: ClientTools) -> ChatRequest:
    """Return the request with its tools as the model gets to see them."""
    if choice in ("pass", "auto") or not request.tools:
        return request
    fields = without_tools(request.fields) if choice == "drop" else request.fields
    return replace(request, tools=tuple(arrange_tools(request.tools, choice)), fields=fields)


def without_tools(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's fields without those that make no sense once its tools are dropped.

    That no tool may be called holds for those of an agent too.
    """
    return {name: value for name, value in fields.items() if name not in FIELDS_ABOUT_TOOLS or value == "none"}


def shortened(text: str, longest: int) -> str:
    """Return the first sentence on one line, cut after a clause, else after a word, where it is too long.

    A cut sentence ends with an ellipsis; no result is longer than `longest` characters.
    """
    line = " ".join(text.split())
    if end := SENTENCE_END.search(line):
        line = line[: end.end()]
    if len(line) <= longest:
        return line
    room = longest - len(CUT)
    ends = [clause.start() for clause in CLAUSE_END.finditer(line, 1) if clause.start() <= room]
    if not ends:
        ends = [line.rfind(" ", 0, room + 1)]
    return (line[: ends[-1]] if ends[-1] > 0 else line[:room]) + CUT


def _slim_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, dict):
        return tool
    slim = dict(function)
    if isinstance(description := function.get("description"), str):
        slim["description"] = shortened(description, LONGEST_OF_FUNCTION)
    if "parameters" in function:
        slim["parameters"] = _slim_schema(function["parameters"])
    return {**tool, "function": slim}


def _slim_schema(schema: Any) -> Any:
    """Return a JSON schema that accepts the same values; one that is no object, such as true, stays as it is."""
    if not isinstance(schema, dict):
        return schema
    return {
        keyword: _slim_part(keyword, value)
        for keyword, value in schema.items()
        if keyword not in ANNOTATIONS and not _says_nothing(keyword, value)
    }


def _says_nothing(keyword: str, value: Any) -> bool:
    """Tell whether a keyword only writes out what holds without it: that further properties are allowed."""
    return keyword == "additionalProperties" and (value is True or value == {})


def _slim_part(keyword: str, value: Any) -> Any:
    """Return what a keyword of a schema holds, with the schemas in it slimmed; values such as enums stay."""
    if keyword == "description" and isinstance(value, str):
        return shortened(value, LONGEST_OF_PARAMETER)
    if keyword in HOLDS_NAMED_SCHEMAS and isinstance(value, dict):
        return {name: _slim_schema(schema) for name, schema in value.items()}
    if keyword in HOLDS_SCHEMAS and isinstance(value, list):
        return [_slim_schema(schema) for schema in value]
    return _slim_schema(value) if keyword in HOLDS_SCHEMA else value
