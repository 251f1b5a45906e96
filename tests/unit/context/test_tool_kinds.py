"""What a tool does, declared or guessed from the words of its name."""

import pytest

from elbowroom.context.outputs.output import kind_of, words_in
from elbowroom.settings.model import ToolKind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("read_file", "read"),
        ("files/getContents", "read"),
        ("WebFetch", "read"),
        ("openURL", "read"),
        ("vault.write", "write"),
        ("append-note", "write"),
        ("MoveFile", "write"),
        ("find_and_replace", "write"),
        ("run_tests", "execute"),
        ("execute-tool", "execute"),
        ("server2__bash", "execute"),
        ("execute_query", "execute"),
        ("tool_output_cache_grep", "query"),
        ("listDirectory", "query"),
        ("HTTPSearch", "query"),
        ("research_notes", "other"),
        ("thread", "other"),
        ("spreadsheet", "other"),
        ("runner", "other"),
        ("route", "other"),
        ("", "other"),
        ("工具", "other"),
    ],
)
def test_guess_by_whole_words(name: str, kind: ToolKind) -> None:
    """The first word that says something decides; parts of words say nothing."""
    assert kind_of(name, {}) == kind


def test_what_is_declared_holds() -> None:
    """A declaration comes before every guess, for the tool of exactly that name."""
    assert kind_of("read_file", {"read_file": "execute"}) == "execute"
    assert kind_of("read_files", {"read_file": "execute"}) == "read"


def test_words() -> None:
    """Signs, digits and capitals part words; a row of capitals is one."""
    assert words_in("MCP2.getHTTPResponse_v2-now") == ["mcp", "get", "http", "response", "v", "now"]
