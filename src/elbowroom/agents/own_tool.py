"""A tool that the server runs for an agent, whoever wrote it: the vault's, an MCP server's, another agent."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.agents.caller import Caller
from elbowroom.agents.catalog import Target
from elbowroom.settings.tool_sections import ToolKind

USUAL_TIMEOUT: Final = 300.0


@dataclass(frozen=True, slots=True)
class Media:
    """A part of a result that is no text: what it is, such as `image/png`, and its bytes."""

    mime_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned. `is_error` says that the text tells what went wrong."""

    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnTool:
    """One tool: what the model is told of it, and what happens when it calls.

    `parameters` is the JSON schema of an object, `call` gets such an object as the model wrote it: nothing has been
    checked but that it is one. ElbowroomError is what `call` raises for the model to read; whatever else it raises is
    told as well, and logged as a mistake. Cancelling it ends the work as soon as it can be ended.

    `source` is what stands before the name where two tools have the same one. `keeps_output` is false for tools that
    read what is kept already. `timeout` is in seconds; None leaves it to the tool how long it takes.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[str | ToolResult]]
    kind: ToolKind = "other"
    source: str = ""
    keeps_output: bool = True
    timeout: float | None = USUAL_TIMEOUT


Toolbox = Callable[[Target, Caller], Awaitable[Sequence[OwnTool]]]
"""Gives the tools that an agent has for a caller; none for a raw model. Two may have the same name.

It raises nothing for a tool that is broken.
"""
