"""What the person is told of a tool's call: what is done and how much came of it, never what the result says."""

from collections.abc import Mapping
from typing import Final

from elbowroom.agents.answer import Notice
from elbowroom.agents.tools.tool import ServerTool, ToolResult, parsed_arguments
from elbowroom.context.outputs import one_line

VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "vault_list": ("Listing", "Listed"),
    "vault_read": ("Reading", "Read"),
    "vault_outline": ("Reading", "Read"),
    "vault_search": ("Searching", "Searched"),
    "vault_count": ("Counting", "Counted"),
    "vault_create": ("Writing", "Wrote"),
    "vault_append": ("Writing", "Wrote"),
    "vault_patch": ("Changing", "Changed"),
    "vault_rename": ("Renaming", "Renamed"),
    "vault_delete": ("Deleting", "Deleted"),
}
"""What a tool does and what it has done; the names of all others are told."""
TELLING: Final = ("path", "file_path", "folder", "query", "pattern", "url", "command", "name", "ref")
"""The arguments that tell what a call is about, the first of them that it has."""
LONGEST_NAME: Final = 50
SPOKEN: Final = frozenset({"query", "pattern"})


def call_notice(tool: ServerTool, written: str) -> Notice:
    """Return what is told when a call begins; `written` are its arguments as the model wrote them."""
    return Notice("tool call", f"{_told(tool, written, 0)} ...", is_done=False)


def result_notice(tool: ServerTool, written: str, result: ToolResult) -> Notice:
    """Return what is told when the call has ended: how many lines or characters came, or that it has failed."""
    lines = result.text.count("\n") + 1
    amount = f"{lines:,} lines" if lines > 1 else f"{len(result.text):,} characters"
    return Notice("tool result", f"{_told(tool, written, 1)}: {'failed' if result.is_error else amount}")


def _told(tool: ServerTool, written: str, tense: int) -> str:
    verb = VERBS[tool.name][tense] if tool.name in VERBS else ("Calling", "Called")[tense]
    about, given = "", parsed_arguments(written) or {}
    for key in TELLING:
        value = given.get(key)
        if isinstance(value, str) and value.strip():
            name = one_line(value, LONGEST_NAME)
            about = f"'{name}'" if key in SPOKEN else name
            break
    words = [verb, "" if tool.name in VERBS and about else one_line(tool.name, LONGEST_NAME), about]
    return " ".join(filter(None, words))
