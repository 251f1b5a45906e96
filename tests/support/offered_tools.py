"""The tools that a coding agent offers, and how a step of a task is called with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from coding_task import Step

Body = dict[str, Any]
SHELLS: Final = ("bash", "exec_command", "shell_command", "shell")
COMMANDS: Final = ("command", "cmd")
PATHS: Final = ("path", "filePath", "file_path")
OLD: Final = ("old_string", "oldString", "oldText")
NEW: Final = ("new_string", "newString", "newText")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool by the name that the client gave it, and the properties of its arguments."""

    name: str
    properties: Body

    def fields(self, *values: tuple[Sequence[str], str]) -> Body:
        """Return arguments: each value under the first of its names that the tool knows."""
        return {next(name for name in names if name in self.properties): value for names, value in values}


def call_of(step: Step, folder: Path, tools: Sequence[Body]) -> tuple[str, Body]:
    """Return name and arguments of the call that takes a step, with a tool of its own or with the shell."""
    offered = {
        (function := tool["function"])["name"].lower(): Tool(function["name"], function["parameters"]["properties"])
        for tool in tools
    }
    path, part = str(folder / step.part.path), step.part
    if step.kind == "search" and (grep := offered.get("grep")):
        return grep.name, grep.fields((["pattern"], f"^LIMIT_{part.number} ="), (PATHS, str(folder)))
    if step.kind == "read" and (read := offered.get("read")):
        return read.name, read.fields((PATHS, path))
    if step.kind == "edit" and (edit := offered.get("edit")):
        return edit.name, edit.fields((PATHS, path)) | _replaced(edit, f"{part.before}\n", f"{part.after}\n")
    shell = next(offered[name] for name in SHELLS if name in offered)
    described = {"description": "Works on a part"} if "description" in shell.properties else {}
    return shell.name, shell.fields((COMMANDS, step.command)) | described


def _replaced(edit: Tool, old: str, new: str) -> Body:
    if "edits" not in edit.properties:
        return edit.fields((OLD, old), (NEW, new))
    inner = Tool("", edit.properties["edits"]["items"]["properties"])
    return {"edits": [inner.fields((OLD, old), (NEW, new))]}


def list_call(things: Sequence[tuple[str, str]], tools: Sequence[Body]) -> tuple[str, Body] | None:
    """Return name and arguments of the call that writes down what is to do, each thing with its status.

    None where no tool takes such a list.
    """
    for tool in tools:
        for key, listed in tool["function"]["parameters"].get("properties", {}).items():
            fields = listed.get("items", {}).get("properties", {})
            if "status" in fields:
                return tool["function"]["name"], {key: [_thing(fields, *thing) for thing in things]}
    return None


def _thing(fields: Body, told: str, status: str) -> Body:
    known = {"content": told, "step": told, "activeForm": told, "status": status, "priority": "medium"}
    return {name: known[name] for name in fields if name in known}
