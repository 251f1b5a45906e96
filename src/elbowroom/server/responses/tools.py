"""Translates the tools of the Responses API: models know functions only, clients get the calls that they know.

A tool of the type `custom` takes one text, a `namespace` holds further tools, `local_shell` and `apply_patch` have
arguments that OpenAI documents. Tools that OpenAI's servers run are left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from elbowroom.agents.answer import ToolCall
from elbowroom.context.transcript import as_json, object_in
from elbowroom.errors import RequestError
from elbowroom.server.dialect import text_in

Kind = Literal["function", "custom", "local_shell", "apply_patch"]
Item = dict[str, Any]
BETWEEN: Final = "__"
"""What stands between the name of a namespace and that of a tool in it, as models get to see it."""
INPUT: Final = "input"
TEXT: Final = {"type": "string"}
LOCAL_SHELL: Final = (
    "Runs a command on the user's computer and returns its output.",
    {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": TEXT, "description": "The program and its arguments."},
            "working_directory": TEXT,
            "timeout_ms": {"type": "integer"},
        },
        "required": ["command"],
    },
)
APPLY_PATCH: Final = (
    "Creates, updates or deletes one file.",
    {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": TEXT,
            "diff": {"type": "string", "description": "What changes, as a unified diff with @@; none for delete_file."},
        },
        "required": ["type", "path"],
    },
)
FIXED: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {"local_shell": LOCAL_SHELL, "apply_patch": APPLY_PATCH}
"""Tools that the client runs and whose form is fixed: what each does, and its arguments."""
CALLS: Final[Mapping[str, Kind]] = {
    "function_call": "function",
    "custom_tool_call": "custom",
    "local_shell_call": "local_shell",
    "apply_patch_call": "apply_patch",
}
"""The kinds of tools by the type of the items that call them; the types of results end with `_output`."""
OUTPUTS: Final = frozenset(f"{kind}_output" for kind in CALLS)
PREFIXES: Final[Mapping[Kind, str]] = {"function": "fc", "custom": "ctc", "local_shell": "lsh", "apply_patch": "apc"}
"""How the ids of the items begin."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its kind, its name and namespace as the client knows them, and the function that the model gets."""

    kind: Kind
    name: str
    namespace: str
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Toolset:
    """The tools of one request by the names that the model knows; `left_out` are the types of those nobody runs."""

    tools: Mapping[str, Tool] = field(default_factory=dict)
    left_out: Sequence[str] = ()

    @classmethod
    def of(cls, tools: Any) -> "Toolset":
        """Take the `tools` of a request apart. Raises RequestError that names the tool and what belongs there."""
        if tools is None:
            return cls()
        if not isinstance(tools, list):
            raise RequestError("tools has to be a list.", param="tools")
        left_out: list[str] = []
        found = [each for index, tool in enumerate(tools) for each in _tools(tool, f"tools[{index}]", left_out.append)]
        return cls({each.spec["name"]: each for each in found}, tuple(dict.fromkeys(left_out)))

    @property
    def specs(self) -> list[dict[str, Any]]:
        """Return the tools as a chat lists them."""
        return [{"type": "function", "function": tool.spec} for tool in self.tools.values()]

    def named(self, choice: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the tools that the client has chosen by a name, in the form in which a chat names them."""
        name = choice.get("name") or choice.get("type")
        names = [known for known, tool in self.tools.items() if name in (known, tool.name)] or [str(name)]
        return [{"type": "function", "function": {"name": each}} for each in names]

    def kind_of(self, call: ToolCall) -> Kind:
        """Return the kind of the tool that is called; an unknown one is a function."""
        tool = self.tools.get(call.name)
        return tool.kind if tool is not None else "function"

    def item_of(self, call: ToolCall, item_id: str) -> Item:
        """Return a call as the item by which its client knows it."""
        tool = self.tools.get(call.name)
        match self.kind_of(call):
            case "custom":
                given = {"type": "custom_tool_call", "input": _input_of(call)}
            case "local_shell":
                action = {"env": {}, **(object_in(call.arguments) or {}), "type": "exec"}
                return {"type": "local_shell_call", "id": item_id, "call_id": call.id, "action": action}
            case "apply_patch":
                return {
                    "type": "apply_patch_call",
                    "id": item_id,
                    "call_id": call.id,
                    "operation": object_in(call.arguments) or {},
                }
            case _:
                given = {"type": "function_call", "arguments": call.arguments}
        named = {"name": tool.name if tool else call.name}
        spaced = {"namespace": tool.namespace} if tool and tool.namespace else {}
        return {"id": item_id, **given, "call_id": call.id, **named, **spaced}


def _tools(tool: Any, where: str, leave_out: Callable[[str], object], namespace: str = "") -> Iterator[Tool]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(kind, str):
        raise RequestError(f"{where} has to be an object with a type.", param=where)
    match kind:
        case "function":
            yield _function(tool, where, namespace)
        case "custom":
            yield _custom(tool, where, namespace)
        case "namespace":
            inner, name = tool.get("tools"), _name(tool, where)
            if not isinstance(inner, list):
                raise RequestError(f"{where}.tools has to be a list.", param=f"{where}.tools")
            for index, each in enumerate(inner):
                yield from _tools(each, f"{where}.tools[{index}]", leave_out, name)
        case "local_shell" | "apply_patch":
            description, parameters = FIXED[kind]
            spec = {"name": kind, "description": description, "parameters": dict(parameters)}
            yield Tool("local_shell" if kind == "local_shell" else "apply_patch", kind, "", spec)
        case _:
            leave_out(kind[:60])


def _function(tool: Mapping[str, Any], where: str, namespace: str) -> Tool:
    name = _name(tool, where)
    for key, wanted, said in (
        ("parameters", dict, "an object"),
        ("description", str, "a text"),
        ("strict", bool, "true or false"),
    ):
        if tool.get(key) is not None and not isinstance(tool[key], wanted):
            raise RequestError(f"{where}.{key} has to be {said}.", param=f"{where}.{key}")
    given = {key: tool[key] for key in ("description", "parameters", "strict") if tool.get(key) is not None}
    return Tool("function", name, namespace, {"name": full_name(namespace, name), **given})


def _custom(tool: Mapping[str, Any], where: str, namespace: str) -> Tool:
    """Return a tool that takes one text; where the text has a grammar, the description tells it."""
    name, description = _name(tool, where), tool.get("description")
    texts = [description] if isinstance(description, str) and description else []
    match tool.get("format"):
        case {"type": "grammar", "definition": str() as grammar, **more}:
            texts.append(f"The text in {INPUT!r} follows this grammar ({more.get('syntax', 'lark')}):\n{grammar}")
        case _:
            pass
    parameters = {"type": "object", "properties": {INPUT: TEXT}, "required": [INPUT]}
    spec = {"name": full_name(namespace, name), "description": "\n\n".join(texts), "parameters": parameters}
    return Tool("custom", name, namespace, spec)


def _name(tool: Mapping[str, Any], where: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise RequestError(f"{where} needs a name.", param=f"{where}.name")
    return name


def full_name(namespace: Any, name: str) -> str:
    """Return the name by which the model knows a tool of a namespace."""
    if not isinstance(namespace, str) or not namespace:
        return name
    return f"{namespace.removesuffix(BETWEEN)}{BETWEEN}{name}"


def _input_of(call: ToolCall) -> str:
    """Return the one text of a call; where the model did not write it as an argument, all that it wrote."""
    given = (object_in(call.arguments) or {}).get(INPUT)
    return given if isinstance(given, str) else call.arguments


def call_of(item: Mapping[str, Any], where: str) -> tuple[str, str]:
    """Return the name and the arguments of a call that the client sends back.

    Raises RequestError where a part of it is missing.
    """
    kind = CALLS[item["type"]]
    match kind:
        case "function":
            arguments = text_in(item, "arguments", where)
        case "custom":
            arguments = as_json({INPUT: text_in(item, "input", where)})
        case "local_shell":
            action = item.get("action")
            given = action.items() if isinstance(action, Mapping) else ()
            arguments = as_json({name: value for name, value in given if name not in ("type", "env")})
        case _:
            arguments = as_json(item.get("operation"))
    name = text_in(item, "name", where) if kind in ("function", "custom") else kind
    return full_name(item.get("namespace"), name), arguments
