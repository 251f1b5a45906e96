"""The client's tools told by name: one tool in their place that describes those the model asks for, or calls them.

The model is told one line of each. What it looks up stands in the conversation, behind all that an engine has read of
it, and comes back with later requests as the results of the server's own tools do.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.answer import ToolCall, name_in_lm_studio
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.tools.client import LONGEST_OF_FUNCTION, shortened
from elbowroom.agents.tools.tool import ServerTool, ToolResult, free_name, parsed_arguments
from elbowroom.context.outputs import one_line
from elbowroom.context.transcript import as_json

LOOK_UP_TOOL: Final = "use_tool"
LONGEST_LIST: Final = 2600
"""Characters of the list, about 900 tokens: the more tools there are, the fewer words stand with each name."""
LEAST_WORDS: Final = 12
"""Characters below which the words after a name say nothing."""
LONGEST_NAME: Final = 100
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "or several, with commas"},
        "arguments": {"type": "object", "description": "to call it"},
    },
    "required": ["name"],
}
TOLD: Final = (
    "Tools of the user's program. With a name alone this returns what that tool does and takes: read it before you use "
    "the tool. Then call it by its name, or with name and arguments here. The tools:\n"
)


@dataclass(frozen=True, slots=True)
class ToolSearch:
    """Stands for the `tools` of a client, of which the model is told under `name`."""

    tools: tuple[dict[str, Any], ...]
    name: str = LOOK_UP_TOOL

    @property
    def tool(self) -> ServerTool:
        """Return the tool that the model is offered instead."""
        return ServerTool(self.name, TOLD + listed(self.tools), PARAMETERS, self._answer, keeps_output=False)

    def without(self, names: Collection[str]) -> "ToolSearch":
        """Return the same without the tools of these names."""
        return replace(self, tools=tuple(tool for tool in self.tools if tool_name(tool) not in names))

    def resolved(self, call: ToolCall) -> ToolCall:
        """Return the call of the client's tool that the model has meant, where its arguments fit that tool.

        Any other call of a client's tool becomes one of this tool, which answers with the description.
        """
        if call.name == self.name:
            asked = parsed_arguments(call.arguments) or {}
            name, arguments = _name_of(asked), _arguments_of(asked)
            spec = self._spec(name)
            if spec is None or arguments is None or fault_of(arguments, spec):
                return call
            return replace(call, name=str(tool_name(spec)), arguments=as_json(arguments))
        if (spec := self._spec(call.name)) is None:
            return call
        arguments = parsed_arguments(call.arguments)
        if arguments is not None and not fault_of(arguments, spec):
            return call
        wrong = call.arguments if arguments is None else arguments
        return replace(call, name=self.name, arguments=as_json({"name": call.name, "arguments": wrong}))

    async def _answer(self, written: Mapping[str, Any]) -> ToolResult:
        names = [name.strip() for name in _name_of(written).split(",") if name.strip()]
        found = [(name, self._spec(name)) for name in dict.fromkeys(names)]
        told = [as_json(spec["function"]) for _, spec in found if spec is not None]
        unknown = ", ".join(one_line(name, LONGEST_NAME) for name, spec in found if spec is None)
        if unknown or not found:
            missing = f"there is no tool {unknown}" if unknown else "`name` is missing"
            told.append(f"Error: {missing}. Take a name from the list of {self.name}.")
        elif "arguments" in written and (spec := found[0][1]) is not None and len(found) == 1:
            arguments = _arguments_of(written)
            fault = "the arguments are not a JSON object" if arguments is None else fault_of(arguments, spec)
            if fault:
                told.insert(0, f"Error: nothing was called: {fault}. This is what the tool takes:")
                return ToolResult("\n".join(told), is_error=True)
        return ToolResult("\n".join(told), is_error=bool(unknown or not found))

    def _spec(self, name: str) -> dict[str, Any] | None:
        """Return the tool of this name, or else the only one whose name LM Studio writes like it."""
        exact = next((tool for tool in self.tools if tool_name(tool) == name), None)
        alike = [tool for tool in self.tools if name_in_lm_studio(tool_name(tool) or "") == name_in_lm_studio(name)]
        return exact or (alike[0] if len(alike) == 1 else None)


def searched(request: ChatRequest, taken: Collection[str]) -> tuple[ChatRequest, ToolSearch | None]:
    """Return the request as a model gets it that is told of the client's tools by name, and what stands for them.

    `taken` are names that other tools have. The tools stay where that is no longer than to tell of them, where the
    client wants one of them called, and where they are none that a model calls.
    """
    tools = tuple(tool for tool in request.tools if tool_name(tool) is not None)
    if not tools or isinstance(request.fields.get("tool_choice"), dict):
        return request, None
    names = {name_in_lm_studio(tool_name(tool) or "") for tool in tools}
    search = ToolSearch(tools, free_name(LOOK_UP_TOOL, names.union(map(name_in_lm_studio, taken))))
    if len(as_json(tools)) <= len(as_json(search.tool.spec)):
        return request, None
    others = tuple(tool for tool in request.tools if tool_name(tool) is None)
    return replace(request, tools=others, by_name=tools), search


def listed(tools: Sequence[dict[str, Any]]) -> str:
    """Return one line for each tool: its name, and the first words of what it does where there is room for them.

    No name is left out.
    """
    names = [tool_name(tool) or "" for tool in tools]
    room = min(LONGEST_OF_FUNCTION, (LONGEST_LIST - sum(map(len, names))) // len(names) - len("\n: "))
    if room < LEAST_WORDS:
        return "\n".join(names)
    told = (shortened(str(tool["function"].get("description") or ""), room) for tool in tools)
    return "\n".join(f"{name}: {words}" if words else name for name, words in zip(names, told, strict=True))


def fault_of(arguments: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return what is wrong with the names of a call's arguments; empty where a tool takes them."""
    schema = spec["function"].get("parameters")
    if not isinstance(schema, dict):
        return ""
    known, required = schema.get("properties"), schema.get("required")
    missing = [name for name in required if name not in arguments] if isinstance(required, list) else []
    if missing:
        return f"{one_line(', '.join(map(str, missing)), LONGEST_NAME)} is missing"
    takes_more = schema.get("additionalProperties") or any(key in schema for key in ("patternProperties", "$ref"))
    is_listed = isinstance(known, dict) and not takes_more and not {"allOf", "anyOf", "oneOf"}.intersection(schema)
    unknown = [name for name in arguments if name not in known] if is_listed and isinstance(known, dict) else []
    return f"it takes no {one_line(', '.join(unknown), LONGEST_NAME)}" if unknown else ""


def _name_of(written: Mapping[str, Any]) -> str:
    name = written.get("name")
    return name if isinstance(name, str) else ""


def _arguments_of(written: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the arguments for the client's tool, which may be written as a text; None where there are none."""
    given = written.get("arguments")
    if isinstance(given, str):
        return parsed_arguments(given) if given.strip() else None
    return given if isinstance(given, dict) else None
