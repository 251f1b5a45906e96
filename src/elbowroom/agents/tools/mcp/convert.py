"""Makes tools of an agent from those of an MCP server: names and schemas for models, and results as text."""

import base64
import binascii
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp import types

from elbowroom.agents.answer import name_in_lm_studio
from elbowroom.agents.tools.tool import Media, ServerTool, ToolResult, free_name
from elbowroom.settings.model import ToolKind

Call = Callable[[str, Mapping[str, Any], bool], Awaitable[ToolResult]]
"""Calls a tool by the name that the server gave it; the flag tells that a second call does no harm."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool with the `name` that its server gave it, which may be no name that a model can call."""

    name: str
    tool: ServerTool


MOST_TOOLS: Final = 500
"""How many tools of a server are taken: no window has room for more, and reading them holds up all others."""


def mcp_tools(server: str, listed: Sequence[types.Tool], call: Call) -> list[McpTool]:
    """Return the tools of a server, in its order, under names that models can call and that are distinct."""
    tools: dict[str, McpTool] = {}
    used = set[str]()
    for one in listed:
        if one.name not in tools:  # a name that is listed twice means one tool
            name = _callable_name(one.name, used)
            used.add(name)
            tools[one.name] = McpTool(one.name, _server_tool(server, name, one, call))
    return list(tools.values())


def _callable_name(name: str, used: set[str]) -> str:
    """Return a name that a model can call; one that would only be underscores is `tool` with a hash."""
    if name_in_lm_studio(name).strip("_"):
        return free_name(name, used, name)
    return free_name("tool", used | {"tool"}, name)


def mend_tool_list(result: Mapping[str, Any]) -> None:
    """Repair a server's list of tools in place: one malformed tool would make the whole list invalid.

    Schemas of results are removed: results are taken as they are, whether they keep to the schema or not. Of more than
    MOST_TOOLS only one more is left, by which it is seen that there were more.
    """
    if isinstance(listed := result.get("tools"), list):
        del listed[MOST_TOOLS + 1 :]
    for tool in tools if isinstance(tools := result.get("tools"), list) else ():
        if not isinstance(tool, dict):
            continue
        tool.pop("outputSchema", None)
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            tool["inputSchema"] = object_schema(schema)


def _server_tool(server: str, name: str, listed: types.Tool, call: Call) -> ServerTool:
    told = listed.name
    can_repeat = _can_repeat(listed.annotations)

    async def invoke(arguments: Mapping[str, Any]) -> ToolResult:
        return await call(told, arguments, can_repeat)

    return ServerTool(
        name=name,
        description=listed.description or listed.title or "",
        parameters=object_schema(listed.input_schema),
        call=invoke,
        kind=_kind(listed.annotations),
        source=server,
        limits_itself=True,  # by the `timeout` of the server
    )


def _kind(hints: types.ToolAnnotations | None) -> ToolKind:
    if hints is None:
        return "other"
    if hints.read_only_hint:
        return "read"
    return "write" if hints.read_only_hint is False or hints.destructive_hint is not None else "other"


def _can_repeat(hints: types.ToolAnnotations | None) -> bool:
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)


MOST_REFERENCES: Final = 500
DEEPEST: Final = 30
MAPS_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
SCHEMAS: Final = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
LISTS_OF_SCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
LEFT_OUT: Final = frozenset({"$schema", "$id", "$defs", "definitions", "$ref", "$anchor", "$comment", "title"})


def object_schema(schema: object) -> dict[str, Any]:
    """Return the schema of an object for the schema that a server gives of a tool's arguments.

    Each `$ref` within the schema is replaced by its target, except where it leads back into itself; addresses elsewhere
    are not followed. Titles are removed: they repeat the names and take room in the model's window.
    """
    if not isinstance(schema, Mapping):
        return {"type": "object", "properties": {}}
    whole = _Unfolding(schema).unfolded(schema, ())
    if whole.get("type", "object") != "object":
        return {"type": "object", "properties": {}}
    properties = whole.get("properties")
    fitting = {**whole, "type": "object", "properties": properties if isinstance(properties, dict) else {}}
    required = [name for name in _list(whole.get("required")) if name in fitting["properties"]]
    return {key: value for key, value in fitting.items() if key != "required"} | (
        {"required": required} if required else {}
    )


class _Unfolding:
    """Replaces references by their targets, up to a limit: a small schema can unfold without end."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._count = itertools.count(1)

    def unfolded(self, schema: Any, within: tuple[str, ...], depth: int = 0) -> dict[str, Any]:
        """Return a schema without references; `within` are the references that lead to it."""
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return {}
        unfolded: dict[str, Any] = {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in within and next(self._count) <= MOST_REFERENCES:
            unfolded = self.unfolded(self._found(reference), (*within, reference), depth + 1)
        return unfolded | {
            key: self._value(key, value, within, depth + 1) for key, value in schema.items() if key not in LEFT_OUT
        }

    def _value(self, key: str, value: Any, within: tuple[str, ...], depth: int) -> Any:
        if key in MAPS_OF_SCHEMAS and isinstance(value, Mapping):
            return {name: self.unfolded(part, within, depth) for name, part in value.items()}
        if key in SCHEMAS and isinstance(value, Mapping):
            return self.unfolded(value, within, depth)
        if key in LISTS_OF_SCHEMAS or (key == "items" and isinstance(value, list)):
            return [self.unfolded(part, within, depth) for part in _list(value)]
        return value

    def _found(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return {}
        here: Any = self._root
        for step in _steps(reference):
            if isinstance(here, list) and step.isdigit() and int(step) < len(here):
                here = here[int(step)]
            else:
                here = here.get(step) if isinstance(here, Mapping) else None
        return here


def _steps(reference: str) -> Iterator[str]:
    for step in reference.removeprefix("#").split("/")[1:]:
        yield step.replace("~1", "/").replace("~0", "~")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


NOTHING = "(The tool returned nothing.)"
UNKNOWN_FORM = "application/octet-stream"


def as_tool_result(result: types.CallToolResult) -> ToolResult:
    """Return the result with its texts joined, a line for each part that is no text, and these parts as media."""
    texts: list[str] = []
    media: list[Media] = []
    for part in _parts(result.content):
        match part:
            case str():
                texts.append(part)
            case Media():
                texts.append(f"[{part.mime_type}, {len(part.data)} bytes]")
                media.append(part)
    if not texts and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return ToolResult("\n".join(texts) or NOTHING, is_error=bool(result.is_error), media=tuple(media))


def _parts(content: list[types.ContentBlock]) -> Iterator[str | Media]:
    for block in content:
        match block:
            case types.TextContent(text=text):
                yield text
            case types.ImageContent() | types.AudioContent():
                yield _decoded(block.data, block.mime_type)
            case types.ResourceLink():
                yield _told_link(block)
            case types.EmbeddedResource():
                yield f"[{block.resource.uri}]"
                yield _contents(block.resource)


def _contents(resource: types.TextResourceContents | types.BlobResourceContents) -> str | Media:
    if isinstance(resource, types.TextResourceContents):
        return resource.text
    return _decoded(resource.blob, resource.mime_type or UNKNOWN_FORM)


def _decoded(data: str, mime_type: str) -> str | Media:
    try:
        return Media(mime_type, base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return f"[{mime_type}, not readable: it is not base64]"


def _told_link(link: types.ResourceLink) -> str:
    named = f"{link.title or link.name}: " if link.title or link.name else ""
    about = f" ({link.description})" if link.description else ""
    return f"[{named}{link.uri}{about}]"
