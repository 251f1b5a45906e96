"""Tools told by name: what the model is told of them, and which of its calls reach the client."""

import json
from typing import Any

import pytest
from builtin_tools import builtin_tools, tool_of, tools_of_mcp_servers

from elbowroom.agents.answer import ToolCall
from elbowroom.agents.tools import ToolSearch
from elbowroom.agents.tools.search import LONGEST_LIST, fault_of, listed
from elbowroom.agents.tools.tool import result_of

TOOL = tool_of("search notes")
SEARCH = ToolSearch((TOOL, tool_of("view_note")))
OPEN = {"type": "function", "function": {"name": "open", "parameters": {"type": "object"}}}
FITS = {"query": "ferry"}


@pytest.mark.parametrize(
    ("name", "arguments", "meant"),
    [
        ("search notes", FITS, ("search notes", FITS)),
        ("use_tool", {"name": "search notes", "arguments": FITS}, ("search notes", FITS)),
        ("use_tool", {"name": "search_notes", "arguments": FITS}, ("search notes", FITS)),
        ("use_tool", {"name": "search notes", "arguments": json.dumps(FITS)}, ("search notes", FITS)),
        ("use_tool", {"name": "search notes"}, ("use_tool", {"name": "search notes"})),
        ("use_tool", {"name": "unknown", "arguments": FITS}, ("use_tool", {"name": "unknown", "arguments": FITS})),
        ("view_note", {"id": 3}, ("use_tool", {"name": "view_note", "arguments": {"id": 3}})),
        ("view_note", [3], ("use_tool", {"name": "view_note", "arguments": "[3]"})),
        ("unknown", {}, ("unknown", {})),
    ],
)
def test_which_call_is_meant(name: str, arguments: Any, meant: tuple[str, Any]) -> None:
    """A call that fits a tool is that tool's, a wrong one asks for the description; the id stays."""
    call = SEARCH.resolved(ToolCall("abcdefghi", name, json.dumps(arguments)))
    assert (call.id, call.name, json.loads(call.arguments)) == ("abcdefghi", *meant)


@pytest.mark.parametrize(
    ("arguments", "tool", "fault"),
    [
        (FITS, TOOL, ""),
        ({**FITS, "count": 3}, TOOL, ""),
        ({"count": 3}, TOOL, "query is missing"),
        ({**FITS, "colour": "red"}, TOOL, "it takes no colour"),
        ({"anything": 1}, OPEN, ""),
        ({"anything": 1}, {"function": {"name": "bare"}}, ""),
        ({"b": 1}, {"function": {"parameters": {"properties": {"a": {}}, "additionalProperties": True}}}, ""),
    ],
)
def test_what_is_wrong_with_arguments(arguments: dict[str, Any], tool: dict[str, Any], fault: str) -> None:
    """Names that are missing, or that the tool does not have, where it says which it has."""
    assert fault_of(arguments, tool) == fault


@pytest.mark.parametrize(
    ("written", "told", "is_error"),
    [
        ({"name": "search notes"}, [TOOL], False),
        ({"name": "view_note, search notes, view_note"}, [tool_of("view_note"), TOOL], False),
        ({"name": "view_note", "arguments": {"id": 3}}, [tool_of("view_note")], True),
        ({"name": "view_note, nothing"}, [tool_of("view_note")], True),
        ({"name": ""}, [], True),
        ({"names": ["view_note"]}, [], True),
    ],
)
async def test_what_a_look_up_returns(written: dict[str, Any], told: list[dict[str, Any]], is_error: bool) -> None:
    """The whole description of each tool that was asked for, once; what is wrong is said beside it."""
    result = await result_of(SEARCH.tool, json.dumps(written))
    lines = result.text.splitlines()
    assert [json.loads(line) for line in lines if not line.startswith("Error")] == [one["function"] for one in told]
    assert result.is_error == is_error == ("Error: " in result.text)


@pytest.mark.parametrize("count", [1, 36, 76, 600])
def test_every_tool_is_named(count: int) -> None:
    """The more tools there are, the fewer words each has; without room for words there are names alone."""
    tools = [*builtin_tools(), *tools_of_mcp_servers(), *(tool_of(f"tool_{number}") for number in range(600))][:count]
    lines = listed(tools).splitlines()
    names = [tool["function"]["name"] for tool in tools]
    assert [line.partition(":")[0] for line in lines] == names
    assert len("".join(lines)) <= max(LONGEST_LIST, len("".join(names)))
    assert all(": " in line for line in lines) == (count < 600)
