"""Parses the body of `POST /v1/messages` into a chat request."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from elbowroom.agents.request import ChatRequest, parse_chat_request
from elbowroom.context.transcript import object_in
from elbowroom.errors import RequestError
from elbowroom.server.messages.blocks import SealedCompaction, chat_messages
from elbowroom.server.messages.management import Wanted, wanted_of

log = logging.getLogger(__name__)
Thinking = Literal["shown", "omitted", "off"]
"""What the client gets of the model's thoughts: their words, a block without words, or nothing."""
SAMPLING: Final = ("temperature", "top_p", "top_k")
READ: Final = frozenset(
    {
        "compaction",
        "context_management",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
        *SAMPLING,
    }
)
MEANINGLESS: Final = frozenset({"betas", "cache_control", "diagnostics", "service_tier"})
"""Fields that every request of some clients has, and that change nothing of a local model's answer."""
EFFORTS: Final[Mapping[str, str]] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""The efforts of Anthropic's models, and those that chat templates know."""
SESSION: Final = re.compile(r"_session_(?P<id>[0-9A-Za-z-]{8,})$")
TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "integer"}
KNOWN_TOOLS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "bash": (
        "Runs a command in a shell that stays open between calls.",
        {"command": TEXT, "restart": {"type": "boolean"}},
    ),
    "text_editor": (
        "Views and edits files: view (optionally with view_range), create, str_replace, insert.",
        {
            "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
            "path": TEXT,
            "view_range": {"type": "array", "items": NUMBER},
            "file_text": TEXT,
            "old_str": TEXT,
            "new_str": TEXT,
            "insert_line": NUMBER,
            "insert_text": TEXT,
        },
    ),
    "memory": (
        "Keeps notes in files below /memories that later conversations can read.",
        {
            "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
            "path": TEXT,
            "view_range": {"type": "array", "items": NUMBER},
            "file_text": TEXT,
            "old_str": TEXT,
            "new_str": TEXT,
            "insert_line": NUMBER,
            "insert_text": TEXT,
            "old_path": TEXT,
            "new_path": TEXT,
        },
    ),
}
"""Tools that the client runs and Anthropic's models know without a schema: what each does, and its arguments."""
VERSIONED: Final = re.compile(r"(?P<kind>[a-z_]+)_20[0-9]{6}")


class ThreadsUnsupported(RequestError):
    """The client wants the server to hold the conversation, and would send only what is new from then on.

    The `anthropic` packages know the details, and send the whole conversation instead.
    """

    param = "thread"

    def __init__(self) -> None:
        super().__init__("No threads are held here: leave thread out and send all messages of the conversation.")

    def as_anthropic(self) -> dict[str, Any]:
        """Return Anthropic's error object, with the details by which its clients know what to do."""
        shown = super().as_anthropic()
        shown["error"]["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        return shown


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A parsed body: the chat that it means, what is wanted of thoughts and context, and the client's session.

    The messages for which the `compaction` stands are not in the chat yet.
    """

    chat: ChatRequest
    thinking: Thinking
    session: str
    wanted: Wanted
    compaction: SealedCompaction | None = None


def parse_messages_request(
    body: Any, *, needs_limit: bool = True, thinks_between_calls: bool = False
) -> MessagesRequest:
    """Check a parsed body and take it apart; what is not known is left out, with a line in the log.

    An answer `needs_limit`, a count does not. A model that `thinks_between_calls` may have a budget for that which is
    larger than one answer.

    Raises RequestError that names the field and what belongs there.
    """
    if not isinstance(body, dict):
        raise RequestError("The body has to be a JSON object with model, max_tokens and messages.")
    if body.get("thread") is not None:
        raise ThreadsUnsupported
    if unknown := sorted(set(body) - READ - MEANINGLESS):
        log.info("Fields of a request to /v1/messages that mean nothing here: %.200r", ", ".join(unknown))
    fields = {name: body[name] for name in SAMPLING if body.get(name) is not None}
    fields |= (
        _limits(body, needs_limit=needs_limit, thinks_between_calls=thinks_between_calls)
        | _tools(body)
        | _effort(body)
        | _format(body)
    )
    messages, compaction = chat_messages(body.get("system"), body.get("messages"))
    chat = parse_chat_request(
        {
            "model": body.get("model"),
            "messages": messages,
            "stream": body.get("stream"),
            **fields,
        }
    )
    wanted = wanted_of(body)
    chat = replace(chat, edits=wanted.edits, compaction=wanted.compaction, tells_stop=True)
    return MessagesRequest(chat, _thinking(body), _session(body), wanted, compaction)


def _limits(body: Mapping[str, Any], *, needs_limit: bool, thinks_between_calls: bool) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    most = body.get("max_tokens")
    if most is None and needs_limit:
        raise RequestError("max_tokens is missing: say how many tokens the answer may have.", param="max_tokens")
    if most is not None:
        if type(most) is not int or most < 1:
            raise RequestError("max_tokens has to be a whole number above 0.", param="max_tokens")
        limits["max_tokens"] = most
        if not thinks_between_calls:
            _check_budget(body.get("thinking"), most)
    stops = body.get("stop_sequences")
    if stops:
        if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
            raise RequestError("stop_sequences has to be a list of texts that are not empty.", param="stop_sequences")
        limits["stop"] = stops
    return limits


def _check_budget(thinking: Any, most: int) -> None:
    match thinking:
        case {"type": "enabled", "budget_tokens": budget} if type(budget) is not int or not 0 < budget < most:
            raise RequestError(
                f"thinking.budget_tokens has to be a whole number above 0 and below max_tokens ({most}), of which it "
                "is a part.",
                param="thinking.budget_tokens",
            )
        case _:
            pass


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise RequestError("tools has to be a list.", param="tools")
    specs = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if left_out := [tool for tool, spec in zip(tools, specs, strict=True) if spec is None]:
        names = ", ".join(f"{tool.get('name', ''):.60} ({tool['type']!s:.60})" for tool in left_out)
        log.info("Tools that run at Anthropic only, of which the model is not told: %.200r", names)
    known = [spec for spec in specs if spec is not None]
    choice = _choice(body.get("tool_choice"))
    if known:
        return {"tools": known, **choice}
    return choice if choice.get("tool_choice") == "none" else {}  # which holds for tools of an agent too


def _tool(tool: Any, where: str) -> dict[str, Any] | None:
    """Return a tool as a chat lists it; None for a tool that Anthropic's servers would run."""
    if not isinstance(tool, dict) or not isinstance(name := tool.get("name", tool.get("type")), str) or not name:
        raise RequestError(f"{where} needs a name.", param=f"{where}.name")
    kind = tool.get("type") or "custom"
    if kind == "custom":
        schema = tool.get("input_schema")
        if schema is not None and not isinstance(schema, dict):
            raise RequestError(f"{where}.input_schema has to be an object.", param=f"{where}.input_schema")
        return _function(name, tool.get("description"), schema or {"type": "object", "properties": {}})
    versioned = VERSIONED.fullmatch(kind) if isinstance(kind, str) else None
    if versioned is None or versioned["kind"] not in KNOWN_TOOLS:
        return None
    description, properties = KNOWN_TOOLS[versioned["kind"]]
    return _function(name, description, {"type": "object", "properties": dict(properties)})


def _function(name: str, description: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    described = {"description": description} if isinstance(description, str) and description else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": schema}}


def _choice(choice: Any) -> dict[str, Any]:
    one_at_a_time = isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True
    limits = {"parallel_tool_calls": False} if one_at_a_time else {}
    match choice:
        case None | {"type": "auto"}:
            return limits
        case {"type": "any"}:
            return {"tool_choice": "required", **limits}
        case {"type": "tool", "name": str() as name}:
            return {"tool_choice": {"type": "function", "function": {"name": name}}, **limits}
        case {"type": "none"}:
            return {"tool_choice": "none", **limits}
        case _:
            pass
    raise RequestError("tool_choice.type has to be auto, any, none, or tool with a name.", param="tool_choice")


def _effort(body: Mapping[str, Any]) -> dict[str, Any]:
    match body.get("thinking"), body.get("output_config"):
        case {"type": "disabled"}, _:
            return {}
        case _, {"effort": str() as effort} if effort in EFFORTS:
            return {"reasoning_effort": EFFORTS[effort]}
        case _:
            return {}


def _format(body: Mapping[str, Any]) -> dict[str, Any]:
    config = body.get("output_config")
    wanted = config.get("format") if isinstance(config, dict) else None
    match wanted or body.get("output_format"):
        case {"type": "json_schema", "schema": dict() as schema}:
            return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
        case _:
            return {}


def _thinking(body: Mapping[str, Any]) -> Thinking:
    match body.get("thinking"):
        case {"type": "enabled" | "adaptive", "display": "omitted"}:
            return "omitted"
        case {"type": "enabled" | "adaptive"}:
            return "shown"
        case _:
            return "off"


def _session(body: Mapping[str, Any]) -> str:
    """Return the session that `metadata.user_id` names, as Claude Code writes it there; empty without one."""
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return ""
    if found := SESSION.search(user):
        return found["id"]
    session = (object_in(user) or {}).get("session_id")
    return session if isinstance(session, str) else ""
