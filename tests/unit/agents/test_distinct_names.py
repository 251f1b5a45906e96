"""Names of tools: no two are the same to the model."""

from collections.abc import Mapping
from typing import Any

import pytest

from elbowroom.agents.answer import name_in_lm_studio
from elbowroom.agents.tools.tool import LONGEST_TOOL_NAME, ServerTool, distinct, free_name


async def nothing(arguments: Mapping[str, Any]) -> str:
    """Return nothing."""
    return ""


def tool(name: str, source: str = "") -> ServerTool:
    """Return a tool of some name."""
    return ServerTool(name, "", {"type": "object"}, nothing, source=source)


def names(*tools: ServerTool, taken: tuple[str, ...] = ()) -> list[str]:
    """Return the names that the tools get."""
    return [tool.name for tool in distinct(tools, taken)]


def test_names_that_differ_stay() -> None:
    """Tools whose names nobody shares keep them, and stay the same objects."""
    tools = [tool("read", "files"), tool("search", "web"), tool("vault_read")]
    assert all(after is before for after, before in zip(distinct(tools), tools, strict=True))


def test_shared_names_get_their_source() -> None:
    """Both of two tools with the same name are told apart by where they come from, whichever stands first."""
    assert names(tool("read", "files"), tool("read", "web"), tool("write", "web")) == [
        "files_read",
        "web_read",
        "write",
    ]


def test_a_tool_without_source_keeps_its_name() -> None:
    """A tool of the server itself is not renamed: its name is told elsewhere too."""
    assert names(tool("search_memory"), tool("search_memory", "web")) == ["search_memory", "web_search_memory"]


def test_names_of_the_client_are_taken() -> None:
    """A name that the client sent stays the client's."""
    assert names(tool("read", "files"), tool("write", "files"), taken=("read",)) == ["files_read", "write"]


@pytest.mark.parametrize("other", ["read.note", "read note", "read/note", "read__note"])
def test_names_are_compared_as_the_model_sees_them(other: str) -> None:
    """Names that LM Studio writes alike are the same name."""
    alike = name_in_lm_studio(other) == "read_note"
    assert (names(tool("read_note", "a"), tool(other, "b")) != ["read_note", other]) is alike
    assert len({name_in_lm_studio(name) for name in names(tool("read_note", "a"), tool(other, "b"))}) == 2


def test_long_names_are_cut_and_told_apart() -> None:
    """A name of more than 64 characters is cut and ends in a hash; so the rest does not have to differ."""
    source = "s" * 40
    first, second = names(tool("n" * 40, source + "1"), tool("n" * 40, source + "2"))
    assert first != second
    assert len(first) == len(second) == 64
    assert [first, second] == names(tool("n" * 40, source + "1"), tool("n" * 40, source + "2"))


def test_a_prefixed_name_may_be_taken_too() -> None:
    """Where the name with its source is taken as well, a hash tells it apart."""
    found = names(tool("read", "files"), tool("read", "web"), tool("files_read"), taken=("web_read",))
    assert found[2] == "files_read"
    assert found[0].startswith("files_read_")
    assert found[1].startswith("web_read_")


def test_the_same_tool_twice_still_has_two_names() -> None:
    """Even tools that nothing tells apart get names that differ."""
    found = names(tool("read", "files"), tool("read", "files"), tool("read", "files"))
    assert len(set(found)) == 3


def test_the_result_is_fit_for_the_model() -> None:
    """Dots of a server's name do not get into the tool's."""
    assert names(tool("read", "my.files"), taken=("read",)) == ["my_files_read"]
    assert len(free_name("x" * 500, (), "y")) == 64


@pytest.mark.parametrize(
    ("wanted", "taken", "name"),
    [
        ("ask_editor", [], "ask_editor"),
        ("ask_my.editor", [], "ask_my_editor"),
        ("ask_editor", ["ask_editor"], "ask_editor_2"),
        ("vault_list", ["vault.list"], "vault_list_2"),
        ("ask_editor", ["ask_editor", "ask_editor_2"], "ask_editor_3"),
        ("a" * 80, [], "a" * LONGEST_TOOL_NAME),
        ("a" * 80, ["a" * LONGEST_TOOL_NAME], "a" * (LONGEST_TOOL_NAME - 2) + "_2"),
    ],
)
def test_a_number_tells_names_apart(wanted: str, taken: list[str], name: str) -> None:
    """No two tools have names that LM Studio writes alike, and none is longer than models may call."""
    assert free_name(wanted, set(map(name_in_lm_studio, taken))) == name
