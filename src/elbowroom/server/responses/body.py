"""Parses the body of `POST /v1/responses` into a chat request and the fields that the response repeats."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.request import ChatRequest, CompactionRequest, parse_chat_request
from elbowroom.errors import RequestError
from elbowroom.server.responses.tools import Toolset

OWN_FIELDS: Final = frozenset(
    {
        "background",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "store",
        "stream",
        "stream_options",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "truncation",
        "user",
    }
)
"""Fields that a chat does not have, or has in another form; every other field goes to the model unchanged."""
LOGPROBS: Final = "message.output_text.logprobs"
SAMPLING: Final[Mapping[str, int]] = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""How tokens are chosen, with the values that OpenAI documents for requests that say nothing about it."""
REPEATED: Final[Mapping[str, Any]] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    **SAMPLING,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "truncation": "disabled",
}
"""The fields that a response repeats of its request, with their values where they were not sent."""
NOTHING_REPEATED: Final[Mapping[str, Any]] = {**REPEATED, "tools": [], "reasoning": {"effort": None, "summary": None}}
"""The same fields of a response whose request is no longer known."""
UNSAID: Final[Mapping[str, Any]] = {"description": None, "parameters": None, "strict": None}
"""The fields of a function that a response repeats also where they were not sent."""
KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "background": (bool,),
    "instructions": (str,),
    "max_output_tokens": (int,),
    "max_tool_calls": (int,),
    "metadata": (dict,),
    "parallel_tool_calls": (bool,),
    "previous_response_id": (str,),
    "prompt_cache_key": (str,),
    "reasoning": (dict,),
    "safety_identifier": (str,),
    "service_tier": (str,),
    "store": (bool,),
    "stream": (bool,),
    "temperature": (int, float),
    "text": (dict,),
    "top_logprobs": (int,),
    "top_p": (int, float),
    "truncation": (str,),
    "user": (str,),
}
NAMES: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    bool: "true or false",
}
CONTEXT_MANAGEMENT: Final = (
    'context_management has to be [{"type": "compaction", "compact_threshold": ...}], where the threshold is a number '
    "of tokens or left out."
)
TRUNCATIONS: Final = ("auto", "disabled")
TEMPLATES: Final = "elbowroom keeps no prompt templates: send instructions and input."
UNSUPPORTED: Final[Mapping[str, str]] = {
    "prompt": TEMPLATES,
}


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A parsed body. `input` is as it was sent.

    `previous` is the id of the response from which the request goes on, `conversation` that of the conversation to
    which it belongs, both empty where none is named; their history is not part of the body.
    `compaction` is what the client asks for of compactions, None for a client that cannot keep them.
    """

    model: str
    input: Any
    previous: str | None
    instructions: str | None
    stores: bool
    stream: bool
    background: bool
    fields: dict[str, Any]
    body: dict[str, Any]
    tools: Toolset
    conversation: str = ""
    compaction: CompactionRequest | None = None

    def chat(self, messages: list[dict[str, Any]]) -> ChatRequest:
        """Return the chat request with the instructions and then these messages. Raises RequestError."""
        leading = [{"role": "system", "content": self.instructions}] if self.instructions else []
        chat = parse_chat_request(
            {"model": self.model, "messages": [*leading, *messages], "stream": self.stream, **self.fields}
        )
        return replace(chat, compaction=self.compaction)

    def repeated(self, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the response repeats; `sampling` is what the agent says where the request does not."""
        usual = {**REPEATED, **{name: sampling[name] for name in SAMPLING if name in sampling}}
        given = {name: value for name in usual if (value := self.body.get(name)) is not None}
        reasoning, tools = self.body.get("reasoning") or {}, self.body.get("tools") or ()
        return {
            **usual,
            **given,
            "tools": [{**UNSAID, **tool} if tool["type"] == "function" else tool for tool in tools],
            "text": {**REPEATED["text"], **given.get("text", {})},
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            **({"conversation": {"id": self.conversation}} if self.conversation else {}),
        }


def parse_responses_request(body: Any, *, needs_input: bool = True) -> ResponsesRequest:
    """Check a parsed body and take it apart. Raises RequestError that names the field and what belongs there."""
    if not isinstance(body, dict):
        raise RequestError("The body has to be a JSON object with model and input.")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError("model is missing: name an agent or a model of GET /v1/models.", param="model")
    for name, kinds in KINDS.items():
        _check_kind(body.get(name), kinds, name)
    for name, instead in UNSUPPORTED.items():
        if body.get(name):
            raise RequestError(f"{name} is not supported. {instead}", param=name, code="unsupported_parameter")
    if body.get("truncation") not in (None, *TRUNCATIONS):
        raise RequestError(f"truncation has to be {' or '.join(TRUNCATIONS)}.", param="truncation")
    if needs_input and body.get("input") is None:
        raise RequestError("input is missing: it has to be a text or a list of items.", param="input")
    tools = Toolset.of(body.get("tools"))
    return ResponsesRequest(
        model=model,
        input=[] if body.get("input") is None else body["input"],
        previous=body.get("previous_response_id") or None,
        instructions=body.get("instructions"),
        stores=body.get("store") is not False,
        stream=body.get("stream") is True,
        background=body.get("background") is True,
        fields=_chat_fields(body, tools),
        body=body,
        tools=tools,
        conversation=_conversation(body),
        compaction=_compaction(body.get("context_management")),
    )


def _conversation(body: dict[str, Any]) -> str:
    """Return the id of the conversation that a request belongs to. Raises RequestError."""
    match body.get("conversation"):
        case None:
            return ""
        case {"id": str() as named} | (str() as named):
            pass
        case _:
            raise RequestError('conversation has to be an id or {"id": ...}.', param="conversation")
    if named and body.get("previous_response_id"):
        raise RequestError(
            "conversation and previous_response_id cannot be given together: a conversation has its responses.",
            param="previous_response_id",
        )
    return named


def _compaction(value: Any) -> CompactionRequest | None:
    """Return what `context_management` asks for. Raises RequestError that says what belongs there."""
    match value:
        case None | []:
            return None
        case [{"type": "compaction", **given}]:
            at = given.get("compact_threshold")
        case _:
            raise RequestError(CONTEXT_MANAGEMENT, param="context_management")
    if at is not None and (isinstance(at, bool) or not isinstance(at, int) or at < 1):
        raise RequestError(CONTEXT_MANAGEMENT, param="context_management[0].compact_threshold")
    return CompactionRequest(at)


def _chat_fields(body: dict[str, Any], tools: Toolset) -> dict[str, Any]:
    fields = {name: value for name, value in body.items() if name not in OWN_FIELDS and name != "messages"}
    reasoning = body.get("reasoning") or {}
    given = {
        "max_tokens": body.get("max_output_tokens"),
        "tools": tools.specs or None,
        "tool_choice": _tool_choice(body.get("tool_choice"), tools),
        "reasoning_effort": reasoning.get("effort"),
        "response_format": _response_format(body.get("text") or {}),
        "user": body.get("user"),
        "verbosity": (body.get("text") or {}).get("verbosity"),
        **_logprobs(body),
    }
    return {**fields, **{name: value for name, value in given.items() if value is not None}}


def _check_kind(value: Any, kinds: tuple[type, ...], name: str) -> None:
    is_misplaced_bool = isinstance(value, bool) and bool not in kinds
    if value is not None and (is_misplaced_bool or not isinstance(value, kinds)):
        raise RequestError(f"{name} has to be {NAMES[kinds[-1]]}.", param=name)


def _tool_choice(choice: Any, tools: Toolset) -> Any:
    """Return the tool choice in the form of a chat."""
    match choice:
        case None | "none":  # which holds for tools of an agent too
            return choice
        case "auto" | "required":
            return choice if tools.tools else None
        case {"type": "function" | "custom", "name": str()} | {"type": "local_shell" | "apply_patch"}:
            return tools.named(choice)[0]
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list() as allowed}:
            named = [function for tool in allowed if isinstance(tool, dict) for function in tools.named(tool)]
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
        case _:
            pass
    raise RequestError(
        'tool_choice has to be "auto", "none", "required" or {"type": "function", "name": ...}.', param="tool_choice"
    )


def _response_format(text: dict[str, Any]) -> Any:
    match text.get("format"):
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "json_object"}
        case {"type": "json_schema", "name": str(), "schema": dict()} as wanted:
            names = ("name", "description", "schema", "strict")
            schema = {name: wanted[name] for name in names if wanted.get(name) is not None}
            return {"type": "json_schema", "json_schema": schema}
        case _:
            pass
    raise RequestError(
        "text.format has to be text, json_object, or json_schema with a name and a schema.", param="text.format"
    )


def _logprobs(body: dict[str, Any]) -> dict[str, Any]:
    include = body.get("include")
    if include is not None and not isinstance(include, list):
        raise RequestError("include has to be a list.", param="include")
    if LOGPROBS not in (include or []) and body.get("top_logprobs") is None:
        return {}
    return {"logprobs": True, "top_logprobs": body.get("top_logprobs")}
