"""The routes of elbowroom under /v1 as an OpenAPI description: what clients send, right and a little wrong."""

from typing import Any, Final

ANYTHING: Final[dict[str, Any]] = {}
TEXT: Final = {"type": "string"}
MAYBE_TEXT: Final = {"type": ["string", "null"]}
FUNCTION: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "description": TEXT,
        "parameters": {"type": "object"},
        "strict": {"type": ["boolean", "null"]},
    },
    "required": ["name"],
}
CALL: Final = {
    "type": "object",
    "properties": {
        "id": TEXT,
        "type": {"const": "function"},
        "function": {"type": "object", "properties": {"name": TEXT, "arguments": TEXT}},
    },
}
MESSAGE: Final = {
    "type": "object",
    "properties": {
        "role": {"enum": ["user", "assistant", "system", "developer", "tool", "function", ""]},
        "content": {
            "anyOf": [
                MAYBE_TEXT,
                {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "type": {
                                "enum": ["text", "image_url", "input_text", "output_text", "input_image", "refusal"]
                            },
                            "text": TEXT,
                            "refusal": TEXT,
                            "image_url": {"anyOf": [TEXT, {"type": "object", "properties": {"url": TEXT}}]},
                            "file_id": TEXT,
                        },
                    },
                },
            ]
        },
        "name": TEXT,
        "tool_call_id": MAYBE_TEXT,
        "tool_calls": {"anyOf": [{"type": "null"}, {"type": "array", "items": CALL}]},
    },
    "required": ["role", "content"],
}
ITEM: Final = {
    "anyOf": [
        MESSAGE,
        {
            "type": "object",
            "properties": {
                "type": {"const": "function_call"},
                "call_id": TEXT,
                "name": TEXT,
                "arguments": TEXT,
                "id": MAYBE_TEXT,
            },
            "required": ["type", "call_id", "name", "arguments"],
        },
        {
            "type": "object",
            "properties": {"type": {"const": "function_call_output"}, "call_id": TEXT, "output": MESSAGE["properties"]},
            "required": ["type", "call_id", "output"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "reasoning"},
                "summary": {"type": "array", "items": {"type": "object", "properties": {"text": TEXT}}},
                "content": ANYTHING,
            },
            "required": ["type"],
        },
        {"type": "object", "properties": {"type": {"const": "item_reference"}, "id": TEXT}},
        {"type": "object", "properties": {"type": {"const": "compaction"}, "encrypted_content": TEXT}},
        {"type": "object", "properties": {"type": {"const": "compaction_trigger"}}},
        {"type": "object", "properties": {"type": TEXT}},
    ]
}
SHARED: Final[dict[str, Any]] = {
    "stream": {"type": ["boolean", "null"]},
    "temperature": {"type": ["number", "null"]},
    "top_p": {"type": ["number", "null"]},
    "metadata": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": TEXT}]},
    "user": TEXT,
    "parallel_tool_calls": {"type": ["boolean", "null"]},
}


def description(models: list[str]) -> dict[str, Any]:
    """Return the description; requests name one of these models, or anything."""
    model: dict[str, Any] = {"anyOf": [{"enum": models}, TEXT]}
    compacted = _body([], focus=MAYBE_TEXT, preview={"type": "boolean"}, summary={"type": "boolean"})
    chat = _body(
        ["model", "messages"],
        model=model,
        messages={"type": "array", "items": MESSAGE},
        tools={"type": "array", "items": {"type": "object", "properties": {"type": TEXT, "function": FUNCTION}}},
        tool_choice=ANYTHING,
        max_tokens={"type": ["integer", "null"]},
        stop=ANYTHING,
        response_format=ANYTHING,
        stream_options=ANYTHING,
        **SHARED,
    )
    response = _body(
        ["model", "input"],
        model=model,
        input={"anyOf": [TEXT, {"type": "array", "items": ITEM}]},
        instructions=MAYBE_TEXT,
        previous_response_id=MAYBE_TEXT,
        tools={"type": "array", "items": {**FUNCTION, "properties": {**FUNCTION["properties"], "type": TEXT}}},
        tool_choice=ANYTHING,
        max_output_tokens={"type": ["integer", "null"]},
        text={"type": "object", "properties": {"format": ANYTHING, "verbosity": TEXT}},
        reasoning={"type": "object", "properties": {"effort": ANYTHING}},
        include={"type": "array", "items": TEXT},
        context_management={
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"type": {"const": "compaction"}, "compact_threshold": {"type": ["integer", "null"]}},
            },
        },
        conversation={"anyOf": [MAYBE_TEXT, {"type": "object", "properties": {"id": TEXT}}]},
        truncation={"enum": ["auto", "disabled", None]},
        store={"type": ["boolean", "null"]},
        background={"type": ["boolean", "null"]},
        top_logprobs={"type": ["integer", "null"]},
        **SHARED,
    )
    prompt = _body(
        ["model", "prompt"],
        model=model,
        prompt={"anyOf": [TEXT, {"type": "array", "items": {"anyOf": [TEXT, {"type": "integer"}]}}]},
        max_tokens={"type": ["integer", "null"]},
        **SHARED,
    )
    items = {"type": "array", "items": ITEM}
    queued = _body([], message=ANYTHING, content=ANYTHING, mode=TEXT)
    wish = _body([], queue=TEXT, grace=ANYTHING)
    paths = {
        "/v1/models": {"get": _operation()},
        "/v1/models/{id}": {"get": _operation("id")},
        "/v1/chat/completions": {"post": _operation(body=chat)},
        "/v1/chat/completions/input_tokens": {"post": _operation(body=chat)},
        "/v1/responses": {"post": _operation(body=response)},
        "/v1/responses/input_tokens": {"post": _operation(body=response)},
        "/v1/responses/compact": {"post": _operation(body=response)},
        "/v1/responses/{id}": {"get": _operation("id"), "delete": _operation("id")},
        "/v1/responses/{id}/cancel": {"post": _operation("id", body=_body([]))},
        "/v1/embeddings": {"post": _operation(body=_body(["model", "input"], model=model, input=ANYTHING))},
        "/v1/completions": {"post": _operation(body=prompt)},
        "/v1/conversations": {
            "get": _operation(query=("q", "limit", "before")),
            "post": _operation(body=_body([], items=items, metadata=SHARED["metadata"])),
        },
        "/v1/conversations/{id}": {
            "get": _operation("id"),
            "delete": _operation("id"),
            "post": _operation("id", body=_body(["metadata"], metadata=SHARED["metadata"])),
        },
        "/v1/conversations/{id}/items": {
            "get": _operation("id", query=("after", "limit", "order")),
            "post": _operation("id", body=_body(["items"], items=items)),
        },
        "/v1/conversations/{id}/items/{item}": {"get": _operation("id", "item"), "delete": _operation("id", "item")},
        "/v1/conversations/{id}/messages": {
            "get": _operation("id", query=("branch", "hidden", "limit", "after")),
        },
        "/v1/conversations/{id}/messages/{message}": {"get": _operation("id", "message")},
        "/v1/conversations/{id}/export": {"get": _operation("id", query=("format",))},
        "/v1/conversations/{id}/compact": {"post": _operation("id", body={"anyOf": [chat, compacted]})},
        "/v1/conversations/{id}/compact/undo": {"post": _operation("id", body=_body([]))},
        "/v1/conversations/{id}/summary": {"put": _operation("id", body=_body(["summary"], summary=TEXT))},
        "/v1/conversations/{id}/messages/{message}/pin": {
            "put": _operation("id", "message", body=_body([])),
            "delete": _operation("id", "message"),
        },
        "/v1/conversations/{id}/cancel": {"post": _operation("id", body=wish)},
        "/v1/conversations/{id}/queue": {"get": _operation("id"), "post": _operation("id", body=queued)},
    }
    return {"openapi": "3.1.0", "info": {"title": "elbowroom", "version": "1"}, "paths": paths}


def _body(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _operation(*names: str, query: tuple[str, ...] = (), body: dict[str, Any] | None = None) -> dict[str, Any]:
    parameters = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in names]
    parameters += [{"name": name, "in": "query", "required": False, "schema": TEXT} for name in query]
    operation: dict[str, Any] = {"parameters": parameters, "responses": {"default": {"description": "Whatever."}}}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation
